"""The reference of HTTP: every route with its fields, from the /openapi.json of the program that was built.

Without a program the page says that it is missing.
"""

import json
import os
import re
import subprocess
import urllib.request


def document(program):
    """The OpenAPI document that `sluice serve` answers with."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    with subprocess.Popen([program, "serve", "--quiet", "--port", "0"], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as server:
        try:
            said = server.stdout.readline()
            address = re.search(r"http://\S+", said)
            if not address:
                raise RuntimeError(f"sluice serve does not start: {said}{server.stdout.read()}")
            with urllib.request.urlopen(f"{address[0]}/openapi.json", timeout=60) as answer:
                return json.load(answer)
        finally:
            server.terminate()


def routes(spec):
    """(method, path, operation) in the document's order."""
    return [(method.upper(), path, operation) for path, methods in spec["paths"].items()
            for method, operation in methods.items()]


def type_of(schema):
    """A schema in words: its type, or those of its alternatives."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema.get("anyOf") or schema["oneOf"]))
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    return f"array of {type_of(schema['items'])}" if kind == "array" and "items" in schema else kind


def range_of(schema):
    """The range of a number, the length of a list."""
    low = f"[{schema['minimum']}" if "minimum" in schema else \
        f"({schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else ""
    high = f"{schema['maximum']}]" if "maximum" in schema else \
        f"{schema['exclusiveMaximum']})" if "exclusiveMaximum" in schema else ""
    if low or high:
        return f"{low or '(-inf'}, {high or 'inf)'}"
    length = schema.get("maxItems") or max((one.get("maxItems", 0) for one in schema.get("anyOf", [])), default=0)
    return f"at most {length} entries" if length else ""


def fields(schema):
    """The rows of a request's fields, the required ones first."""
    required = schema.get("required", [])
    names = sorted(schema.get("properties", {}), key=lambda name: name not in required)
    for name in names:
        one = schema["properties"][name]
        said = " ".join(part for part in (one.get("description", ""), "Required." if name in required else "") if part)
        cells = (f"`{name}`", type_of(one), range_of(one), said)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(method, path, operation):
    lines = [f"## `{method} {path}`", "", operation["summary"] + ".", ""]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows = list(fields(body))
    if rows:
        lines += ["| field | type | range | |", "|---|---|---|---|", *rows, ""]
    for status, answer in operation.get("responses", {}).items():
        for kind, content in answer.get("content", {}).items():
            schema = content.get("schema", {})
            names = ", ".join(f"`{name}`" for name in schema.get("properties", {})) or type_of(schema)
            lines += [f"- {'otherwise' if status == 'default' else status}, `{kind}`: {names}"]
    return [*lines, ""]


def write(program, source):
    lines = ["# HTTP routes and fields", "", "[HTTP](../http-api.md) describes them; "
             "this page lists them, as the server does at `/openapi.json` and `/docs`.", ""]
    if program.is_file():
        spec = document(program)
        for route in routes(spec):
            lines += section(*route)
        (source.parent / "extra/reference").mkdir(parents=True, exist_ok=True)
        (source.parent / "extra/reference/openapi.json").write_text(json.dumps(spec, indent=1), encoding="utf-8")
        lines += ['<a href="openapi.json">The OpenAPI document</a>', ""]
    else:
        lines += ["This site was built where the program was not, so the list is missing: open `/docs` of a server.", ""]
    target = source / "reference/http.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines), encoding="utf-8")
