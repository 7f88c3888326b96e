// Processors that do the same to a row on the host and on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

#include "semantics/host_device.h"
#include "sluice/cuda/sampler.hpp"
#include "tests/support/random.h"

namespace sluice::test {

// What becomes of a token depends on those before it, and none of the ways can change places with
// another one.
struct TestProcessor {
  enum class Way { kAdd, kScale, kMask, kRaise, kSpoil };

  Way way = Way::kAdd;
  uint32_t salt = 0;
  bool argmax_invariant = false;  // in truth none of them is

  // token(i): of `count` before the row.
  template <typename Token>
  SLUICE_HD float operator()(Token token, int64_t count, int64_t prompt_length, int32_t id,
                             float x) const {
    uint32_t mixed = salt + static_cast<uint32_t>(prompt_length);
    for (int64_t i = count > 3 ? count - 3 : 0; i < count; ++i) {
      mixed = mixed * 31 + static_cast<uint32_t>(token(i));
    }
    const uint32_t of_id = (mixed + static_cast<uint32_t>(id)) * 2654435761u >> 16;
    switch (way) {
      case Way::kAdd:
        return x + static_cast<float>(of_id % 8);
      case Way::kScale:
        return x * (of_id % 2 == 0 ? 0.75f : 1.25f);
      case Way::kMask:
        return of_id % 3 == 0 ? -INFINITY : x;
      case Way::kRaise:  // above all others
        return id == static_cast<int32_t>(mixed % 5) ? 100.0f : x;
      case Way::kSpoil:
        return mixed % 4 > 1 || of_id % 5 != 0 ? x : mixed % 4 == 0 ? INFINITY : NAN;
    }
    return x;
  }

  LogitsProcessor OnHost() { return {this, Apply, argmax_invariant}; }
  cuda::DeviceLogitsProcessor OnDevice() { return {this, Enqueue, argmax_invariant}; }

 private:
  static void Apply(void* self, std::span<const int32_t> tokens, size_t prompt_length,
                    std::span<float> logits) {
    const auto token = [&](int64_t i) { return tokens[static_cast<size_t>(i)]; };
    for (size_t id = 0; id < logits.size(); ++id) {
      logits[id] = (*static_cast<TestProcessor*>(self))(token, std::ssize(tokens),
                                                        static_cast<int64_t>(prompt_length),
                                                        static_cast<int32_t>(id), logits[id]);
    }
  }
  static void Enqueue(void* self, const cuda::ProcessorRows& rows, void* stream);
};

// The drafts before each row of a request, few enough for an argument.
struct DraftPaths {
  static constexpr int64_t kMost = 8;

  explicit DraftPaths(const cuda::ProcessorRows& rows) {
    const int64_t drafts = rows.logits.rows - 1;
    if (drafts > kMost) throw std::runtime_error("too many drafts for this test");
    for (int64_t d = 0; d < drafts; ++d) {
      const int64_t before =
          rows.parents.empty() ? d : rows.parents[static_cast<size_t>(d)] + int64_t{1};
      std::copy_n(draft[before], depth[before], draft[d + 1]);
      draft[d + 1][depth[before]] = static_cast<int32_t>(d);
      depth[d + 1] = depth[before] + 1;
    }
  }

  int32_t depth[kMost + 1] = {};
  int32_t draft[kMost + 1][kMost] = {};
};

inline std::vector<TestProcessor> RandomProcessors(Random& random) {
  std::vector<TestProcessor> processors;
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    processors.push_back({static_cast<TestProcessor::Way>(random.Below(5)),
                          static_cast<uint32_t>(random.Bits()), random.Coin(0.4)});
  }
  return processors;
}

}  // namespace sluice::test
