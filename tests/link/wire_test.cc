// What is written is read, to the bit; and what is not a frame is refused before it costs anything.
#include "link/wire/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/link/frames.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

using link::EngineFrame;
using link::FrameHead;
using link::FrameType;
using link::FrontendFrame;

constexpr int kRounds = 3000 / kSlowdown;

std::string Read(std::string_view bytes, FrontendFrame& frame) {
  return link::ReadFrontendFrame(bytes, frame);
}
std::string Read(std::string_view bytes, EngineFrame& frame) {
  return link::ReadEngineFrame(bytes, frame);
}

// From memory of exactly that size, so that a sanitizer sees what is read behind it.
template <typename Frame>
std::string ReadExact(std::string_view bytes, Frame& frame) {
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return Read({copy.get(), bytes.size()}, frame);
}

void ExpectSameHead(const FrameHead& a, const FrameHead& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.number, b.number);
}

TEST(Wire, KeepsEveryFieldOfARequest) {
  RandomFrames frames(1);
  std::string bytes;
  FrontendFrame read;  // used again: nothing of the last request may stay
  for (int i = 0; i < kRounds; ++i) {
    const FrameHead head = frames.Head(FrameType::kAdd);
    const EngineRequest request = frames.Request();
    link::WriteAdd(head, request, bytes);
    ASSERT_EQ(ReadExact(bytes, read), "");
    ExpectSameHead(read.head, head);
    ASSERT_EQ(read.request, request);
    ASSERT_EQ(Rewritten(read), bytes);  // -0 as well
  }
}

TEST(Wire, KeepsEveryFieldOfAnOutput) {
  RandomFrames frames(2);
  std::string bytes;
  EngineFrame read;
  for (int i = 0; i < kRounds; ++i) {
    const FrameHead head = frames.Head(FrameType::kOutput);
    const auto rows = frames.Rows(frames.random().Below(10));
    link::WriteOutput(head, i, 1000 + i, rows, bytes);
    ASSERT_EQ(ReadExact(bytes, read), "");
    ExpectSameHead(read.head, head);
    EXPECT_EQ(read.step, i);
    EXPECT_EQ(read.time_ns, 1000 + i);
    ASSERT_EQ(read.rows.size(), rows.size());
    for (size_t row = 0; row < rows.size(); ++row) ASSERT_TRUE(IsSame(read.rows[row], rows[row]));
    ASSERT_EQ(Rewritten(read), bytes);
  }
}

TEST(Wire, KeepsEveryFieldOfTheOthers) {
  RandomFrames frames(3);
  std::string bytes;
  FrontendFrame frontend;
  EngineFrame engine;
  for (int i = 0; i < kRounds; ++i) {
    const FrameHead head = frames.Head(FrameType::kHello);
    const link::Hello hello = frames.Hello();
    link::WriteHello(head, hello, bytes);
    ASSERT_EQ(ReadExact(bytes, frontend), "");
    ExpectSameHead(frontend.head, head);
    EXPECT_EQ(frontend.hello.protocol, link::kProtocol);
    EXPECT_EQ(frontend.hello.name, hello.name);
    EXPECT_EQ(frontend.hello.pid, hello.pid);
    EXPECT_EQ(frontend.hello.credits, hello.credits);

    const std::vector<RequestAddress> aborted = {frames.Address(), frames.Address()};
    link::WriteAbort(frames.Head(FrameType::kAbort), aborted, bytes);
    ASSERT_EQ(ReadExact(bytes, frontend), "");
    EXPECT_EQ(frontend.aborted, aborted);

    link::WriteCredit(frames.Head(FrameType::kCredit), hello.credits, bytes);
    ASSERT_EQ(ReadExact(bytes, frontend), "");
    EXPECT_EQ(frontend.credits, hello.credits);

    const link::Ready ready = frames.Ready();
    link::WriteReady(frames.Head(FrameType::kReady), ready, bytes);
    ASSERT_EQ(ReadExact(bytes, engine), "");
    EXPECT_EQ(engine.ready.info, ready.info);

    link::WriteReason(frames.Head(FrameType::kReset), hello.name, bytes);
    ASSERT_EQ(ReadExact(bytes, engine), "");
    EXPECT_EQ(engine.head.type, FrameType::kReset);
    EXPECT_EQ(engine.reason, hello.name);
  }
}

