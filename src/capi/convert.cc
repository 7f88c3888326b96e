#include "capi/convert.h"

#include <string>

#include "capi/guard.h"
#include "support/check.h"

namespace sluice::capi {
namespace {

void CheckProfile(std::string_view parameter, const sluice_profile& profile) {
  auto check = [&](std::string_view field, uint8_t value) {
    if (value <= 1) return;
    CheckInRange(std::string(parameter).append(".").append(field), value, 0, 1);
  };
  check("ties", profile.ties);
  check("top_k_top_p", profile.top_k_top_p);
  check("min_p_stage", profile.min_p_stage);
  check("top_p_boundary", profile.top_p_boundary);
  check("penalty_scope", profile.penalty_scope);
  check("temperature_stage", profile.temperature_stage);
}

// One overload a kind of parameter; params.def has the kind of each.
template <typename Enum>
void Assign(std::string_view, Enum& to, uint8_t from) {
  to = static_cast<Enum>(from);
}
void Assign(std::string_view name, Profile& to, const sluice_profile& from) {
  CheckProfile(name, from);
  to = ToCpp(from);
}
void Assign(std::string_view name, TokenIds& to, const sluice_token_ids& from) {
  const auto ids = Elements(name, from.data, from.count);
  to.assign(ids.begin(), ids.end());
}
void Assign(std::string_view name, OptionalTokenIds& to, const sluice_optional_token_ids& from) {
  if (from.has_value) Assign(name, to.emplace(), {from.data, from.count});
}
void Assign(std::string_view name, TokenSequences& to, const sluice_token_sequences& from) {
  if (from.data == nullptr && from.count > 0) ThrowNull(name, "a pointer to the elements");
  for (size_t i = 0; i < from.count; ++i) Assign(name, to.emplace_back(), from.data[i]);
}
void Assign(std::string_view name, BiasEntries& to, const sluice_bias_entries& from) {
  const auto entries = Structs(name, from.data, from.count);
  to.assign(entries.begin(), entries.end());
}

// Sluice's step catches what this throws before it could reach the caller's parallel-for.
void ApplyProcessor(void* context, std::span<const int32_t> tokens, size_t prompt_length,
                    std::span<float> logits) {
  const auto& processor = *static_cast<const sluice_logits_processor*>(context);
  const int failure = processor.apply(processor.context, tokens.data(), tokens.size(),
                                      prompt_length, logits.data(), logits.size());
  if (failure != 0) throw CallbackFailed{"a logits processor returned " + std::to_string(failure)};
}

}  // namespace

void ThrowNull(std::string_view parameter, std::string_view allowed) {
  ThrowInvalid(parameter, "null", std::string(allowed));
}

void CheckAbi(std::string_view parameter, uint32_t abi_version) {
  if (abi_version == SLUICE_ABI_VERSION) return;
  throw Error(ErrorCode::kUnavailable, std::string(parameter).append(".abi_version"),
              ToText(int64_t{abi_version}),
              ToText(int64_t{SLUICE_ABI_VERSION}) +
                  ", that of the library; the struct's _init function stores the header's");
}

Execution ToExecution(const sluice_execution* execution) {
  const sluice_execution& c = Deref("execution", execution);
  CheckAbi("execution", c.abi_version);
  Execution result;
  result.backend = static_cast<Backend>(c.backend);
  result.parallel = ToCpp(c.parallel);
  const auto workspace =
      Elements("execution.workspace", static_cast<unsigned char*>(c.workspace), c.workspace_bytes);
  result.workspace = std::as_writable_bytes(workspace);
  result.stream = c.stream;
  result.algorithm = static_cast<SelectAlgorithm>(c.algorithm);
  result.work = Structs("execution.work", c.work, c.work_count);
  return result;
}

std::span<const SelectParams> ToSelectParams(std::string_view parameter,
                                             const sluice_select_params* params, size_t count) {
  const auto result = Structs(MemberName(parameter, "params"), params, count);
  for (size_t i = 0; i < count; ++i) {
    CheckProfile(MemberName(parameter, "params.profile"), params[i].profile);
  }
  return result;
}

std::span<const NoiseKey> ToNoiseKeys(std::string_view parameter, const sluice_noise_key* keys,
                                      size_t count) {
  const auto result = Structs(MemberName(parameter, "keys"), keys, count);
  for (size_t i = 0; i < count; ++i) {
    CheckInRange(MemberName(parameter, "keys.stream"), keys[i].stream, 0, 1);
  }
  return result;
}

SelectInput ToSelectInput(std::string_view parameter, const sluice_select_input& input) {
  return {ToCpp(input.logits), ToSelectParams(parameter, input.params, input.param_count),
          ToNoiseKeys(parameter, input.keys, input.key_count), ToCpp(input.limits)};
}

DenseHead ToDenseHead(const sluice_dense_head* head) {
  const sluice_dense_head& c = Deref("head", head);
  return {ToCpp(c.weight), Elements("head.bias", c.bias, c.bias_count)};
}

LogprobLists ToLogprobLists(std::string_view parameter, const sluice_logprob_lists& lists) {
  return {lists.width, Elements(MemberName(parameter, "ids"), lists.ids, lists.id_count),
          Elements(MemberName(parameter, "values"), lists.values, lists.value_count)};
}

std::vector<LogitsProcessor> ToProcessors(const sluice_logits_processor* processors, size_t count,
                                          std::vector<sluice_logits_processor>& copies) {
  if (processors == nullptr && count > 0) ThrowNull("processors", "a pointer to the elements");
  copies.assign(processors, processors + count);
  std::vector<LogitsProcessor> result;
  for (sluice_logits_processor& copy : copies) {
    result.push_back(
        {&copy, copy.apply == nullptr ? nullptr : &ApplyProcessor, copy.argmax_invariant});
  }
  return result;
}

SamplingParams ToSamplingParams(const sluice_sampling_params& params) {
  SamplingParams result;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) result.name = params.name;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  result.name = params.name;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  if (params.has_##name) result.name = params.name;
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  Assign(#name, result.name, params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) Assign(#name, result.name, params.name);
#include "sluice/params.def"
  return result;
}

}  // namespace sluice::capi
