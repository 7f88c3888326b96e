// The keywords of a JSON schema, by what their values are.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::grammar {

enum class Keyword : uint8_t {
  kUnknown,
  kAnnotation,   // constrains nothing
  kSchema,       // a schema
  kSchemaMap,    // an object of schemas
  kDefinitions,  // an object of schemas, for $ref
  kSchemaList,   // a list of schemas
  kWhole,        // stands for all of the schema: the engine ignores what is next to it
  kUnion,        // likewise, a list of schemas
  kValue,        // anything else that the engine does
  kScalar,       // likewise, but only with a type
};

struct KeywordEntry {
  std::string_view name;
  Keyword kind;
};

inline constexpr auto kKeywords = std::to_array<KeywordEntry>({
    {"title", Keyword::kAnnotation},
    {"description", Keyword::kAnnotation},
    {"default", Keyword::kAnnotation},
    {"examples", Keyword::kAnnotation},
    {"example", Keyword::kAnnotation},
    {"deprecated", Keyword::kAnnotation},
    {"readOnly", Keyword::kAnnotation},
    {"writeOnly", Keyword::kAnnotation},
    {"discriminator", Keyword::kAnnotation},
    {"contentEncoding", Keyword::kAnnotation},
    {"contentMediaType", Keyword::kAnnotation},
    {"$schema", Keyword::kAnnotation},
    {"$id", Keyword::kAnnotation},
    {"$comment", Keyword::kAnnotation},
    {"items", Keyword::kSchema},
    {"additionalProperties", Keyword::kSchema},
    {"propertyNames", Keyword::kSchema},
    {"properties", Keyword::kSchemaMap},
    {"patternProperties", Keyword::kSchemaMap},
    {"$defs", Keyword::kDefinitions},
    {"definitions", Keyword::kDefinitions},
    {"prefixItems", Keyword::kSchemaList},
    {"anyOf", Keyword::kUnion},
    {"oneOf", Keyword::kUnion},
    {"allOf", Keyword::kUnion},
    {"$ref", Keyword::kWhole},
    {"enum", Keyword::kWhole},
    {"const", Keyword::kWhole},
    {"type", Keyword::kValue},
    {"required", Keyword::kValue},
    {"format", Keyword::kScalar},
    {"pattern", Keyword::kScalar},
    {"minLength", Keyword::kScalar},
    {"maxLength", Keyword::kScalar},
    {"minimum", Keyword::kScalar},
    {"maximum", Keyword::kScalar},
    {"exclusiveMinimum", Keyword::kScalar},
    {"exclusiveMaximum", Keyword::kScalar},
    {"multipleOf", Keyword::kScalar},
    {"minItems", Keyword::kScalar},
    {"maxItems", Keyword::kScalar},
    {"minProperties", Keyword::kScalar},
    {"maxProperties", Keyword::kScalar},
});

constexpr Keyword KeywordOf(std::string_view name) {
  if (name.starts_with("x-")) return Keyword::kAnnotation;
  const auto* found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                   [name](const KeywordEntry& e) { return e.name == name; });
  return found == kKeywords.end() ? Keyword::kUnknown : found->kind;
}

}  // namespace sluice::grammar
