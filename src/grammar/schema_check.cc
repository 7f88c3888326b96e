#include "grammar/schema_check.h"

#include <simdjson.h>

#include <string>

#include "grammar/reason.h"
#include "grammar/schema_keywords.h"
#include "support/check.h"

namespace sluice::grammar {
namespace {

namespace dom = simdjson::dom;

constexpr int32_t kMostRefs = 64;  // in a row
constexpr size_t kMostShown = 80;

// A place as a list of names up to the root: a text of it is made for an error only.
struct Place {
  const Place* parent = nullptr;
  std::string_view name = {};

  std::string Text() const {
    if (parent == nullptr) return "";
    return parent->Text().append("/").append(name.substr(0, kMostShown));
  }
};

// Whether a pointer leads from one schema to another through keywords that have schemas: those are
// checked where they stand.
bool LeadsToSchema(std::string_view pointer) {
  const auto next = [&pointer] {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string_view name = pointer.substr(1, end - 1);
    pointer.remove_prefix(end);
    return name;
  };
  while (!pointer.empty()) {
    const Keyword keyword = KeywordOf(next());
    if (keyword == Keyword::kSchema) continue;
    const bool has_names = keyword == Keyword::kSchemaMap || keyword == Keyword::kDefinitions ||
                           keyword == Keyword::kSchemaList || keyword == Keyword::kUnion;
    if (!has_names || pointer.empty()) return false;
    next();
  }
  return true;
}

std::string_view TypeName(dom::element value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "array";
    case dom::element_type::OBJECT:
      return "object";
    case dom::element_type::STRING:
      return "string";
    case dom::element_type::BOOL:
      return "boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
    case dom::element_type::DOUBLE:
      return "number";
    default:
      return "integer";
  }
}

bool HasType(std::string_view type, dom::element value) {
  const std::string_view name = TypeName(value);
  return name == type || (name == "integer" && type == "number");
}

class SchemaCheck {
 public:
  SchemaCheck(std::string_view parameter, dom::element root) : parameter_(parameter), root_(root) {}

  void Check(dom::element schema, const Place& place) const {
    if (schema.is_bool()) return;
    dom::object object;
    if (schema.get(object) != simdjson::SUCCESS)
      Refuse(place, "a schema is an object or a boolean");
    std::string_view whole;
    for (const auto member : object) {
      const Keyword keyword = KeywordOf(member.key);
      const Place at = {&place, member.key};
      CheckMember(object, keyword, member, at);
      if (keyword != Keyword::kWhole && keyword != Keyword::kUnion) continue;
      if (!whole.empty()) Refuse(at, Together(member.key, whole));
      whole = member.key;
    }
    if (!whole.empty()) CheckAlone(object, whole, place);
    CheckObject(object, place);
  }

 private:
  [[noreturn]] void Refuse(const Place& place, const std::string& reason) const {
    const std::string text = place.Text();
    ThrowInvalid(parameter_, "a schema", reason + (text.empty() ? "" : ", at " + text));
  }

  static std::string Together(std::string_view one, std::string_view other) {
    return std::string(one).append(" is not supported together with ").append(other);
  }

  void CheckMember(dom::object object, Keyword keyword, const dom::key_value_pair& member,
                   const Place& at) const {
    switch (keyword) {
      case Keyword::kUnknown:
        Refuse(at, Excerpt(member.key) + " is not a supported keyword");
      case Keyword::kSchema:
        return Check(member.value, at);
      case Keyword::kSchemaMap:
      case Keyword::kDefinitions:
        return CheckMap(member.value, at);
      case Keyword::kUnion:
      case Keyword::kSchemaList:
        return CheckList(member.key, member.value, at);
      case Keyword::kWhole:
        if (member.key == "$ref") return CheckRef(member.value, at);
        return CheckValues(object, member.key, member.value, at);
      case Keyword::kScalar:
        return CheckScalar(object, member.key, member.value, at);
      default:
        return;
    }
  }

