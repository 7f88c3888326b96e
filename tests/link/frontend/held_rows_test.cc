// What waits for credits goes out whole, in order, and in frames of a size.
#include "link/frontend/held_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "link/wire/wire.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

using link::HeldRows;

// A request's rows, made up or put together again.
struct Whole {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  std::vector<int32_t> logprob_ids;
  std::vector<float> logprob_values;
  GenerationEnd end = GenerationEnd::kNone;
  std::string message;

  void Add(const OutputRow& row) {
    EXPECT_EQ(row.first_token, std::ssize(ids));
    EXPECT_EQ(end, GenerationEnd::kNone) << "a row behind the end";
    EXPECT_EQ(row.logprobs.size(), row.logprob_width == 0 ? 0 : row.ids.size());
    EXPECT_EQ(row.logprob_ids.size(), row.ids.size() * static_cast<size_t>(row.logprob_width));
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    logprobs.insert(logprobs.end(), row.logprobs.begin(), row.logprobs.end());
    ranks.insert(ranks.end(), row.ranks.begin(), row.ranks.end());
    logprob_ids.insert(logprob_ids.end(), row.logprob_ids.begin(), row.logprob_ids.end());
    logprob_values.insert(logprob_values.end(), row.logprob_values.begin(),
                          row.logprob_values.end());
    end = row.end;
    message = row.message;
  }
  friend bool operator==(const Whole&, const Whole&) = default;
};

// A step's tokens of one request.
struct Step {
  Step(int32_t slot, const Whole& before, int32_t width, int64_t tokens, Random& random) {
    row.address = {slot, 1};
    row.first_token = std::ssize(before.ids);
    row.logprob_width = width;
    const auto number = [&] { return static_cast<int32_t>(random.Below(1 << 20)); };
    for (int64_t i = 0; i < tokens; ++i) {
      whole.ids.push_back(number());
      if (width == 0) continue;
      whole.logprobs.push_back(static_cast<float>(number()));
      whole.ranks.push_back(number());
      for (int32_t k = 0; k < width; ++k) {
        whole.logprob_ids.push_back(number());
        whole.logprob_values.push_back(static_cast<float>(number()));
      }
    }
    row.ids = whole.ids;
    row.logprobs = whole.logprobs;
    row.ranks = whole.ranks;
    row.logprob_ids = whole.logprob_ids;
    row.logprob_values = whole.logprob_values;
  }
  Whole whole;
  OutputRow row;
};

TEST(HeldRows, GoOutWholeAndInOrderInFramesOfASize) {
  constexpr int32_t kSlots = 6;
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    HeldRows held(kSlots);
    std::vector<Whole> given(kSlots);
    std::map<int32_t, Whole> taken;
    std::vector<int32_t> widths;
    for (int slot = 0; slot < kSlots; ++slot) {
      widths.push_back(static_cast<int32_t>(random.Coin() ? 0 : random.Below(5)));
    }
    const size_t most = static_cast<size_t>(random.Between(1, 3000));
    const auto take = [&] {
      const std::span<const OutputRow> rows = held.Next(most);
      ASSERT_FALSE(rows.empty());
      std::string frame;
      link::WriteOutput({link::FrameType::kOutput, 0, 0}, 0, 0, rows, frame);
      // A row of one token goes out, however long.
      EXPECT_TRUE(rows.size() + rows[0].ids.size() <= 2 || frame.size() <= most + 16);
      for (const OutputRow& row : rows) taken[row.address.slot].Add(row);
      held.DropNext();
    };
    for (int step = 0; step < 40; ++step) {
      const auto slot = static_cast<int32_t>(random.Below(kSlots));
      Whole& whole = given[static_cast<size_t>(slot)];
      if (whole.end != GenerationEnd::kNone) continue;
      Step next(slot, whole, widths[static_cast<size_t>(slot)], random.Below(30), random);
      if (random.Coin(0.1)) {
        next.row.end = GenerationEnd::kStatus;
        next.row.message = "why";
      }
      if (next.row.ids.empty() && next.row.end == GenerationEnd::kNone) continue;
      held.Add(next.row);
      whole.Add(next.row);
      if (random.Coin(0.2)) take();
    }
    while (!held.IsEmpty()) take();
    EXPECT_EQ(held.tokens(), 0);
    for (const auto& [slot, whole] : taken) {
      EXPECT_EQ(whole, given[static_cast<size_t>(slot)]) << slot;
    }
    for (size_t slot = 0; slot < kSlots; ++slot) {
      const bool is_empty = given[slot] == Whole();
      EXPECT_EQ(taken.contains(static_cast<int32_t>(slot)), !is_empty);
    }
  }
}

// A frame is not cut smaller than it must be: every message costs a credit.
TEST(HeldRows, FillTheirFrames) {
  Random random(2);
  HeldRows held(4);
  for (int32_t slot = 0; slot < 4; ++slot) held.Add(Step(slot, {}, 0, 1000, random).row);
  EXPECT_EQ(held.Next(size_t{1} << 20).size(), 4u);
  int frames = 0;
  for (; !held.IsEmpty(); held.DropNext(), ++frames) held.Next(5 * 1000 + 200);
  EXPECT_EQ(frames, 4);
}

}  // namespace
}  // namespace sluice::test