template <typename Frame, typename Make>
void ExpectEveryTruncationRefused(Make make) {
  Frame frame;
  for (int i = 0; i < 60; ++i) {
    const std::string bytes = make();
    if (bytes.size() > 4000) continue;  // quadratic
    for (size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_NE(ReadExact(bytes.substr(0, size), frame), "") << size << " of " << bytes.size();
    }
    EXPECT_NE(ReadExact(bytes + '\0', frame), "") << "a byte behind the frame";
  }
}

TEST(Wire, RefusesEveryTruncationAndWhatIsBehindAFrame) {
  RandomFrames frames(4);
  ExpectEveryTruncationRefused<FrontendFrame>([&] { return frames.FrontendFrame(); });
  ExpectEveryTruncationRefused<EngineFrame>([&] { return frames.EngineFrame(); });
}

// Another protocol's HELLO is read no further than to its number, so it is left alone here.
template <typename Frame>
bool IsForeign(const Frame& frame) {
  if constexpr (std::is_same_v<Frame, FrontendFrame>) {
    return frame.head.type == FrameType::kHello && frame.hello.protocol != link::kProtocol;
  } else {
    return frame.head.type == FrameType::kReady && frame.ready.protocol != link::kProtocol;
  }
}

// Takes a frame that reads to one that writes and reads back the same, or refuses it.
template <typename Frame>
void ExpectSound(const std::string& bytes, Frame& frame) {
  if (!ReadExact(bytes, frame).empty() || IsForeign(frame)) return;
  const std::string again = Rewritten(frame);
  ASSERT_LE(again.size(), bytes.size()) << "the shortest encoding";
  ASSERT_EQ(ReadExact(again, frame), "");
  ASSERT_EQ(Rewritten(frame), again);
}

template <typename Frame, typename Make>
void ExpectEveryCorruptionSound(Make make, Random& random) {
  Frame frame;
  for (int i = 0; i < 150 / kSlowdown; ++i) {
    std::string bytes = make();
    if (bytes.size() > 2000) continue;
    for (size_t at = 0; at < bytes.size(); ++at) {
      const char right = bytes[at];
      for (const int wrong : {0x00, 0x7f, 0x90, 0x9f, 0xa1, 0xc0, 0xca, 0xcf, 0xd3, 0xdb, 0xdd,
                              0xff, static_cast<int>(random.Below(256))}) {
        bytes[at] = static_cast<char>(wrong);
        ExpectSound(bytes, frame);
      }
      bytes[at] = right;
    }
  }
}

TEST(Wire, TakesOrRefusesEveryCorruptionOfAByte) {
  RandomFrames frames(5);
  Random random(50);
  ExpectEveryCorruptionSound<FrontendFrame>([&] { return frames.FrontendFrame(); }, random);
  ExpectEveryCorruptionSound<EngineFrame>([&] { return frames.EngineFrame(); }, random);
}