  void CheckMap(dom::element value, const Place& at) const {
    dom::object schemas;
    if (value.get(schemas) != simdjson::SUCCESS) Refuse(at, "an object of schemas is expected");
    for (const auto member : schemas) {
      if (at.name == "patternProperties") CheckRegex(parameter_, at.Text(), member.key);
      Check(member.value, {&at, member.key});
    }
  }

  void CheckList(std::string_view key, dom::element value, const Place& at) const {
    dom::array schemas;
    if (value.get(schemas) != simdjson::SUCCESS) Refuse(at, "a list of schemas is expected");
    if (key == "allOf" && schemas.size() != 1) Refuse(at, "allOf is supported with one schema");
    size_t i = 0;
    for (const auto schema : schemas) {
      const std::string index = std::to_string(i++);
      Check(schema, {&at, index});
    }
  }

  void CheckRef(dom::element value, const Place& at) const {
    dom::element target = root_;
    for (int32_t refs = 0; refs < kMostRefs; ++refs) {
      std::string_view ref;
      if (value.get(ref) != simdjson::SUCCESS) Refuse(at, "$ref is a string");
      if (ref != "#" && !ref.starts_with("#/"))
        Refuse(at, "$ref must begin with #/: no other document is read");
      const std::string_view pointer = ref.substr(1);
      if (!LeadsToSchema(pointer) || root_.at_pointer(pointer).get(target) != simdjson::SUCCESS) {
        Refuse(at, "$ref names no schema of this document");
      }
      if (!target.is_object() || target["$ref"].get(value) != simdjson::SUCCESS) return;
    }
    Refuse(at, "$ref leads to itself, or through more than 64 others");
  }

  // Of enum and const: the engine does not compare them with the type.
  void CheckValues(dom::object object, std::string_view key, dom::element value,
                   const Place& at) const {
    dom::element type;
    if (object["type"].get(type) != simdjson::SUCCESS) return;
    const auto check = [&](dom::element one) {
      bool fits = false;
      dom::array types;
      std::string_view name;
      if (type.get(name) == simdjson::SUCCESS) fits = HasType(name, one);
      if (type.get(types) == simdjson::SUCCESS) {
        for (const auto each : types) {
          fits |= each.get(name) == simdjson::SUCCESS && HasType(name, one);
        }
      }
      if (!fits) Refuse(at, "a value is not of the type");
    };
    dom::array values;
    if (key == "const") return check(value);
    if (value.get(values) != simdjson::SUCCESS) Refuse(at, "enum is a list");
    for (const auto one : values) check(one);
  }

  void CheckScalar(dom::object object, std::string_view key, dom::element value,
                   const Place& at) const {
    dom::element other;
    if (object["type"].get(other) != simdjson::SUCCESS) {
      Refuse(at, std::string(key) + " is supported with a type");
    }
    if (key == "multipleOf" && !(other.is_string() && other.get_string().value() == "integer")) {
      Refuse(at, "multipleOf is supported for an integer");
    }
    if (key != "pattern") return;
    std::string_view pattern;
    if (value.get(pattern) != simdjson::SUCCESS) Refuse(at, "pattern is a string");
    CheckRegex(parameter_, at.Text(), pattern);
    for (const std::string_view length : {"minLength", "maxLength", "format"}) {
      if (object[length].error() == simdjson::SUCCESS) Refuse(at, Together(key, length));
    }
  }

  void CheckAlone(dom::object object, std::string_view whole, const Place& place) const {
    for (const auto member : object) {
      const Keyword keyword = KeywordOf(member.key);
      const bool is_type = member.key == "type" && (whole == "enum" || whole == "const");
      if (keyword == Keyword::kAnnotation || keyword == Keyword::kDefinitions || is_type ||
          member.key == whole) {
        continue;
      }
      Refuse({&place, member.key}, Together(member.key, whole));
    }
  }

