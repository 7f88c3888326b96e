// The C structs follow params.def: every parameter, its type and its default. Layouts and values of
// constants are asserted where they are relied on, in src/capi/layout.h.
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "sluice/sluice.h"
#include "sluice/sluice.hpp"

namespace sluice::test {
namespace {

constexpr sluice_select_params SelectDefaults() {
  sluice_select_params params = {};
  params.top_k = 99;  // the function must write everything
  sluice_select_params_init(&params);
  return params;
}

constexpr sluice_sampling_params SamplingDefaults() {
  sluice_sampling_params params = {};
  params.has_seed = true;
  params.draft_mode = 1;
  sluice_sampling_params_init(&params);
  return params;
}

constexpr sluice_select_params kSelect = SelectDefaults();
constexpr sluice_sampling_params kSampling = SamplingDefaults();

#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help)                   \
  static_assert(std::is_same_v<decltype(kSelect.name), decltype(SelectParams{}.name)>);     \
  static_assert(std::is_same_v<decltype(kSampling.name), decltype(SamplingParams{}.name)>); \
  static_assert(kSelect.name == SelectParams{}.name);                                       \
  static_assert(kSampling.name == SelectParams{}.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  static_assert(std::is_same_v<decltype(kSampling.name), type>);           \
  static_assert(kSampling.name == default_value);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help)     \
  static_assert(std::is_same_v<decltype(kSampling.name), type>); \
  static_assert(std::is_same_v<decltype(kSampling.has_##name), bool> && !kSampling.has_##name);
#include "sluice/params.def"

// A profile is six switches, all 0 unless said.
constexpr bool IsDefault(const sluice_profile& p) {
  return p.ties == 0 && p.top_k_top_p == 0 && p.min_p_stage == 0 && p.top_p_boundary == 0 &&
         p.penalty_scope == 0 && p.temperature_stage == 0;
}
constexpr bool IsDefault(uint8_t choice) { return choice == 0; }
constexpr bool IsFirst(const Profile& profile) { return profile == Profile{}; }
template <typename Enum>
constexpr bool IsFirst(Enum choice) {
  return static_cast<int>(choice) == 0;
}
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  static_assert(sizeof(kSampling.name) == sizeof(type));           \
  static_assert(IsDefault(kSampling.name) && IsFirst(default_value));
#define SLUICE_LIST_PARAM(type, name, json, help) \
  static_assert(kSampling.name.data == nullptr && kSampling.name.count == 0);
#include "sluice/params.def"
static_assert(!kSampling.allowed_token_ids.has_value);
static_assert(IsDefault(kSelect.profile));

constexpr auto InitOf(auto init, auto value) {
  init(&value);
  return value;
}
static_assert(InitOf(sluice_limits_init, sluice_limits{}).max_temperature ==
              Limits{}.max_temperature);
static_assert(InitOf(sluice_select_input_init, sluice_select_input{}).limits.max_temperature ==
              Limits{}.max_temperature);
static_assert(InitOf(sluice_shard_input_init, sluice_shard_input{}).limits.max_temperature ==
              Limits{}.max_temperature);
static_assert(InitOf(sluice_drafts_init, sluice_drafts{}).model.limits.max_temperature ==
              Limits{}.max_temperature);
static_assert(InitOf(sluice_topk_input_init, sluice_topk_input{}).next_n == TopkInput{}.next_n);
constexpr auto kRequest = InitOf(sluice_request_init, sluice_request{});
static_assert(kRequest.max_new_tokens == Request{}.max_new_tokens && kRequest.choice == 0);
static_assert(kRequest.params.top_p == 1.0f);
constexpr auto kStep = InitOf(sluice_step_request_init, sluice_step_request{});
static_assert(kStep.forced == StepRequest{}.forced);
static_assert(kStep.request.slot == RequestHandle{}.slot && kStep.request.generation == 0);
static_assert(kStep.draft_model.limits.max_temperature == Limits{}.max_temperature);
constexpr auto kOptions = InitOf(sluice_sampler_options_init, sluice_sampler_options{});
static_assert(kOptions.abi_version == SLUICE_ABI_VERSION);
static_assert(kOptions.max_requests == SamplerOptions{}.max_requests);
static_assert(kOptions.limits.max_temperature == Limits{}.max_temperature);
static_assert(kOptions.parallel.workers == 1 && kOptions.parallel.run == nullptr);
constexpr auto kExecution = InitOf(sluice_execution_init, sluice_execution{});
static_assert(kExecution.abi_version == SLUICE_ABI_VERSION && kExecution.parallel.workers == 1);
static_assert(kExecution.workspace == nullptr && kExecution.work == nullptr);

TEST(CInfo, VersionsAndNames) {
  EXPECT_EQ(sluice_abi_version(), uint32_t{SLUICE_ABI_VERSION});
  EXPECT_EQ(sluice_version(), kVersionString);
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    EXPECT_EQ(sluice_row_status_name(byte), Name(static_cast<RowStatus>(value)));
    EXPECT_EQ(sluice_dtype_name(byte), Name(static_cast<DType>(value)));
  }
}

TEST(CInfo, ListsWhatCppLists) {
  ASSERT_EQ(sluice_backend_count(), Backends().size());
  for (size_t i = 0; i < Backends().size(); ++i) {
    sluice_backend_info info;
    ASSERT_EQ(sluice_backend_at(i, &info), SLUICE_OK);
    EXPECT_EQ(info.backend, static_cast<uint8_t>(Backends()[i].backend));
    EXPECT_EQ(info.available, Backends()[i].available);
    EXPECT_EQ(info.name, Backends()[i].name);
    EXPECT_EQ(info.reason, Backends()[i].reason);
    sluice_backend backend = 99;
    ASSERT_EQ(sluice_backend_by_name(info.name, &backend), SLUICE_OK);
    EXPECT_EQ(backend, info.backend);
  }
  ASSERT_EQ(sluice_algorithm_count(), SelectAlgorithms().size());
  for (size_t i = 0; i < SelectAlgorithms().size(); ++i) {
    sluice_algorithm_info info;
    ASSERT_EQ(sluice_algorithm_at(i, &info), SLUICE_OK);
    EXPECT_EQ(info.algorithm, static_cast<uint8_t>(SelectAlgorithms()[i].algorithm));
    EXPECT_EQ(info.name, SelectAlgorithms()[i].name);
    EXPECT_EQ(info.when_to_use, SelectAlgorithms()[i].when_to_use);
    EXPECT_EQ(info.limits, SelectAlgorithms()[i].limits);
    EXPECT_EQ(info.source, SelectAlgorithms()[i].source);
    sluice_algorithm algorithm = 99;
    ASSERT_EQ(sluice_algorithm_by_name(info.name, &algorithm), SLUICE_OK);
    EXPECT_EQ(algorithm, info.algorithm);
  }
  ASSERT_EQ(sluice_profile_count(), std::size(kProfiles));
  for (size_t i = 0; i < std::size(kProfiles); ++i) {
    const char* name = nullptr;
    ASSERT_EQ(sluice_profile_name_at(i, &name), SLUICE_OK);
    EXPECT_EQ(name, kProfiles[i].name);
    sluice_profile profile;
    ASSERT_EQ(sluice_profile_by_name(name, &profile), SLUICE_OK);
    EXPECT_EQ(std::memcmp(&profile, &kProfiles[i].profile, sizeof profile), 0);
  }
}

}  // namespace
}  // namespace sluice::test
