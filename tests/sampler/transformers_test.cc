// The profile `hf` keeps the tokens that Hugging Face transformers keeps. The cases were made by
// the package itself: tests/fixtures/make_transformers_fixtures.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "semantics/host_device.h"
#include "tests/support/run.h"

namespace sluice {
namespace {

struct Case {
  std::string name;
  SamplingParams params;
  std::vector<int32_t> seen;
  std::vector<float> logits;
  std::vector<int32_t> kept;
};

std::vector<int32_t> ReadIds(std::istringstream& words) {
  std::vector<int32_t> ids;
  for (int32_t id; words >> id;) ids.push_back(id);
  return ids;
}

Case ReadCase(std::istringstream& words) {
  Case made;
  words >> made.name;
  for (std::string key; words >> key && key != "seen";) {
    float value = 0.0f;
    words >> value;
    if (key == "temperature") made.params.temperature = value;
    if (key == "top_k") made.params.top_k = static_cast<int32_t>(value);
    if (key == "top_p") made.params.top_p = value;
    if (key == "min_p") made.params.min_p = value;
    if (key == "typical_p") made.params.typical_p = value;
    if (key == "repetition") made.params.repetition_penalty = value;
  }
  made.params.profile = ProfileByName("hf");
  made.seen = ReadIds(words);
  return made;
}

std::vector<Case> ReadCases(const std::string& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "case") cases.push_back(ReadCase(words));
    if (kind == "kept") cases.back().kept = ReadIds(words);
    if (kind == "logits") {
      for (std::string hex; words >> hex;) {
        const auto bits = static_cast<uint32_t>(std::strtoul(hex.c_str(), nullptr, 16));
        cases.back().logits.push_back(semantics::FloatOf(bits));
      }
    }
  }
  return cases;
}

std::vector<int32_t> KeptBySluice(const Case& made) {
  const int64_t vocab = static_cast<int64_t>(made.logits.size());
  Sampler sampler({.vocab = vocab});
  const StepRequest request{sampler.Add({.params = made.params, .prompt = made.seen})};
  TokenResult token;
  int32_t emitted = 0;
  std::vector<int32_t> bitmask(static_cast<size_t>((vocab + 31) / 32));
  sampler.Step({{made.logits.data(), 1, vocab, vocab}, {&request, 1}},
               {.tokens = {&token, 1}, .emitted = {&emitted, 1}, .kept = bitmask});
  std::vector<int32_t> kept;
  for (int32_t id = 0; id < vocab; ++id) {
    if (static_cast<uint32_t>(bitmask[static_cast<size_t>(id / 32)]) >> (id % 32) & 1u) {
      kept.push_back(id);
    }
  }
  return kept;
}

TEST(ProfileHf, KeepsWhatTransformersKeeps) {
  const std::vector<Case> cases = ReadCases(SLUICE_FIXTURES "/transformers.txt");
  ASSERT_EQ(cases.size(), 60u);
  for (const Case& made : cases) EXPECT_EQ(KeptBySluice(made), made.kept) << made.name;
}

// The fixtures tell the profiles apart: by default top-k keeps exactly k, and min-p comes first.
TEST(ProfileHf, DiffersFromTheDefaultWhereTiesAndMinPDo) {
  int differing_ties = 0;
  for (Case made : ReadCases(SLUICE_FIXTURES "/transformers.txt")) {
    made.params.profile = Profile{};
    if (made.name.starts_with("top_k_ties")) differing_ties += KeptBySluice(made) != made.kept;
  }
  EXPECT_GT(differing_ties, 0);
}

}  // namespace
}  // namespace sluice