TEST(Wire, RefusesLengthsThatTheFrameDoesNotHaveBeforeItTakesMemory) {
  // The head, and then what claims 2^32 - 1 elements or bytes.
  const auto claiming = [](FrameType type, const std::string& fields) {
    return std::string(1, static_cast<char>(type)) + fields;
  };
  const std::string most = "\xff\xff\xff\xff";
  const std::string protocol(1, static_cast<char>(link::kProtocol));
  FrontendFrame frontend;
  EngineFrame engine;
  const int64_t before = AllocatedBytes();
  for (const std::string& bytes :
       {claiming(FrameType::kAbort, "\x93\x01\x01\xdd" + most + "\x01\x01"),
        claiming(FrameType::kAbort, "\xdd" + most + "\x01\x01"),
        claiming(FrameType::kHello, "\x96\x01\x01" + protocol + "\xdb" + most + "name")}) {
    EXPECT_NE(Read(bytes, frontend), "");
  }
  for (const std::string& bytes :
       {claiming(FrameType::kOutput, "\x95\x01\x01\x01\x01\xdd" + most),
        claiming(FrameType::kOutput, "\x95\x01\x01\x01\x01\x91\x94\x01\x01\x01\xdd" + most),
        claiming(FrameType::kDead, "\x93\x01\x01\xdb" + most)}) {
    EXPECT_NE(Read(bytes, engine), "");
  }
  EXPECT_LT(AllocatedBytes() - before, 10'000);
}

TEST(Wire, TakesASmallMultipleOfTheBytesAtMost) {
  // The densest there is: rows of five bytes, words without ids, stops without bytes.
  std::string bytes;
  std::vector<OutputRow> rows(100'000);
  for (OutputRow& row : rows) row.address = {0, 0};
  link::WriteOutput({FrameType::kOutput, 1, 1}, 1, 1, rows, bytes);
  EngineFrame engine;
  int64_t before = AllocatedBytes();
  ASSERT_EQ(Read(bytes, engine), "");
  EXPECT_LE(AllocatedBytes() - before, 64 * std::ssize(bytes));

  EngineRequest request;
  request.params.bad_words.resize(30'000);
  request.text.stops.resize(30'000);
  link::WriteAdd({FrameType::kAdd, 1, 1}, request, bytes);
  FrontendFrame frontend;
  before = AllocatedBytes();
  ASSERT_EQ(Read(bytes, frontend), "");
  EXPECT_LE(AllocatedBytes() - before,
            128 * std::ssize(bytes));  // grown twofold: all sizes together
}

TEST(Wire, OutputsTakeNoMemoryInSteadyState) {
  RandomFrames frames(6);
  const auto rows = frames.Rows(64);
  std::string bytes;
  EngineFrame read;
  for (int i = 0; i < 2; ++i) {
    link::WriteOutput({FrameType::kOutput, 1, 1}, 1, 1, rows, bytes);
    ASSERT_EQ(Read(bytes, read), "");
  }
  const int64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) {
    link::WriteOutput({FrameType::kOutput, 1, 1}, 1, 1, rows, bytes);
    ASSERT_EQ(Read(bytes, read), "");
  }
  EXPECT_EQ(AllocationCount(), before);
}

TEST(Wire, RefusesWhatIsOutsideItsRange) {
  EngineFrame engine;
  FrontendFrame frontend;
  std::string bytes;
  const FrameHead output{FrameType::kOutput, 1, 1};
  OutputRow row{.address = {0, 0}};
  const auto refuses = [&](const OutputRow& bad) {
    link::WriteOutput(output, 1, 1, {&bad, 1}, bytes);
    return !Read(bytes, engine).empty();
  };
  EXPECT_FALSE(refuses(row));
  const std::vector<int32_t> ids = {1, 2};
  const std::vector<float> nan = {0.0f, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> one = {0.0f};
  const std::vector<float> two = {0.0f, 0.0f};
  OutputRow with = {.address = {0, 0}, .ids = ids, .logprobs = two, .ranks = ids};
  EXPECT_FALSE(refuses(with));
  with.logprobs = nan;
  EXPECT_TRUE(refuses(with));
  with.logprobs = one;
  EXPECT_TRUE(refuses(with));
  with.logprobs = two;
  with.logprob_width = 1;
  EXPECT_TRUE(refuses(with));
  with.logprob_ids = ids;
  with.logprob_values = two;
  EXPECT_FALSE(refuses(with));
  with.logprob_width = 2;
  EXPECT_TRUE(refuses(with));
  with.logprob_width = -1;
  EXPECT_TRUE(refuses(with));
  const OutputRow scored = {
      .address = {0, 0},
      .prompt = {
          .first_token = 1, .logprobs = two, .ranks = ids, .width = 1, .ids = ids, .values = two}};
  EXPECT_FALSE(refuses(scored));
  const auto refuses_prompt = [&](auto change) {
    OutputRow bad = scored;
    change(bad.prompt);
    return refuses(bad);
  };
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.first_token = 0; }));
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.first_token = int64_t{1} << 31; }));
  EXPECT_TRUE(refuses_prompt([&](PromptLogprobs& p) { p.logprobs = nan; }));
  EXPECT_TRUE(refuses_prompt([&](PromptLogprobs& p) { p.logprobs = one; }));
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.ranks = {}; }));
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.width = 0; }));
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.width = 2; }));
  EXPECT_TRUE(refuses_prompt([](PromptLogprobs& p) { p.ids = {}; }));
  EXPECT_TRUE(refuses_prompt([&](PromptLogprobs& p) { p.values = one; }));
  row.first_token = -1;
  EXPECT_TRUE(refuses(row));
  row.first_token = 0;
  row.end = static_cast<GenerationEnd>(kGenerationEnds);
  EXPECT_TRUE(refuses(row));
  row.end = GenerationEnd::kStatus;
  EXPECT_FALSE(refuses(row));
  row.status = static_cast<RowStatus>(17);
  EXPECT_TRUE(refuses(row));

  link::WriteCredit({FrameType::kCredit, 1, 1}, -1, bytes);
  EXPECT_NE(Read(bytes, frontend), "");
  link::WriteCredit({FrameType::kCredit, 1, 1}, link::kMostCredits + 1, bytes);
  EXPECT_NE(Read(bytes, frontend), "");
  EngineRequest request;
  request.params.temperature = nan[1];
  link::WriteAdd({FrameType::kAdd, 1, 1}, request, bytes);
  EXPECT_NE(Read(bytes, frontend), "");
  request.params.temperature = 1.0f;
  request.stop_at = static_cast<StopAt>(2);
  link::WriteAdd({FrameType::kAdd, 1, 1}, request, bytes);
  EXPECT_NE(Read(bytes, frontend), "");
}

