// A Sampler's step with its buffers, and the same step written out from the definition.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "semantics/adjust/adjust.h"
#include "semantics/draw/draw.h"
#include "semantics/select_row.h"
#include "sluice/sampler.hpp"
#include "tests/support/params.h"
#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace sluice::test {

// Everything that a step can give.
struct Stepped {
  std::vector<TokenResult> tokens;
  std::vector<int32_t> emitted;
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<int32_t> kept;
  std::vector<CutMass> masses;
  std::vector<float> adjusted;  // vocab a row, 0 in the rows that were not looked at
  std::vector<int32_t> path;
};

template <typename AnySampler>
Stepped StepAll(AnySampler& sampler, const LogitsView& logits,
                std::span<const StepRequest> requests, int64_t width = 0) {
  const size_t rows = static_cast<size_t>(logits.rows);
  const size_t vocab = static_cast<size_t>(logits.vocab);
  Stepped out;
  out.tokens.resize(rows);
  out.emitted.resize(requests.size());
  out.ids.resize(rows * static_cast<size_t>(width));
  out.values.resize(rows * static_cast<size_t>(width));
  out.kept.resize(rows * ((vocab + 31) / 32));
  out.masses.resize(rows);
  out.adjusted.resize(rows * vocab);
  out.path.resize(rows);
  const MutableLogitsView adjusted{out.adjusted.data(), logits.rows, logits.vocab, logits.vocab};
  sampler.Step({logits, requests}, {.tokens = out.tokens,
                                    .emitted = out.emitted,
                                    .logprobs = {static_cast<int32_t>(width), out.ids, out.values},
                                    .kept = out.kept,
                                    .masses = out.masses,
                                    .adjusted = adjusted,
                                    .path = out.path});
  return out;
}

// One step, the tokens only: no adjusted values are asked for, so rows need not be copied.
template <typename AnySampler>
std::vector<TokenResult> StepTokens(AnySampler& sampler, const LogitsView& logits,
                                    std::span<const StepRequest> requests,
                                    std::vector<int32_t>* emitted = nullptr) {
  std::vector<TokenResult> tokens(static_cast<size_t>(logits.rows));
  std::vector<int32_t> counts(requests.size());
  sampler.Step({logits, requests}, {.tokens = tokens, .emitted = counts});
  if (emitted != nullptr) *emitted = counts;
  return tokens;
}

// Parameters with every adjustment on now and then. For small vocabularies, so that histories
// repeat themselves and words come about.
inline SamplingParams RandomSamplingParams(int64_t vocab, Random& random) {
  auto id = [&] { return static_cast<int32_t>(random.Below(vocab)); };
  auto one_of = [&](std::vector<float> values) { return random.Pick(values); };
  const SelectParams select = RandomSelectParams(vocab, random);
  SamplingParams params;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) params.name = select.name;
#include "sluice/params.def"
  params.profile = select.profile;
  if (random.Coin()) params.repetition_penalty = one_of({1.3f, 0.5f, 2.0f});
  if (random.Coin()) params.frequency_penalty = one_of({0.4f, -1.0f, 2.0f});
  if (random.Coin()) params.presence_penalty = one_of({0.6f, -0.5f, 2.0f});
  if (random.Coin(0.3)) params.min_tokens = static_cast<int32_t>(random.Below(4));
  if (random.Coin(0.4)) {
    params.dry_multiplier = one_of({0.8f, 5.0f});
    params.dry_allowed_length = static_cast<int32_t>(random.Between(1, 3));
    params.dry_range = random.Coin() ? -1 : static_cast<int32_t>(random.Below(12));
    params.dry_sequence_breakers = {id()};
  }
  for (int i = 0; i < 3 && random.Coin(); ++i) {
    params.logit_bias.push_back({id(), one_of({5.0f, -3.0f, 1000.0f})});
  }
  if (random.Coin(0.2)) params.allowed_token_ids = {{id(), id(), id(), id()}};
  for (int i = 0; i < 3 && random.Coin(); ++i) {
    params.bad_words.push_back({id()});
    if (random.Coin()) params.bad_words.back().push_back(id());
  }
  params.stop_token_ids = {id(), id()};
  params.seed = random.Bits();
  params.draw_method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
  if (random.Coin()) params.logprobs = static_cast<int32_t>(random.Below(6)) - 1;
  params.logprob_mode = static_cast<LogprobMode>(random.Below(4));
  return params;
}

// A request as the definition sees it: nothing is kept between tokens but the tokens.
struct LiteralRequest {
  SamplingParams params;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  uint32_t choice = 0;

  NoiseKey Key() const {
    return {*params.seed, static_cast<uint32_t>(prompt.size() + output.size()), choice};
  }

