// What a vLLM engine sends: read as vLLM's own encoder wrote it, and refused whole where it is
// anything else.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "link/vllm/engine_core_outputs.h"
#include "link/vllm/output_translation.h"
#include "tests/link/vllm/fixtures.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

using link::vllm::EngineCoreOutput;
using link::vllm::EngineCoreOutputs;
using link::vllm::FinishReason;
using link::vllm::OutputTranslation;

const EngineCoreOutputs& ReadFixture(const std::string& name) {
  static EngineCoreOutputs outputs;  // used again: nothing of the last message may stay
  EXPECT_EQ(link::vllm::ReadOutputs(Views(VllmMessage(name)), outputs), "") << name;
  return outputs;
}
template <typename T>
std::vector<T> List(std::span<const T> span) {
  return {span.begin(), span.end()};
}
std::vector<int32_t> Counted(int32_t first, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

TEST(VllmOutputs, HaveTheirTokens) {
  EXPECT_TRUE(ReadFixture("outputs.none").outputs.empty());
  const EngineCoreOutputs& read = ReadFixture("outputs.tokens");
  ASSERT_EQ(read.outputs.size(), 2u);
  EXPECT_FALSE(read.answered.has_value());
  EXPECT_EQ(read.outputs[0].request_id, "sluice-77-1-2");
  EXPECT_EQ(List(read.outputs[0].ids), std::vector<int32_t>{5});
  EXPECT_EQ(read.outputs[1].request_id, "sluice-77-0-1");
  EXPECT_EQ(List(read.outputs[1].ids), (std::vector<int32_t>{6, 7, 70000}));
  EXPECT_FALSE(read.outputs[0].logprobs.has_value() || read.outputs[0].finish.has_value());
}

TEST(VllmOutputs, HaveTheirLogprobsFromWithinAndFromOtherFrames) {
  for (const char* const name : {"outputs.logprobs", "outputs.wide_ids"}) {
    const auto& lists = ReadFixture(name).outputs.at(0).logprobs;
    ASSERT_TRUE(lists.has_value()) << name;
    EXPECT_EQ(lists->rows, 1u);
    EXPECT_EQ(lists->width, 3u);
    EXPECT_EQ(List(lists->ids), Counted(0, 3));
    EXPECT_EQ(List(lists->values), (std::vector<float>{-0.125f, -0.25f, -0.375f}));
    EXPECT_EQ(List(lists->ranks), Counted(1, 1));
  }
  EXPECT_EQ(VllmMessage("outputs.large_logprobs").size(), 5u);
  const EngineCoreOutputs& large = ReadFixture("outputs.large_logprobs");
  EXPECT_EQ(List(large.outputs.at(0).logprobs->ids), Counted(0, 82));
  EXPECT_EQ(List(large.outputs.at(1).logprobs->ids), Counted(200, 80));
  EXPECT_EQ(large.outputs.at(1).logprobs->values[79], -10.0f);
}

TEST(VllmOutputs, HaveThoseOfThePrompt) {
  const EngineCoreOutputs& read = ReadFixture("outputs.prompt_logprobs");
  const auto& few = read.outputs.at(0).prompt_logprobs;
  const auto& many = read.outputs.at(1).prompt_logprobs;
  ASSERT_TRUE(few.has_value() && many.has_value());
  EXPECT_EQ(few->rows, 3u);
  EXPECT_EQ(few->width, 4u);
  EXPECT_EQ(List(few->ids), Counted(0, 12));
  EXPECT_EQ(List(many->ids), Counted(0, 90));
  EXPECT_EQ(List(many->ranks), Counted(1, 30));
}

TEST(VllmOutputs, SayWhyTheyEnd) {
  const std::pair<const char*, FinishReason> kCases[] = {
      {"outputs.stop", FinishReason::kStop},     {"outputs.stop_token", FinishReason::kStop},
      {"outputs.length", FinishReason::kLength}, {"outputs.abort", FinishReason::kAbort},
      {"outputs.error", FinishReason::kError},   {"outputs.repetition", FinishReason::kRepetition}};
  for (const auto& [name, reason] : kCases) {
    EXPECT_EQ(ReadFixture(name).outputs.at(0).finish, reason) << name;
  }
  const EngineCoreOutput& refused = ReadFixture("outputs.refused").outputs.at(0);
  EXPECT_EQ(refused.error_code, "validation_error");
  EXPECT_EQ(refused.error_message, "no such thing");
}

TEST(VllmOutputs, MayHaveWhatNobodyAskedFor) {
  const EngineCoreOutputs& read = ReadFixture("outputs.everything");
  EXPECT_EQ(List(read.outputs.at(0).ids), std::vector<int32_t>{5});
  EXPECT_EQ(read.outputs.at(0).cached_tokens, 3);
  EXPECT_FALSE(read.answered.has_value());
  EXPECT_EQ(ReadFixture("outputs.answer").answered, 7);
}

// From memory of exactly that size, so that a sanitizer sees what is read behind it.
std::string ReadExact(const Frames& frames, EngineCoreOutputs& outputs) {
  std::vector<std::unique_ptr<char[]>> copies;
  std::vector<std::string_view> views;
  for (const std::string& frame : frames) {
    copies.push_back(std::make_unique<char[]>(frame.size()));
    std::memcpy(copies.back().get(), frame.data(), frame.size());
    views.emplace_back(copies.back().get(), frame.size());
  }
  const std::string why = link::vllm::ReadOutputs(views, outputs);
  if (!why.empty()) return why;
  OutputTranslation translation(kVllmLife);
  EngineRequest request = PlainVllmRequest();
  request.params.logprobs = 2;
  request.prompt_logprobs = 1;
  translation.Begin(request);
  for (const EngineCoreOutput& output : outputs.outputs) {
    OutputRow row;
    translation.Translate(output, row);
  }
  return why;
}

TEST(VllmOutputs, ThatAreCutAreRefused) {
  EngineCoreOutputs outputs;
  EXPECT_NE(link::vllm::ReadOutputs({}, outputs), "");
  for (const auto& [name, frames] : VllmMessages()) {
    if (!name.starts_with("outputs.")) continue;
    for (size_t size = 0; size < frames[0].size(); ++size) {
      Frames cut = frames;
      cut[0].resize(size);
      ASSERT_NE(ReadExact(cut, outputs), "") << name << " to " << size;
    }
    if (frames.size() == 1 || name == "outputs.everything") continue;
    for (size_t i = 1; i < frames.size(); ++i) {
      Frames cut = frames;
      cut[i].pop_back();
      EXPECT_NE(ReadExact(cut, outputs), "") << name << " frame " << i;
      cut.resize(i);
      EXPECT_NE(ReadExact(cut, outputs), "") << name << " of " << i;
    }
  }
}

// Bytes changed, added and taken away at random: it is refused or read, within its memory.
TEST(VllmOutputs, ThatAreAnythingAreReadOrRefused) {
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return random() % end; };
  std::vector<Frames> all;
  for (const auto& [name, frames] : VllmMessages()) all.push_back(frames);
  EngineCoreOutputs outputs;
  int refused = 0;
  constexpr int kRounds = 200'000 / kSlowdown;
  for (int round = 0; round < kRounds; ++round) {
    Frames frames = all[below(all.size())];
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      std::string& frame = frames[below(frames.size())];
      const size_t at = below(frame.size() + 1);
      // Codes of MessagePack that begin something long, and any byte.
      constexpr std::string_view kLong = "\xc9\xdb\xdd\xdf\xdc\xde\xff\x90\xc0";
      const char byte = below(2) == 0 ? kLong[below(kLong.size())] : static_cast<char>(random());
      if (at < frame.size() && below(3) > 0) {
        frame[at] = byte;
      } else if (below(2) == 0) {
        frame.insert(at, 1, byte);
      } else {
        frame.erase(at, 1 + below(4));
      }
    }
    if (!ReadExact(frames, outputs).empty()) ++refused;
    ASSERT_LE(outputs.numbers.capacity() + outputs.reals.capacity(), size_t{1} << 16);
  }
  EXPECT_GT(refused, kRounds / 4);
  EXPECT_LT(refused, kRounds);
}