TEST(Wire, TakesTheLongestNameAndNoLongerOne) {
  FrontendFrame read;
  std::string bytes;
  for (const size_t size : {link::kLongestName, link::kLongestName + 1}) {
    link::WriteHello({FrameType::kHello, 0, 0}, {.name = std::string(size, 'n')}, bytes);
    EXPECT_EQ(Read(bytes, read).empty(), size == link::kLongestName);
  }
  EXPECT_NE(Read(bytes, read).find("a name that is too long"), std::string::npos);
}

// Of elements that are much larger in memory than in a frame there are so many at most, in any
// list.
TEST(Wire, TakesTheLongestListsOfLargeElementsAndNoLongerOnes) {
  constexpr size_t kMost = 1 << 15;
  using Grow = void (*)(EngineRequest&, size_t);
  const Grow lists[] = {
      [](EngineRequest& request, size_t size) { request.params.bad_words.resize(size); },
      [](EngineRequest& request, size_t size) { request.text.stops.resize(size); },
  };
  FrontendFrame read;
  std::string bytes;
  for (const Grow grow : lists) {
    for (const size_t size : {kMost, kMost + 1}) {
      EngineRequest request;
      grow(request, size);
      link::WriteAdd({FrameType::kAdd, 0, 0}, request, bytes);
      EXPECT_EQ(Read(bytes, read).empty(), size == kMost);
    }
    EXPECT_NE(Read(bytes, read).find("a list that is too long"), std::string::npos);
  }
  // Of others as many as the frame has.
  EngineRequest request;
  request.prompt.assign(2 * kMost, 1);
  link::WriteAdd({FrameType::kAdd, 0, 0}, request, bytes);
  EXPECT_EQ(Read(bytes, read), "");
  EXPECT_EQ(read.request.prompt.size(), 2 * kMost);
}

TEST(Wire, EachSideRefusesItsOwnFramesAndUnknownOnes) {
  EngineFrame engine;
  FrontendFrame frontend;
  std::string bytes;
  for (int type = 0; type < 256; ++type) {
    link::WriteEmpty({static_cast<FrameType>(type), 1, 1}, bytes);
    const bool is_frontend =
        type == static_cast<int>(FrameType::kPing) || type == static_cast<int>(FrameType::kBye);
    EXPECT_EQ(Read(bytes, frontend).empty(), is_frontend) << type;
    EXPECT_NE(Read(bytes, engine), "") << type;  // none of an engine's is empty
  }
}

TEST(Wire, OfAnotherProtocolTheNumberAloneIsRead) {
  FrontendFrame frontend;
  EXPECT_EQ(Read(std::string("\x01\x94\x00\x00\x09\xc1", 6), frontend), "");
  EXPECT_EQ(frontend.hello.protocol, 9u);
  EngineFrame engine;
  EXPECT_EQ(Read(std::string("\x11\x94\x05\x00\x09\xc1", 6), engine), "");
  EXPECT_EQ(engine.ready.protocol, 9u);
  EXPECT_EQ(engine.head.epoch, 5u);
}

}  // namespace
}  // namespace sluice::test
