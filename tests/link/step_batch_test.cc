// What a step gave is kept, row for row, while the engine goes on, and written as those rows are.
#include "link/wire/step_batch.h"

#include <gtest/gtest.h>

#include "link/wire/wire.h"
#include "tests/link/frames.h"

namespace sluice::test {
namespace {

using namespace std::string_literals;

using link::FrameHead;
using link::FrameType;
using link::LinkId;
using link::StepBatch;

// The cache lines that go from core to core with each row.
static_assert(sizeof(StepBatch::Row) <= 40);

LinkId LinkOf(ClientId client) { return {client.slot, 100 + client.generation}; }

std::vector<EngineOutput> Outputs(std::span<const OutputRow> rows) {
  std::vector<EngineOutput> outputs;
  for (const OutputRow& row : rows) {
    const auto number = static_cast<uint32_t>(outputs.size());
    outputs.push_back({{static_cast<int32_t>(number % 3), number % 2}, row});
  }
  return outputs;
}

TEST(StepBatch, KeepsEveryFieldOfEveryRowAndWhoseItIs) {
  RandomFrames frames(11);
  StepBatch batch;  // used again: nothing of the last step may stay
  for (int round = 0; round < 1000; ++round) {
    const std::span<const OutputRow> rows = frames.Rows(frames.random().Below(10));
    const std::vector<EngineOutput> outputs = Outputs(rows);
    batch.Take(outputs, LinkOf);
    ASSERT_EQ(batch.rows().size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(IsSame(batch.Whole(batch.rows()[i]), rows[i])) << i;
      ASSERT_EQ(batch.rows()[i].link(), LinkOf(outputs[i].client));
      const OutputRow kept = batch.Whole(batch.rows()[i]);
      EXPECT_TRUE(kept.ids.empty() || kept.ids.data() != rows[i].ids.data());
    }
  }
}

TEST(StepBatch, IsWrittenAsItsRowsAre) {
  RandomFrames frames(12);
  StepBatch batch;
  std::string of_batch;
  std::string of_rows;
  for (int round = 0; round < 1000; ++round) {
    const std::span<const OutputRow> rows = frames.Rows(frames.random().Below(10));
    batch.Take(Outputs(rows), LinkOf);
    batch.step = round;
    batch.time_ns = 1000 + round;
    std::vector<uint32_t> numbers;
    std::vector<OutputRow> chosen;
    for (uint32_t i = 0; i < rows.size(); ++i) {
      if (frames.random().Coin()) continue;
      numbers.push_back(i);
      chosen.push_back(rows[i]);
    }
    const FrameHead head = frames.Head(FrameType::kOutput);
    WriteOutput(head, batch, numbers, of_batch);
    link::WriteOutput(head, round, 1000 + round, chosen, of_rows);
    ASSERT_EQ(of_batch, of_rows);
  }
}

// Each number in the fewest bytes that MessagePack has for it.
TEST(StepBatch, APlainRowIsAsShortAsItCanBe) {
  const auto row = [](int32_t slot, uint32_t generation, int64_t first, int32_t id) {
    std::string bytes;
    const OutputRow output = {.address = {slot, generation}, .first_token = first, .ids = {&id, 1}};
    link::WriteOutput({FrameType::kOutput, 0, 0}, 0, 0, {&output, 1}, bytes);
    return bytes.substr(7);  // type, array, epoch, number, step, time, array
  };
  EXPECT_EQ(row(0, 1, 127, 5), "\x94\x00\x01\x7f\x91\x05"s);
  EXPECT_EQ(row(128, 255, 256, 65535), "\x94\xcc\x80\xcc\xff\xcd\x01\x00\x91\xcd\xff\xff"s);
  EXPECT_EQ(row(65536, UINT32_MAX, int64_t{1} << 32, INT32_MAX),
            "\x94\xce\x00\x01\x00\x00\xce\xff\xff\xff\xff\xcf\x00\x00\x00\x01\x00\x00\x00\x00"
            "\x91\xce\x7f\xff\xff\xff"s);
  EXPECT_EQ(row(-1, 0, 0, -33), "\x94\xff\x00\x00\x91\xd0\xdf"s);
}

}  // namespace
}  // namespace sluice::test
