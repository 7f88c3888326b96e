// What calls on rows of logits share: the logits, the sampling parameters, the keys of the noise.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "python/execution.h"
#include "python/values/keywords.h"
#include "sluice/params.hpp"
#include "sluice/select.hpp"

namespace sluice::python {

namespace nb = nanobind;

inline constexpr Keywords kKeyKeywords = {Keyword::seed, Keyword::position, Keyword::choice,
                                          Keyword::stream};
// Those that only a Sampler can heed; known, so that the Error can say so.
inline constexpr Keywords kRowKeywords =
    kParamKeywords | kKeyKeywords | kExecutionKeywords | Keywords{Keyword::max_temperature};

// The parameters of `rows` rows: those of `params` (None, a SamplingParams, or a sequence of them,
// one a row), and the keywords on top, each a number or one a row.
class RowParams {
 public:
  RowParams(nb::handle params, const Arguments& arguments, int64_t rows);
  RowParams(const RowParams&) = delete;
  RowParams& operator=(const RowParams&) = delete;

  std::span<const SelectParams> select() const { return select_; }
  Limits limits() const { return limits_; }

  // What all rows share, from the keyword or else from the params. Throws when these disagree.
  DrawMethod draw_method() const { return draw_method_; }
  DraftMode draft_mode() const { return draft_mode_; }
  LogprobMode logprob_mode() const { return logprob_mode_; }
  std::optional<int32_t> logprobs() const { return logprobs_; }

  // The keys; empty when no seed was given.
  std::span<const NoiseKey> keys() const {
    return has_seeds_ ? std::span<const NoiseKey>(keys_) : std::span<const NoiseKey>{};
  }
  // The first row's, whether a seed was given or not.
  const NoiseKey& first_key() const { return keys_[0]; }
  // For draws: chooses random seeds when none was given, and returns those.
  std::vector<uint64_t> ChooseSeeds();
  // For calls that draw nothing but XTC's coin.
  void CheckSeeds() const;
  // From one element a request to one a row, positions counting up; request r has the rows
  // [first_row[r], first_row[r + 1]).
  void SpreadOver(std::span<const int64_t> first_row);

 private:
  void ReadParams(nb::handle params);
  void ReadSelect(const Arguments& arguments);
  void ReadKeys(const Arguments& arguments);

  int64_t rows_;
  bool has_seeds_ = false;

  // One element for all rows or one a row; the spans are of these, so they stay in place.
  SelectParams one_select_ = {};
  NoiseKey one_key_ = {};
  std::vector<SelectParams> many_select_;
  std::vector<NoiseKey> many_keys_;
  std::span<SelectParams> select_;
  std::span<NoiseKey> keys_;

  Limits limits_ = {};
  DrawMethod draw_method_ = DrawMethod::kGumbel;
  DraftMode draft_mode_ = DraftMode::kMatch;
  LogprobMode logprob_mode_ = LogprobMode::kRawLogprobs;
  std::optional<int32_t> logprobs_ = {};
};

inline SelectInput InputOf(const LogitsView& logits, const RowParams& params) {
  return {logits, params.select(), params.keys(), params.limits()};
}

}  // namespace sluice::python
