#include "server/api/request/grammar_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/language.h"
#include "server/api/json_text.h"
#include "support/check.h"
#include "support/number.h"

namespace sluice::server {
namespace {

using json::Json;
using json::json_type;

enum class Content : uint8_t { kSchema, kRegex, kChoice, kGrammar, kTag };

struct Source {
  std::string_view name;
  Content content;
};
constexpr auto kGrammarSources = std::to_array<Source>({
    {"ebnf", Content::kGrammar},
    {"grammar", Content::kGrammar},
    {"guided_choice", Content::kChoice},
    {"guided_grammar", Content::kGrammar},
    {"guided_json", Content::kSchema},
    {"guided_regex", Content::kRegex},
    {"json_schema", Content::kSchema},
    {"regex", Content::kRegex},
    {"structural_tag", Content::kTag},
});
constexpr auto kStructuredOutputs = std::to_array<Source>({
    {"choice", Content::kChoice},
    {"grammar", Content::kGrammar},
    {"json", Content::kSchema},
    {"regex", Content::kRegex},
    {"structural_tag", Content::kTag},
});
constexpr auto kNames = [] {
  std::array<std::string_view, kGrammarSources.size() + 2> names = {"response_format",
                                                                    "structured_outputs"};
  std::ranges::transform(kGrammarSources, names.begin() + 2, &Source::name);
  return names;
}();

constexpr const char* kSchema = "a JSON schema: an object, or its text";

std::string Member(const RequestValue& object, std::string_view field) {
  return std::string(object.name()).append(".").append(field);
}

void Set(GrammarInput& to, std::string_view field, OutputGrammar grammar) {
  if (to.grammar.has_value()) {
    throw ApiFailure({.message = std::string(field) + " is not allowed together with " + to.field +
                                 ": an output has one grammar",
                      .param = std::string(field)});
  }
  if (grammar.text.size() > to.max_bytes) {
    ThrowInvalid(field, Number(grammar.text.size()) + " bytes",
                 "at most " + Number(to.max_bytes) + " bytes");
  }
  to.grammar = std::move(grammar);
  to.field = field;
}

// JSON as it came, without white space; or the text that a string has.
std::string JsonOrText(const RequestValue& value, const char* allowed) {
  if (value.type() == json_type::string) return value.Text();
  if (value.type() != json_type::object) value.Refuse(value.Shown(), allowed);
  std::string text;
  AppendJson(value, text);
  return text;
}

std::string ChoiceText(const RequestValue& value) {
  constexpr const char* kChoices = "a list of one text or more";
  std::vector<std::string> choices;
  value.ForEachValue(kChoices,
                     [&](const RequestValue& choice) { choices.push_back(choice.Text()); });
  if (choices.empty()) value.Refuse("an empty list", kChoices);
  return ChoiceGrammar(choices);
}

OutputGrammar ReadContent(Content content, const RequestValue& value) {
  switch (content) {
    case Content::kSchema:
      return {.kind = GrammarKind::kJsonSchema, .text = JsonOrText(value, kSchema)};
    case Content::kRegex:
      return {.kind = GrammarKind::kRegex, .text = value.Text()};
    case Content::kChoice:
      return {.kind = GrammarKind::kEbnf, .text = ChoiceText(value)};
    case Content::kTag:
      return {.kind = GrammarKind::kStructuralTag,
              .text = JsonOrText(value, "a structural tag: an object, or its text")};
    case Content::kGrammar:
      break;
  }
  std::string text = value.Text();
  const GrammarKind kind = grammar::LanguageOf(text);
  return {.kind = kind, .text = std::move(text)};
}

// use(field, value): of the first field of each name that is not null. False: it is unknown.
template <typename Use>
void ReadObject(GrammarInput& to, const RequestValue& object, Use use) {
  SeenFields seen;
  object.ForEachField([&](const std::string& field, Json json) {
    const std::string name = Member(object, field);
    const RequestValue value(name, json);
    // Each new name is compared with all of these.
    if (seen.size() > kMostUnknownFields) {
      object.Refuse("more than " + Number(kMostUnknownFields) + " fields",
                    "at most " + Number(kMostUnknownFields));
    }
    if (value.IsNull() || !seen.Add(field)) return value.Skip();
    if (use(field, value)) return;
    AddUnknown(name, to.unknown);
    value.Skip();
  });
}

// --- vLLM --------------------------------------------------------------------------------------

void ReadStructuredOutputs(GrammarInput& to, const RequestValue& value) {
  bool has_whitespace = true;
  bool has_grammar = false;
  ReadObject(to, value, [&](std::string_view field, const RequestValue& part) {
    const auto* const source = std::ranges::find(kStructuredOutputs, field, &Source::name);
    if (source != kStructuredOutputs.end()) {
      Set(to, part.name(), ReadContent(source->content, part));
      has_grammar = true;
    } else if (field == "json_object") {
      if (!part.Boolean()) return true;
      Set(to, part.name(), {});
      has_grammar = true;
    } else if (field == "disable_any_whitespace") {
      has_whitespace = !part.Boolean();
    } else if (field == "disable_additional_properties" || field == "disable_fallback") {
      part.Boolean();  // no schema lets others in unless it says so, and there is one grammar
                       // engine
    } else if (field == "whitespace_pattern") {
      throw ApiFailure({.message = std::string(part.name()) +
                                   " is not supported: disable_any_whitespace leaves it out",
                        .param = std::string(part.name()),
                        .code = "unsupported_parameter"});
    } else {
      return false;
    }
    return true;
  });
  if (!has_grammar) {
    ThrowInvalid(value.name(), "an object without a grammar",
                 "json, json_object, regex, choice, grammar or structural_tag in it");
  }
  if (!has_whitespace) to.grammar->options.max_whitespace = 0;
}

// --- OpenAI ------------------------------------------------------------------------------------

struct ResponseFormat {
  bool is_flat = false;
  std::string type = {};
  bool has_json_schema = false;
  std::optional<std::string> schema = {};
  std::string schema_field = {};
  std::string tag_format = {};  // these three are JSON
  std::string structures = {};
  std::string triggers = {};
};

void ReadJsonSchema(GrammarInput& to, const RequestValue& value, ResponseFormat& format) {
  format.has_json_schema = true;
  ReadObject(to, value, [&](std::string_view field, const RequestValue& part) {
    if (field == "schema") {
      format.schema = JsonOrText(part, kSchema);
      format.schema_field = part.name();
    } else if (field == "name" || field == "description") {
      part.Text();
    } else if (field == "strict") {
      part.Boolean();  // an output matches its schema, whatever this says
    } else {
      return false;
    }
    return true;
  });
}

// {"begin", "schema", "end"} as vLLM has had it, in the words of the grammar engine.
void AppendTag(GrammarInput& to, const RequestValue& structure, std::string& out) {
  std::string begin;
  std::string end;
  std::string schema;
  ReadObject(to, structure, [&](std::string_view field, const RequestValue& part) {
    if (field == "begin" || field == "end") {
      AppendQuoted(field == "begin" ? begin : end, part.Text());
    } else if (field == "schema") {
      schema = JsonOrText(part, kSchema);
    } else {
      return false;
    }
    return true;
  });
  for (const auto& [name, text] : {std::pair("begin", &begin), std::pair("end", &end)}) {
    if (text->empty()) ThrowInvalid(Member(structure, name), "", "a text");
  }
  if (schema.empty()) ThrowInvalid(Member(structure, "schema"), "", kSchema);
  out.append(out.empty() ? "" : ",").append(R"({"type":"tag","begin":)").append(begin);
  out.append(R"(,"content":{"type":"json_schema","json_schema":)").append(schema);
  out.append(R"(},"end":)").append(end).append("}");
}

void ReadStructures(GrammarInput& to, const RequestValue& value, std::string& out) {
  int64_t number = 0;
  value.ForEachValue("a list of structures", [&](const RequestValue& structure) {
    const std::string name = std::string(value.name()).append("[").append(Number(number++)) + "]";
    AppendTag(to, RequestValue(name, structure.json()), out);
  });
}

std::string TagText(const RequestValue& value, const ResponseFormat& format) {
  std::string text = R"({"type":"structural_tag","format":)";
  if (!format.tag_format.empty()) return text.append(format.tag_format).append("}");
  if (format.structures.empty() || format.triggers.empty()) {
    ThrowInvalid(Member(value, "format"), "", "a structural tag; or structures and triggers");
  }
  text.append(R"({"type":"triggered_tags","triggers":)").append(format.triggers);
  return text.append(R"(,"tags":[)").append(format.structures).append("]}}");
}

void SetFormat(GrammarInput& to, const RequestValue& value, ResponseFormat& format) {
  const std::string type_field = Member(value, "type");
  constexpr const char* kTypes = "text, json_object, json_schema or structural_tag";
  if (format.type.empty()) ThrowInvalid(type_field, "", kTypes);
  if (format.type == "text") return;
  if (format.type == "structural_tag") {
    return Set(to, value.name(),
               {.kind = GrammarKind::kStructuralTag, .text = TagText(value, format)});
  }
  if (format.type != "json_object" && format.type != "json_schema") {
    ThrowInvalid(type_field, RequestValue::Quoted(format.type), kTypes);
  }
  if (format.schema.has_value()) {
    return Set(to, format.schema_field,
               {.kind = GrammarKind::kJsonSchema, .text = *std::move(format.schema)});
  }
  if (format.type == "json_object") return Set(to, value.name(), {});
  if (format.is_flat) ThrowInvalid(Member(value, "schema"), "", kSchema);
  const std::string field = Member(value, "json_schema");
  ThrowInvalid(format.has_json_schema ? field + ".schema" : field, "",
               format.has_json_schema ? kSchema : "an object with name and schema");
}

void ReadFormat(GrammarInput& to, const RequestValue& value, ResponseFormat format) {
  ReadObject(to, value, [&](std::string_view field, const RequestValue& part) {
    if (field == "type") {
      format.type = part.Text();
    } else if (field == "json_schema") {
      ReadJsonSchema(to, part, format);
    } else if (field == "schema") {
      format.schema = JsonOrText(part, kSchema);
      format.schema_field = part.name();
    } else if (field == "format") {
      AppendJson(part, format.tag_format);
    } else if (field == "structures") {
      ReadStructures(to, part, format.structures);
    } else if (field == "triggers") {
      AppendJson(part, format.triggers);
    } else if (format.is_flat && (field == "name" || field == "description")) {
      part.Text();
    } else if (format.is_flat && field == "strict") {
      part.Boolean();
    } else {
      return false;
    }
    return true;
  });
  SetFormat(to, value, format);
}

}  // namespace

std::span<const std::string_view> GrammarFields() { return kNames; }

bool IsGrammarField(std::string_view name) {
  return std::ranges::find(kNames, name) != kNames.end();
}

void ReadGrammarField(GrammarInput& to, const RequestValue& value) {
  if (value.name() == "response_format") return ReadFormat(to, value, {});
  if (value.name() == "structured_outputs") return ReadStructuredOutputs(to, value);
  // An empty text is none: clients send it as a default.
  if (json::Trimmed(value.json().raw_json_token()) == R"("")") return value.Skip();
  const auto* const source = std::ranges::find(kGrammarSources, value.name(), &Source::name);
  Set(to, value.name(), ReadContent(source->content, value));
}

void ReadFlatFormat(GrammarInput& to, const RequestValue& value) {
  ReadFormat(to, value, {.is_flat = true});
}

}  // namespace sluice::server
