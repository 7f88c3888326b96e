// The sampler for llama.cpp selects what Sluice samples, from candidates as chains leave them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/llama_cpp/sluice_sampler.h"
#include "tests/support/random.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr int32_t kVocab = 500;
constexpr uint64_t kSeed = 0x123456789abcdef0;

struct Free {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPointer = std::unique_ptr<llama_sampler, Free>;

sluice_select_params Params(float temperature, int32_t top_k, float top_p, float min_p) {
  sluice_select_params params;
  sluice_select_params_init(&params);
  EXPECT_EQ(sluice_profile_by_name("llamacpp", &params.profile), SLUICE_OK);
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

std::vector<sluice_select_params> AllParams() {
  return {Params(1, 0, 1, 0), Params(0, 0, 1, 0), Params(0.8f, 40, 0.95f, 0.05f),
          Params(1.5f, 7, 0.5f, 0), Params(3, 0, 0.9f, 0.1f)};
}

SamplerPointer Make(const sluice_select_params& params) {
  SamplerPointer sampler(llama_sampler_init_sluice(kVocab, &params, kSeed));
  EXPECT_NE(sampler, nullptr) << sluice_last_error();
  return sampler;
}

std::vector<llama_token_data> CandidatesOf(const std::vector<float>& row) {
  std::vector<llama_token_data> candidates;
  for (size_t id = 0; id < row.size(); ++id) {
    candidates.push_back({static_cast<llama_token>(id), row[id], 0});
  }
  return candidates;
}

// The id that the sampler selects; -1 when it selects nothing.
llama_token Selected(llama_sampler* sampler, std::vector<llama_token_data> candidates) {
  llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
  llama_sampler_apply(sampler, &array);
  if (array.selected < 0) return -1;
  EXPECT_LT(static_cast<size_t>(array.selected), array.size);
  return array.data[array.selected].id;
}

// The same from the reference backend of the C++ library.
llama_token SampledToken(const std::vector<float>& row, const sluice_select_params& params,
                         uint32_t position) {
  SelectParams select;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) select.name = params.name;
#include "sluice/params.def"
  select.profile = ProfileByName("llamacpp");
  const NoiseKey key = {kSeed, position};
  const auto vocab = static_cast<int64_t>(row.size());
  const LogitsView logits = {row.data(), 1, vocab, vocab, DType::kF32};
  return Sampled({logits, {&select, 1}, {&key, 1}, {.max_temperature = 3}})[0].id;
}

template <typename Body>
void ForEachRow(Body body) {
  Random random(3);
  for (const RowKind kind : kAllRowKinds) {
    SCOPED_TRACE(Name(kind));
    body(MakeRow(kind, kVocab, random));
  }
}

TEST(LlamaSampler, SelectsTheTokenThatSampleGives) {
  // [chain]
  sluice_select_params params;
  sluice_select_params_init(&params);
  sluice_profile_by_name("llamacpp", &params.profile);
  params.top_k = 40, params.top_p = 0.95f, params.min_p = 0.05f, params.temperature = 0.8f;
  llama_sampler* sampler = llama_sampler_init_sluice(/*n_vocab=*/kVocab, &params, /*seed=*/42);
  // [chain]
  ASSERT_NE(sampler, nullptr);
  EXPECT_EQ(std::string(llama_sampler_name(sampler)), "sluice");
  llama_sampler_free(sampler);

  for (const sluice_select_params& each : AllParams()) {
    ForEachRow([&](const std::vector<float>& row) {
      const SamplerPointer one = Make(each);
      for (uint32_t position = 0; position < 5; ++position) {
        const llama_token token = Selected(one.get(), CandidatesOf(row));
        EXPECT_EQ(token, SampledToken(row, each, position));
        EXPECT_EQ(std::string(llama_sampler_sluice_error(one.get())), "");
        llama_sampler_accept(one.get(), token);
      }
    });
  }
}

TEST(LlamaSampler, TheOrderOfCandidatesChangesNothing) {
  Random random(5);
  ForEachRow([&](const std::vector<float>& row) {
    for (const sluice_select_params& params : AllParams()) {
      std::vector<llama_token_data> candidates = CandidatesOf(row);
      for (size_t i = candidates.size(); i > 1; --i) {
        std::swap(candidates[i - 1],
                  candidates[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
      }
      EXPECT_EQ(Selected(Make(params).get(), candidates), SampledToken(row, params, 0));
    }
  });
}

TEST(LlamaSampler, DroppedCandidatesAreMasked) {
  ForEachRow([&](std::vector<float> row) {
    for (const sluice_select_params& params : AllParams()) {
      std::vector<llama_token_data> candidates = CandidatesOf(row);
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const auto& a, const auto& b) { return a.logit > b.logit; });
      for (size_t i = 9; i < candidates.size(); ++i) {
        row[static_cast<size_t>(candidates[i].id)] = -INFINITY;
      }
      candidates.resize(9);
      EXPECT_EQ(Selected(Make(params).get(), candidates), SampledToken(row, params, 0));
    }
  });
}

TEST(LlamaSampler, ForgetsCandidatesOfTheStepBefore) {
  const SamplerPointer sampler = Make(Params(0, 0, 1, 0));
  EXPECT_EQ(Selected(sampler.get(), {{7, 9.0f, 0}, {8, 1.0f, 0}}), 7);
  EXPECT_EQ(Selected(sampler.get(), {{8, 1.0f, 0}, {9, 0.5f, 0}}), 8);
}

TEST(LlamaSampler, ResetGoesBackToTheFirstToken) {
  Random random(6);
  const std::vector<float> row = MakeRow(RowKind::kFlat, kVocab, random);
  const sluice_select_params params = Params(1, 0, 1, 0);
  const SamplerPointer sampler = Make(params);
  for (int i = 0; i < 3; ++i) llama_sampler_accept(sampler.get(), 1);
  EXPECT_EQ(Selected(sampler.get(), CandidatesOf(row)), SampledToken(row, params, 3));
  llama_sampler_reset(sampler.get());
  EXPECT_EQ(Selected(sampler.get(), CandidatesOf(row)), SampledToken(row, params, 0));
}

TEST(LlamaSampler, ACloneGoesOnByItself) {
  Random random(7);
  const std::vector<float> row = MakeRow(RowKind::kFlat, kVocab, random);
  const sluice_select_params params = Params(1, 0, 1, 0);
  SamplerPointer sampler = Make(params);
  llama_sampler_accept(sampler.get(), 1);
  const SamplerPointer clone(llama_sampler_clone(sampler.get()));
  ASSERT_NE(clone, nullptr);
  llama_sampler_accept(clone.get(), 1);
  EXPECT_EQ(Selected(sampler.get(), CandidatesOf(row)), SampledToken(row, params, 1));
  sampler.reset();
  EXPECT_EQ(Selected(clone.get(), CandidatesOf(row)), SampledToken(row, params, 2));
}

TEST(LlamaSampler, CopiesStateWhereLlamaCppHasIt) {
  Random random(8);
  const std::vector<float> row = MakeRow(RowKind::kFlat, kVocab, random);
  const sluice_select_params params = Params(1, 0, 1, 0);
  const SamplerPointer from = Make(params);
  const SamplerPointer to = Make(params);
  for (int i = 0; i < 4; ++i) llama_sampler_accept(from.get(), 1);
  ASSERT_NE(to->iface->copy_state, nullptr);
  to->iface->copy_state(from.get(), to.get());
  EXPECT_EQ(Selected(to.get(), CandidatesOf(row)), SampledToken(row, params, 4));
}

TEST(LlamaSampler, SelectsNothingFromRowsThatCannotBeDrawnFrom) {
  const SamplerPointer sampler = Make(Params(1, 0, 1, 0));
  const auto expect_error = [&](std::vector<llama_token_data> candidates, const char* error) {
    EXPECT_EQ(Selected(sampler.get(), std::move(candidates)), -1);
    EXPECT_EQ(std::string(llama_sampler_sluice_error(sampler.get())), error);
  };
  expect_error({{3, NAN, 0}, {4, 1, 0}}, "nan_input");
  expect_error({{3, -INFINITY, 0}}, "empty_support");
  expect_error({}, "empty_support");
  expect_error({{kVocab, 1, 0}}, "a candidate is not of the vocabulary");
  expect_error({{-1, 1, 0}}, "a candidate is not of the vocabulary");
  EXPECT_EQ(Selected(sampler.get(), {{4, 1, 0}}), 4);
  EXPECT_EQ(std::string(llama_sampler_sluice_error(sampler.get())), "");
}

TEST(LlamaSampler, WrongParametersMakeNoSampler) {
  const sluice_select_params params = Params(1, 0, 1.5f, 0);
  EXPECT_EQ(llama_sampler_init_sluice(kVocab, &params, kSeed), nullptr);
  EXPECT_EQ(std::string(sluice_last_error()), "top_p = 1.5 is not allowed: (0, 1]");
  const sluice_select_params good = Params(1, 0, 1, 0);
  EXPECT_EQ(llama_sampler_init_sluice(0, &good, kSeed), nullptr);
}

}  // namespace
}  // namespace sluice::test
