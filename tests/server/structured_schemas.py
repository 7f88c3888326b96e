"""JSON schemas of the kinds that clients send, and whether a value matches one of them."""

import re

TEXT = {"type": "string", "maxLength": 12}
TREE = {"type": "object", "properties": {"leaf": {"type": "integer", "minimum": 0, "maximum": 9},
                                         "nodes": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "required": ["leaf"]}


def record(**properties) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMAS = {
    "nesting": record(a=record(b=record(c={"type": "array", "items": {"type": "array", "items": {"type": "boolean"},
                                                                      "maxItems": 2}, "maxItems": 3}))),
    "enums": record(mood={"enum": ["glad", "sad", 1, None, True]}, kind={"const": "king"},
                    way={"type": "string", "enum": ["n", "north", "north-east"]}),
    "patterns": record(code={"type": "string", "pattern": "^[A-F]{3}-[0-9]{3}$"},
                       word={"type": "string", "pattern": "^(a|bc)+d?$"}),
    "bounds": record(age={"type": "integer", "minimum": 20, "maximum": 99},
                     low={"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 5},
                     list={"type": "array", "items": {"type": "integer", "minimum": -7, "maximum": 13}, "minItems": 2,
                           "maxItems": 5}),
    "lengths": record(name={"type": "string", "minLength": 2, "maxLength": 9}, text=TEXT),
    "anyOf": {"anyOf": [{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, record(none={"type": "null"}),
                        {"type": "integer", "minimum": 0, "maximum": 999}]},
    "$ref": {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}},
    "optional": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": TEXT, "c": {"type": "null"}},
                 "required": ["b"]},
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3,
                             "propertyNames": {"type": "string", "pattern": "^[a-d]{1,4}$"}},
}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def equal(a, b) -> bool:
    return type(a) is type(b) and a == b


def matches(value, schema: dict, root: dict) -> bool:
    if "$ref" in schema:
        return matches(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in schema:
        return any(matches(value, one, root) for one in schema["anyOf"])
    if "const" in schema and not equal(value, schema["const"]):
        return False
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        return False
    of_type = schema.get("type")
    if of_type == "integer":
        return (type(value) is int and schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1))
    if of_type is not None and not isinstance(value, TYPES[of_type]):
        return False
    if of_type == "string":
        return (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
                and re.search(schema.get("pattern", ""), value) is not None)
    if of_type == "array":
        return (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                and all(matches(one, schema["items"], root) for one in value))
    if of_type == "object":
        return (all(name in value for name in schema.get("required", ())) and len(value) <= schema.get(
            "maxProperties", len(value)) and all(matches(name, schema.get("propertyNames", {}), root) for name in value)
                and all(matches(one, schema.get("properties", {}).get(name) or schema.get("additionalProperties")
                                or {"enum": []}, root) for name, one in value.items()))
    return True
