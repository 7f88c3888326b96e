// The adjustments of a request, with memory of their own, and its logits after them.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "adjust/adjust_table.h"
#include "tests/support/backends.h"
#include "tests/support/batch.h"

namespace sluice::test {

using Values = std::vector<float>;
using Ids = std::vector<int32_t>;
using Words = std::vector<Ids>;

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// AdjustInput with memory of its own.
struct Request {
  std::vector<int32_t> bitmask = {};
  bool has_allowed = false;
  Ids allowed = {};
  Words bad_words = {};
  Ids stop_ids = {};
  int32_t min_tokens = 0;
  std::vector<BiasEntry> bias = {};
  semantics::Penalties penalties = {};
  PenaltyScope scope = PenaltyScope::kOutput;
  semantics::Dry dry = {};
  Ids breakers = {};
  Ids prompt = {};
  Ids output = {};
};

class AdjustTest : public BackendTest {
 protected:
  // The values (exact in every dtype) after stages 3 to 8.
  Values Adjusted(const Values& values, const Request& request, int32_t forced = -1) const {
    Ids tokens = request.prompt;
    tokens.insert(tokens.end(), request.output.begin(), request.output.end());
    std::map<int32_t, semantics::TokenCount> counted;
    for (size_t i = 0; i < tokens.size(); ++i) {
      semantics::TokenCount& count = counted[tokens[i]];
      count.id = tokens[i];
      ++(i < request.prompt.size() ? count.in_prompt : count.in_output);
    }
    std::vector<semantics::TokenCount> counts;
    counts.reserve(counted.size());
    for (const auto& [id, count] : counted) counts.push_back(count);
    Ids word_ids;
    Ids word_offsets = {0};
    for (const Ids& word : request.bad_words) {
      word_ids.insert(word_ids.end(), word.begin(), word.end());
      word_offsets.push_back(static_cast<int32_t>(word_ids.size()));
    }
    semantics::AdjustInput input;
    input.bitmask = request.bitmask.empty() ? nullptr : request.bitmask.data();
    input.has_allowed_ids = request.has_allowed;
    input.allowed_ids = request.allowed;
    input.bad_words = {word_ids, word_offsets};
    input.stop_ids = request.stop_ids;
    input.min_tokens = request.min_tokens;
    input.bias = request.bias;
    input.penalties = request.penalties;
    input.penalty_scope = request.scope;
    input.dry = request.dry;
    input.dry.breakers = request.breakers;
    input.tokens = tokens;
    input.prompt_length = request.prompt.size();
    input.counts = counts;
    std::vector<uint32_t> dry_workspace(tokens.size());
    input.dry_workspace = dry_workspace;

    const Batch batch({values}, dtype());
    const AdjustTable& table = AdjustTableFor(backend());
    Values x(values.size());
    table.widen(batch.view().Row(0), dtype(), x);
    table.adjust(x, input);
    if (forced >= 0) table.force(x, forced);
    return x;
  }
};

}  // namespace sluice::test