TEST(VllmOutputs, ThatSayTheyAreHugeTakeNoMemory) {
  EngineCoreOutputs outputs;
  for (const char* const digits :
       {"dfffffffff", "ddffffffff", "9900ddffffffff", "99 00 91 dd ffffffff",
        // An output's ids; a list of 2^32-1 by 2^32-1; an element in an element, and so on.
        "9900919200ddffffffff", "9900919300909493a33c693492ceffffffffceffffffff00"}) {
    std::string bytes(digits);
    std::erase(bytes, ' ');
    EXPECT_NE(ReadExact({FromHex(bytes)}, outputs), "") << digits;
    EXPECT_LT(outputs.outputs.capacity(), 100u);
  }
  // An output takes more than its three bytes.
  std::string many = FromHex("9200dd00011170");
  for (int i = 0; i < 70'000; ++i) many += FromHex("92a090");
  EXPECT_NE(ReadExact({many}, outputs), "");
  EXPECT_LT(outputs.outputs.capacity(), 100u);
  std::string deep(1'000'000, '\x91');
  deep[0] = '\x99';
  EXPECT_NE(ReadExact({deep}, outputs), "");
}

// --- rows

OutputRow Translated(OutputTranslation& translation, const std::string& name) {
  OutputRow row;
  EXPECT_TRUE(translation.Translate(ReadFixture(name).outputs.at(0), row)) << name;
  EXPECT_EQ(row.address, (RequestAddress{1, 2}));
  return row;
}
OutputTranslation BeginWith(const EngineRequest& request) {
  OutputTranslation translation(kVllmLife);
  translation.Begin(request);
  return translation;
}

TEST(VllmRows, CountTheirTokens) {
  OutputTranslation translation = BeginWith(PlainVllmRequest());
  EXPECT_EQ(Translated(translation, "outputs.tokens").first_token, 0);
  const OutputRow last = Translated(translation, "outputs.stop_token");
  EXPECT_EQ(last.first_token, 1);
  EXPECT_EQ(List(last.ids), std::vector<int32_t>{7});
  EXPECT_EQ(last.end, GenerationEnd::kStopToken);
}

TEST(VllmRows, SayAtTheEndHowMuchOfThePromptWasCached) {
  OutputTranslation translation(kVllmLife);
  translation.Begin(PlainVllmRequest());
  EXPECT_EQ(Translated(translation, "outputs.everything").cached_tokens, -1);
  EXPECT_EQ(Translated(translation, "outputs.stop").cached_tokens, 3);
  translation.Begin(PlainVllmRequest());
  EXPECT_EQ(Translated(translation, "outputs.stop").cached_tokens, -1);
}

TEST(VllmRows, OfRequestsThatAreNotThereAreNone) {
  OutputTranslation translation = BeginWith(PlainVllmRequest());
  OutputRow row;
  EXPECT_FALSE(translation.Translate({.request_id = "sluice-77-1-1"}, row));
  EXPECT_FALSE(translation.Translate({.request_id = "sluice-77-1-3"}, row));
  EXPECT_FALSE(translation.Translate({.request_id = "sluice-77-2-2"}, row));
  EXPECT_FALSE(translation.Translate({.request_id = "cmpl-7"}, row));
  Translated(translation, "outputs.stop");
  EXPECT_FALSE(translation.Translate({.request_id = "sluice-77-1-2"}, row));
  translation = BeginWith(PlainVllmRequest());
  translation.End({1, 1});  // of an earlier one
  Translated(translation, "outputs.tokens");
  translation.End({1, 2});
  EXPECT_FALSE(translation.Translate({.request_id = "sluice-77-1-2"}, row));
}

TEST(VllmRows, HaveAsManyLogprobsAsWereAskedFor) {
  EngineRequest request = PlainVllmRequest();
  request.params.logprobs = 1;
  OutputTranslation translation = BeginWith(request);
  const OutputRow row = Translated(translation, "outputs.large_logprobs");
  EXPECT_EQ(row.logprob_width, 2);
  EXPECT_EQ(List(row.logprob_ids), (std::vector<int32_t>{0, 1, 41, 42}));
  EXPECT_EQ(List(row.logprob_values), (std::vector<float>{-0.125f, -0.25f, -5.25f, -5.375f}));
  EXPECT_EQ(List(row.logprobs), (std::vector<float>{-0.125f, -5.25f}));
  EXPECT_EQ(List(row.ranks), Counted(1, 2));

  OutputTranslation nobody = BeginWith(PlainVllmRequest());  // another request of the step did
  EXPECT_TRUE(Translated(nobody, "outputs.large_logprobs").logprobs.empty());
}

TEST(VllmRows, WithTooFewLogprobsEndTheirRequest) {
  EngineRequest request = PlainVllmRequest();
  request.params.logprobs = 3;
  for (const char* const name : {"outputs.logprobs", "outputs.tokens"}) {
    OutputTranslation translation = BeginWith(request);
    const OutputRow row = Translated(translation, name);
    EXPECT_EQ(row.end, GenerationEnd::kEngineLost);
    EXPECT_TRUE(row.ids.empty());
    EXPECT_TRUE(translation.is_left_there());
    EXPECT_FALSE(row.message.empty());
  }
}

TEST(VllmRows, HaveThoseOfThePromptInFrontOfTheFirstToken) {
  EngineRequest request = PlainVllmRequest();
  request.prompt_logprobs = 2;
  OutputTranslation translation = BeginWith(request);
  const OutputRow row = Translated(translation, "outputs.prompt_logprobs");
  EXPECT_EQ(row.prompt.first_token, 1);
  EXPECT_EQ(row.prompt.width, 3);
  EXPECT_EQ(List(row.prompt.ids), (std::vector<int32_t>{0, 1, 2, 4, 5, 6, 8, 9, 10}));
  EXPECT_EQ(List(row.prompt.logprobs), (std::vector<float>{-0.125f, -0.625f, -1.125f}));
  EXPECT_EQ(List(row.ids), std::vector<int32_t>{5});

  request.prompt.push_back(1);  // the engine tells of another number of tokens
  OutputTranslation other = BeginWith(request);
  EXPECT_EQ(Translated(other, "outputs.prompt_logprobs").end, GenerationEnd::kEngineLost);
}

TEST(VllmRows, ForThePromptAloneHaveNoToken) {
  EngineRequest request = PlainVllmRequest();
  request.max_tokens = 0;
  for (const char* const name : {"outputs.length", "outputs.stop_token"}) {
    OutputTranslation translation = BeginWith(request);
    const OutputRow row = Translated(translation, name);
    EXPECT_TRUE(row.ids.empty());
    EXPECT_EQ(row.end, GenerationEnd::kLength);
  }
}

TEST(VllmRows, EndAsTheirRequestDoes) {
  struct Case {
    const char* name;
    int64_t max_tokens;
    GenerationEnd end;
    ErrorCode code;
    const char* message;
  };
  const Case kCases[] = {
      {"outputs.stop", 16, GenerationEnd::kStopToken, ErrorCode::kInvalidValue, ""},
      {"outputs.length", 1, GenerationEnd::kLength, ErrorCode::kInvalidValue, ""},
      {"outputs.length", 16, GenerationEnd::kContext, ErrorCode::kInvalidValue, ""},
      {"outputs.abort", 16, GenerationEnd::kEngineLost, ErrorCode::kInvalidValue, "shut down"},
      {"outputs.error", 16, GenerationEnd::kStatus, ErrorCode::kUnavailable, "failed"},
      {"outputs.refused", 16, GenerationEnd::kRejected, ErrorCode::kInvalidValue, "no such thing"},
      {"outputs.paused", 16, GenerationEnd::kRejected, ErrorCode::kUnavailable, "come again"},
      {"outputs.repetition", 16, GenerationEnd::kEngineLost, ErrorCode::kInvalidValue, "repeti"}};
  for (const Case& one : kCases) {
    EngineRequest request = PlainVllmRequest();
    request.max_tokens = one.max_tokens;
    OutputTranslation translation = BeginWith(request);
    const OutputRow row = Translated(translation, one.name);
    EXPECT_EQ(row.end, one.end) << one.name;
    EXPECT_EQ(row.code, one.code) << one.name;
    EXPECT_NE(row.message.find(one.message), std::string_view::npos) << row.message;
    EXPECT_FALSE(translation.is_left_there());
  }
}

}  // namespace
}  // namespace sluice::test