  // Calls with(input): what stages 3 to 8 look at, without a bitmask.
  template <typename With>
  void WithInput(const With& with) const {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    std::map<int32_t, semantics::TokenCount> by_id;
    for (size_t i = 0; i < tokens.size(); ++i) {
      semantics::TokenCount& count = by_id.try_emplace(tokens[i]).first->second;
      count.id = tokens[i];
      ++(i < prompt.size() ? count.in_prompt : count.in_output);
    }
    std::vector<semantics::TokenCount> counts;
    for (const auto& [id, count] : by_id) counts.push_back(count);

    semantics::AdjustInput in;
    std::vector<int32_t> allowed = params.allowed_token_ids.value_or(std::vector<int32_t>{});
    std::sort(allowed.begin(), allowed.end());
    allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
    in.has_allowed_ids = params.allowed_token_ids.has_value();
    in.allowed_ids = allowed;
    std::vector<int32_t> words;
    std::vector<int32_t> offsets = {0};
    for (const auto& word : params.bad_words) {
      words.insert(words.end(), word.begin(), word.end());
      offsets.push_back(static_cast<int32_t>(words.size()));
    }
    in.bad_words = {words, offsets};
    in.stop_ids = params.stop_token_ids;
    in.min_tokens = params.min_tokens;
    in.bias = params.logit_bias;
    in.penalties = {params.repetition_penalty, params.frequency_penalty, params.presence_penalty};
    in.penalty_scope = params.profile.penalty_scope;
    in.dry = {params.dry_multiplier, params.dry_base, params.dry_allowed_length, params.dry_range,
              params.dry_sequence_breakers};
    in.tokens = tokens;
    in.prompt_length = prompt.size();
    in.counts = counts;
    std::vector<uint32_t> dry_workspace(tokens.size());
    in.dry_workspace = dry_workspace;
    with(in);
  }

  // Stages 3 to 9.
  std::vector<float> Adjusted(std::vector<float> values, const int32_t* bitmask,
                              int32_t forced) const {
    WithInput([&](semantics::AdjustInput& in) {
      in.bitmask = bitmask;
      semantics::AdjustRow(values, in);
    });
    if (forced >= 0) semantics::ApplyForced(values, forced);
    return values;
  }

  // Stages 10 to 16.
  TokenResult Sampled(const std::vector<float>& adjusted, CutMass* mass = nullptr) const {
    const semantics::Row row{adjusted.data(), DType::kF32, static_cast<int64_t>(adjusted.size())};
    std::vector<semantics::Token> workspace(adjusted.size());
    const SelectParams select = params.Select();
    const auto selected = semantics::SelectRow(row, select, Key(), {}, workspace.data());
    TokenResult result;
    result.cut = selected.ToCut();
    result.status = selected.status;
    if (selected.status != RowStatus::kOk) return result;
    if (mass != nullptr) *mass = semantics::MassesOf(selected.sorted, select, selected.trace);
    result.id = semantics::DrawToken(row, result.cut, selected.sorted.Max(),
                                     semantics::ScalesOf(select).draw, params.draw_method, Key());
    return result;
  }
};

inline LiteralRequest RandomLiteralRequest(int64_t vocab, Random& random) {
  LiteralRequest request{RandomSamplingParams(vocab, random), {}, {}, 0};
  for (int64_t n = random.Below(12); n > 0; --n) {
    request.prompt.push_back(static_cast<int32_t>(random.Below(vocab)));
  }
  request.choice = static_cast<uint32_t>(random.Below(3));
  return request;
}

// Parents of `count` drafts: trees that are wide, deep, or anything between.
inline std::vector<int32_t> RandomParents(int64_t count, Random& random) {
  std::vector<int64_t> reaches = {1, 2, 5, count + 1};
  const int64_t nearest = random.Pick(reaches);
  std::vector<int32_t> parents;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t back = random.Between(1, std::min(nearest, i + 1));
    parents.push_back(static_cast<int32_t>(nearest == 2 && random.Coin(0.1) ? -1 : i - back));
  }
  return parents;
}

template <typename AnySampler>
RequestHandle AddTo(AnySampler& sampler, const LiteralRequest& request) {
  return sampler.Add(
      {.params = request.params, .prompt = request.prompt, .choice = request.choice});
}

// A bitmask for `rows` rows in which about a third of the tokens are forbidden.
inline std::vector<int32_t> RandomBitmask(int64_t vocab, int64_t rows, Random& random) {
  std::vector<int32_t> words(static_cast<size_t>(rows * ((vocab + 31) / 32)));
  for (int32_t& word : words) {
    word = static_cast<int32_t>(static_cast<uint32_t>(random.Bits() | random.Bits()));
  }
  return words;
}

}  // namespace sluice::test