  void CheckObject(dom::object object, const Place& place) const {
    dom::array required;
    if (object["required"].get(required) != simdjson::SUCCESS) return;
    const Place at = {&place, "required"};
    dom::object properties;
    const bool has = object["properties"].get(properties) == simdjson::SUCCESS;
    for (const auto one : required) {
      std::string_view name;
      if (one.get(name) != simdjson::SUCCESS) Refuse(at, "required is a list of strings");
      if (!has || properties[name].error() != simdjson::SUCCESS) {
        Refuse(at, Excerpt(name) + " is required and not one of properties");
      }
    }
  }

  std::string_view parameter_;
  dom::element root_;
};

// The parser owns what it gives.
dom::element Parse(std::string_view parameter, std::string_view text, int32_t nesting,
                   dom::parser& parser) {
  dom::element root;
  auto error = parser.allocate(text.size(), static_cast<size_t>(nesting));
  if (error == simdjson::SUCCESS) {
    error = parser.parse(simdjson::padded_string(text)).get(root);
  }
  if (error == simdjson::DEPTH_ERROR) {
    ThrowInvalid(parameter, "a text", "JSON of at most " + ToText(int64_t{nesting}) + " levels");
  }
  if (error != simdjson::SUCCESS) {
    ThrowInvalid(parameter, Excerpt(text),
                 std::string("JSON; ").append(simdjson::error_message(error)));
  }
  return root;
}

void CheckTags(std::string_view parameter, dom::element value) {
  dom::array list;
  dom::object object;
  if (value.get(list) == simdjson::SUCCESS) {
    for (const auto one : list) CheckTags(parameter, one);
  } else if (value.get(object) == simdjson::SUCCESS) {
    for (const auto member : object) {
      const bool is_schema = member.key == "json_schema" && !member.value.is_string();
      if (is_schema) SchemaCheck(parameter, member.value).Check(member.value, {});
      if (!is_schema) CheckTags(parameter, member.value);
    }
  }
}

// What stands in a schema may look like one as well.
bool AnyGrammar(dom::element value) {
  dom::array list;
  dom::object object;
  if (value.get(list) == simdjson::SUCCESS) {
    for (const auto one : list) {
      if (AnyGrammar(one)) return true;
    }
  } else if (value.get(object) == simdjson::SUCCESS) {
    for (const auto member : object) {
      std::string_view type;
      const bool is_type = member.key == "type" && member.value.get(type) == simdjson::SUCCESS;
      if (is_type ? type == "grammar" : AnyGrammar(member.value)) return true;
    }
  }
  return false;
}

}  // namespace

bool HasGrammar(std::string_view tag) {
  dom::parser parser;
  dom::element root;
  return parser.parse(simdjson::padded_string(tag)).get(root) != simdjson::SUCCESS ||
         AnyGrammar(root);
}

void CheckSchema(std::string_view parameter, std::string_view text, int32_t nesting) {
  dom::parser parser;
  const dom::element root = Parse(parameter, text, nesting, parser);
  SchemaCheck(parameter, root).Check(root, {});
}

void CheckTagSchemas(std::string_view parameter, std::string_view text, int32_t nesting) {
  dom::parser parser;
  CheckTags(parameter, Parse(parameter, text, nesting, parser));
}

void CheckRegex(std::string_view parameter, std::string_view place, std::string_view regex) {
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\') ++i;
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    const bool is_inside = (c == '^' && i != 0) || (c == '$' && i + 1 != regex.size());
    if (!in_class && is_inside) {
      ThrowInvalid(parameter, Excerpt(regex),
                   std::string("^ at the beginning and $ at the end only, not at byte ")
                       .append(ToText(static_cast<int64_t>(i)))
                       .append(place.empty() ? "" : " of ")
                       .append(place));
    }
  }
}

}  // namespace sluice::grammar
