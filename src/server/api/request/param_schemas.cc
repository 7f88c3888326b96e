#include "server/api/request/param_schemas.h"

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "semantics/validate.h"
#include "server/api/json_text.h"

namespace sluice::server {
namespace {

std::string WithHelp(std::string schema, std::string_view help) {
  schema.append(R"("description":)");
  AppendQuoted(schema, help);
  return schema.append("}");
}

// The largest floats and integers of params.def stand for no bound.
template <typename T>
std::string NumberSchema(const semantics::Range& bounds, std::string_view help) {
  std::string schema = std::integral<T> ? R"({"type":"integer",)" : R"({"type":"number",)";
  schema.append(bounds.low_is_open ? R"("exclusiveMinimum":)" : R"("minimum":)");
  AppendNumber(schema, static_cast<int64_t>(bounds.low));
  if (bounds.high < 2147483647) {
    schema.append(R"(,"maximum":)");
    AppendNumber(schema, static_cast<int64_t>(bounds.high));
  }
  return WithHelp(schema.append(","), help);
}

// A profile may be an object of single choices, too.
template <typename T>
std::string ChoiceSchema(std::string_view help) {
  return WithHelp(std::is_enum_v<T> ? R"({"type":"string",)" : R"({"type":["string","object"],)",
                  help);
}

constexpr const char* kTokenIds = R"({"type":"array","items":{"type":"integer","minimum":0},)";
constexpr const char* kOptionalTokenIds = kTokenIds;
constexpr const char* kTokenSequences =
    R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}},)";
constexpr const char* kBiasEntries =
    R"({"type":"object","additionalProperties":{"type":"number"},)";

}  // namespace

std::vector<FieldSchema> ParamSchemas() {
  return {
#define SLUICE_SELECT_PARAM(type, field, default_value, range, json, help) \
  {json, NumberSchema<type>(range, help)},
#define SLUICE_REQUEST_PARAM(type, field, default_value, range, json, help) \
  {json, NumberSchema<type>(range, help)},
#define SLUICE_OPTIONAL_PARAM(type, field, range, json, help) \
  {json, NumberSchema<type>(range, help)},
#define SLUICE_CHOICE_PARAM(type, field, default_value, json, help) \
  {json, ChoiceSchema<type>(help)},
#define SLUICE_LIST_PARAM(type, field, json, help) {json, WithHelp(k##type, help)},
#include "sluice/params.def"
  };
}

}  // namespace sluice::server
