// Validation of sampling parameters, expanded from params.def.
#include "sluice/params.hpp"

#include <string>

#include "semantics/validate.h"
#include "support/check.h"

namespace sluice {
namespace {

std::string RangeText(const semantics::Range& range) {
  return std::string(range.low_is_open ? "(" : "[")
      .append(ToText(range.low))
      .append(", ")
      .append(ToText(range.high))
      .append("]");
}

template <typename T>
void CheckParam(std::string_view name, T value, const semantics::Range& range) {
  if (range.Contains(static_cast<double>(value))) return;
  ThrowInvalid(name,
               std::is_integral_v<T> ? std::to_string(value) : ToText(static_cast<double>(value)),
               RangeText(range));
}

void CheckIds(std::string_view name, std::span<const int32_t> ids, int64_t vocab) {
  for (const int32_t id : ids) CheckInRange(name, id, 0, vocab - 1);
}

constexpr std::string_view kDrawMethods[] = {"gumbel", "cdf"};
constexpr std::string_view kDraftModes[] = {"match", "reject"};
constexpr std::string_view kLogprobModes[] = {"raw_logprobs", "raw_logits", "processed_logprobs",
                                              "processed_logits"};

template <typename T>
std::string_view NameOf(std::span<const std::string_view> names, T value) {
  const auto index = static_cast<size_t>(value);
  return index < names.size() ? names[index] : "unknown";
}

template <typename T>
T ByName(std::string_view parameter, std::span<const std::string_view> names,
         std::string_view name) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<T>(i);
    known.append(i == 0 ? "" : ", ").append(names[i]);
  }
  ThrowInvalid(parameter, ToText(name), known);
}

}  // namespace

std::string_view Name(DrawMethod method) { return NameOf(kDrawMethods, method); }
std::string_view Name(DraftMode mode) { return NameOf(kDraftModes, mode); }
std::string_view Name(LogprobMode mode) { return NameOf(kLogprobModes, mode); }

DrawMethod DrawMethodByName(std::string_view name) {
  return ByName<DrawMethod>("draw_method", kDrawMethods, name);
}
DraftMode DraftModeByName(std::string_view name) {
  return ByName<DraftMode>("draft_mode", kDraftModes, name);
}
LogprobMode LogprobModeByName(std::string_view name) {
  return ByName<LogprobMode>("logprob_mode", kLogprobModes, name);
}

void Validate(const SamplingParams& params, int64_t vocab, const Limits& limits) {
  CheckParam("temperature", params.temperature,
             {0, static_cast<double>(limits.max_temperature), false});
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  CheckParam(#name, params.name, range);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  CheckParam(#name, params.name, range);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  if (params.name.has_value()) CheckParam(#name, *params.name, range);
#include "sluice/params.def"

  if (params.logprobs.has_value()) CheckInRange("logprobs", *params.logprobs, -1, vocab);
  CheckInRange("draw_method", static_cast<int64_t>(params.draw_method), 0, 1);
  CheckInRange("draft_mode", static_cast<int64_t>(params.draft_mode), 0, 1);
  CheckInRange("logprob_mode", static_cast<int64_t>(params.logprob_mode), 0, 3);
  CheckIds("dry_sequence_breakers", params.dry_sequence_breakers, vocab);
  CheckIds("stop_token_ids", params.stop_token_ids, vocab);
  for (const BiasEntry& entry : params.logit_bias) {
    CheckInRange("logit_bias", entry.id, 0, vocab - 1);
    if (entry.bias != entry.bias) ThrowInvalid("logit_bias", "nan", "a number");
  }
  if (params.allowed_token_ids.has_value()) {
    if (params.allowed_token_ids->empty()) {
      ThrowInvalid("allowed_token_ids", "an empty list", "at least one token id");
    }
    CheckIds("allowed_token_ids", *params.allowed_token_ids, vocab);
  }
  for (const auto& word : params.bad_words) {
    if (word.empty()) ThrowInvalid("bad_words", "an empty word", "at least one token id a word");
    CheckIds("bad_words", word, vocab);
  }
}

Profile ProfileByName(std::string_view name) {
  std::string known;
  for (const NamedProfile& named : kProfiles) {
    if (named.name == name) return named.profile;
    known.append(known.empty() ? "" : ", ").append(named.name);
  }
  ThrowInvalid("profile", ToText(name), known);
}

}  // namespace sluice
