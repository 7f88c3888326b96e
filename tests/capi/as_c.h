// C++ arguments as those of the C interface, so that a test can make both calls with the same.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <span>
#include <vector>

#include "sluice/sluice.h"
#include "sluice/sluice.hpp"

namespace sluice::test {

// A struct of the same layout.
template <typename C, typename Cpp>
C AsC(const Cpp& value) {
  return std::bit_cast<C>(value);
}

// The elements of a span or vector, as structs of the same layout.
template <typename C, typename Many>
auto DataAsC(Many&& many) {
  using Element = std::remove_reference_t<decltype(*std::data(many))>;
  using Result = std::conditional_t<std::is_const_v<Element>, const C, C>;
  static_assert(sizeof(Result) == sizeof(Element));
  return reinterpret_cast<Result*>(std::data(many));
}

inline sluice_execution AsC(const Execution& execution) {
  sluice_execution c;
  sluice_execution_init(&c);
  c.backend = static_cast<sluice_backend>(execution.backend);
  c.algorithm = static_cast<sluice_algorithm>(execution.algorithm);
  c.parallel = std::bit_cast<sluice_parallel_for>(execution.parallel);
  c.workspace = execution.workspace.data();
  c.workspace_bytes = execution.workspace.size();
  c.stream = execution.stream;
  c.work = DataAsC<sluice_select_work>(execution.work);
  c.work_count = execution.work.size();
  return c;
}

inline sluice_select_input AsC(const SelectInput& input) {
  sluice_select_input c;
  sluice_select_input_init(&c);
  c.logits = AsC<sluice_logits_view>(input.logits);
  c.params = DataAsC<sluice_select_params>(input.params);
  c.param_count = input.params.size();
  c.keys = DataAsC<sluice_noise_key>(input.keys);
  c.key_count = input.keys.size();
  c.limits = AsC<sluice_limits>(input.limits);
  return c;
}

inline sluice_drafts AsC(const Drafts& drafts) {
  sluice_drafts c;
  sluice_drafts_init(&c);
  c.first_row = drafts.first_row.data();
  c.first_row_count = drafts.first_row.size();
  c.ids = drafts.ids.data();
  c.id_count = drafts.ids.size();
  c.probabilities = AsC<sluice_matrix_view>(drafts.probabilities);
  c.model = AsC(drafts.model);
  c.model_cuts = DataAsC<sluice_cut>(drafts.model_cuts);
  c.model_cut_count = drafts.model_cuts.size();
  return c;
}

inline sluice_topk_input AsC(const TopkInput& input) {
  sluice_topk_input c;
  sluice_topk_input_init(&c);
  c.scores = AsC<sluice_logits_view>(input.scores);
  c.k = input.k;
  c.lengths = input.lengths.data();
  c.length_count = input.lengths.size();
  c.next_n = input.next_n;
  c.hint = input.hint.data();
  c.hint_count = input.hint.size();
  c.hint_columns = input.hint_columns;
  c.hint_shift = input.hint_shift;
  c.sorted = input.sorted;
  c.thresholds = input.thresholds.data();
  c.threshold_count = input.thresholds.size();
  return c;
}

inline sluice_shard_input AsC(const ShardInput& input) {
  sluice_shard_input c;
  sluice_shard_input_init(&c);
  c.shards = DataAsC<sluice_shard>(input.shards);
  c.shard_count = input.shards.size();
  c.params = DataAsC<sluice_select_params>(input.params);
  c.param_count = input.params.size();
  c.keys = DataAsC<sluice_noise_key>(input.keys);
  c.key_count = input.keys.size();
  c.limits = AsC<sluice_limits>(input.limits);
  return c;
}

inline sluice_logprob_lists AsC(const LogprobLists& lists) {
  return {lists.width, lists.ids.data(), lists.ids.size(), lists.values.data(),
          lists.values.size()};
}

// Lists of a request point into this and into the C++ parameters: keep both.
struct CSamplingParams {
  sluice_sampling_params params;
  std::vector<sluice_token_ids> bad_words;

  explicit CSamplingParams(const SamplingParams& from) {
    sluice_sampling_params_init(&params);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) params.name = from.name;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) params.name = from.name;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  params.has_##name = from.name.has_value();                 \
  params.name = from.name.value_or(77);
#include "sluice/params.def"
    params.draw_method = static_cast<uint8_t>(from.draw_method);
    params.draft_mode = static_cast<uint8_t>(from.draft_mode);
    params.logprob_mode = static_cast<uint8_t>(from.logprob_mode);
    params.profile = AsC<sluice_profile>(from.profile);
    params.dry_sequence_breakers = Ids(from.dry_sequence_breakers);
    params.stop_token_ids = Ids(from.stop_token_ids);
    params.logit_bias = {DataAsC<sluice_bias_entry>(from.logit_bias), from.logit_bias.size()};
    if (from.allowed_token_ids.has_value()) {
      const sluice_token_ids ids = Ids(*from.allowed_token_ids);
      params.allowed_token_ids = {true, ids.data, ids.count};
    }
    for (const auto& word : from.bad_words) bad_words.push_back(Ids(word));
    params.bad_words = {bad_words.data(), bad_words.size()};
  }
  CSamplingParams(const CSamplingParams&) = delete;
  CSamplingParams& operator=(const CSamplingParams&) = delete;

 private:
  static sluice_token_ids Ids(const std::vector<int32_t>& ids) { return {ids.data(), ids.size()}; }
};

inline void ExpectOk(sluice_status status) {
  EXPECT_EQ(status, SLUICE_OK) << (status == SLUICE_OK ? "" : sluice_last_error());
}

}  // namespace sluice::test
