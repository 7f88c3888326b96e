#include "server/api/request/thinking_fields.h"

#include <algorithm>
#include <array>
#include <limits>

#include "support/number.h"

namespace sluice::server {
namespace {

using json::json_type;

constexpr std::array<std::string_view, 7> kThinkingFields = {"thinking_token_budget",
                                                             "thinking_budget",
                                                             "thinking_budget_tokens",
                                                             "reasoning_budget",
                                                             "reasoning_budget_tokens",
                                                             "reasoning",
                                                             "thinking"};

[[noreturn]] void ThrowUnsupported(std::string_view field, std::string_view hint) {
  throw ApiFailure({.message = std::string(field).append(" is not supported: ").append(hint),
                    .param = std::string(field),
                    .code = "unsupported_parameter"});
}

void Set(ThinkingInput& to, const RequestValue& value, int64_t least) {
  const json::Range range{static_cast<double>(least), double{std::numeric_limits<int32_t>::max()},
                          false};
  const auto tokens = value.Integer<int64_t>(range);
  if (to.tokens.has_value() && *to.tokens != tokens) {
    ThrowInvalid(value.name(), Number(tokens), "the same as " + to.field);
  }
  to.tokens = tokens;
  to.field = value.name();
}

// {"effort", "max_tokens", "exclude", "enabled"}, of which an effort cannot be had.
void ReadReasoning(ThinkingInput& to, const RequestValue& value) {
  SeenFields seen;
  value.ForEachField([&](const std::string& field, json::Json json) {
    const std::string name = "reasoning." + field;
    const RequestValue part(name, json);
    const bool is_new = seen.Add(field);
    if (!is_new || part.IsNull()) {
      part.Skip();
    } else if (field == "max_tokens") {
      Set(to, part, 0);
    } else if (field == "exclude") {
      to.excludes_reasoning = part.Boolean();
    } else if (field == "enabled") {
      to.reasons = part.Boolean();
    } else {
      const bool is_none = part.type() == json_type::string && part.Text() == "none";
      if (is_none) {
        to.reasons = false;
        return;
      }
      ThrowUnsupported("reasoning",
                       "reasoning.max_tokens bounds it, and chat_template_kwargs has "
                       "what the chat template reads");
    }
  });
}

void ReadThinking(ThinkingInput& to, const RequestValue& value) {
  std::string type;
  bool has_budget = false;
  SeenFields seen;
  value.ForEachField([&](const std::string& field, json::Json json) {
    const std::string name = "thinking." + field;
    const RequestValue part(name, json);
    if (!seen.Add(field) || part.IsNull()) {
      part.Skip();
    } else if (field == "type") {
      type = part.Text();
    } else if (field == "budget_tokens") {
      Set(to, part, 0);
      has_budget = true;
    } else {
      part.Skip();
    }
  });
  if (type == "disabled" && !has_budget) {
    to.reasons = false;
    return;
  }
  if (type != "enabled" || !has_budget) {
    ThrowUnsupported("thinking",
                     "it is {\"type\": \"enabled\", \"budget_tokens\": N}, and "
                     "chat_template_kwargs has what the chat template reads");
  }
}

}  // namespace

bool IsThinkingField(std::string_view name) {
  return std::ranges::find(kThinkingFields, name) != kThinkingFields.end();
}

void ReadThinkingField(ThinkingInput& to, const RequestValue& value) {
  const bool has_parts = value.name() == "reasoning" || value.name() == "thinking";
  if (!has_parts) return Set(to, value, -1);
  if (value.type() == json_type::boolean && !value.Boolean()) {
    to.reasons = false;
    return;
  }
  if (value.name() == "reasoning" && value.type() == json_type::object) {
    return ReadReasoning(to, value);
  }
  if (value.name() == "thinking" && value.type() == json_type::object) {
    return ReadThinking(to, value);
  }
  value.Skip();
  ThrowUnsupported(value.name(),
                   "thinking_token_budget bounds it, and chat_template_kwargs has "
                   "what the chat template reads");
}

}  // namespace sluice::server
