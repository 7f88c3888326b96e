// Whatever cuts rows come in, whoever looks for stops and whatever outputs are asked for, a request
// has the same text, tokens and end: those of all its tokens at once.
#include <gtest/gtest.h>

#include <array>

#include "tests/link/one_engine.h"
#include "tests/link/row_script.h"
#include "tests/support/random.h"
#include "tests/text/byte_oracle.h"

namespace sluice::test {
namespace {

constexpr std::array kModes = {OutputMode::kDelta, OutputMode::kCumulative, OutputMode::kFinal};

struct Case {
  ClientRequest request;
  std::vector<int32_t> script;
};

Case RandomCase(const ByteVocabulary& vocabulary, Random& random) {
  Case made;
  const auto some_id = [&] {
    const auto size = static_cast<int64_t>(vocabulary.tokens.size());
    return static_cast<int32_t>(random.Coin() ? random.Between(256, size - 1) : random.Below(size));
  };
  std::string bytes;
  for (int64_t n = random.Between(1, 24); n > 0; --n) {
    made.script.push_back(some_id());
    bytes += vocabulary.bytes[static_cast<size_t>(made.script.back())];
  }
  ClientRequest& request = made.request;
  request.prompt = {some_id(), some_id()};
  request.max_tokens = random.Between(1, 40);
  request.params.min_tokens = random.Coin(0.3) ? static_cast<int32_t>(random.Between(1, 6)) : 0;
  request.params.seed = random.Bits();
  if (random.Coin(0.3)) request.params.stop_token_ids = {made.script[made.script.size() / 2]};
  if (random.Coin()) request.params.logprobs = static_cast<int32_t>(random.Between(0, 3));
  request.text.include_stop = random.Coin(0.3);
  request.text.detokenizer.skip_special_tokens = random.Coin();
  request.text.incomplete = random.Coin(0.3) ? Incomplete::kDrop : Incomplete::kReplace;
  const std::string text = Lossy(bytes).text;
  for (int64_t n = random.Between(0, 3); n > 0 && !text.empty(); --n) {
    auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
    while (at > 0 && text::IsContinuation(static_cast<uint8_t>(text[at]))) --at;
    std::string stop = text.substr(at, static_cast<size_t>(random.Between(1, 8)));
    stop.resize(text::ValidPrefix(stop));
    if (random.Coin(0.4)) stop += "z";
    if (!stop.empty()) request.text.stops.push_back(stop);
  }
  return made;
}

// By the definition: all tokens at once through the text side.
Collected Define(const Case& asked, const Tokenizer& tokenizer, const EngineInfo& info) {
  ClientRequest copy = asked.request;
  const EngineRequest request = link::CompleteRequest(std::move(copy), info, StopAt::kEngine);
  StopListCache lists;
  TextStream stream = engine::MakeTextStream(request, tokenizer, lists, StopLimits{});
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < request.max_tokens; ++i) {
    ids.push_back(asked.script[static_cast<size_t>(i) % asked.script.size()]);
  }
  Collected all;
  Delta delta = stream.Step(ids, all.text);
  if (delta.finish == FinishReason::kNone) delta = stream.Finish(all.text);
  all.end = delta.finish == FinishReason::kStopString  ? GenerationEnd::kStopString
            : delta.finish == FinishReason::kStopToken ? GenerationEnd::kStopToken
                                                       : GenerationEnd::kLength;
  if (delta.stop >= 0) all.stop = request.text.stops[static_cast<size_t>(delta.stop)];
  if (all.end == GenerationEnd::kStopToken) all.stop_token = delta.stop_token;
  all.output_tokens = delta.tokens;
  all.prompt_tokens = std::ssize(request.prompt);
  ids.resize(static_cast<size_t>(delta.tokens));
  all.ids = ids;
  if (!request.params.logprobs.has_value()) return all;
  all.width = 1 + *request.params.logprobs;
  for (int64_t number = 0; number < delta.tokens; ++number) {
    all.logprobs.push_back(LogprobOf(number));
    all.ranks.push_back(RankOf(number));
    for (int32_t i = 0; i < all.width; ++i) {
      all.logprob_ids.push_back(static_cast<int32_t>((number + i) % info.vocab));
      all.logprob_values.push_back(LogprobOf(number) - static_cast<float>(i));
    }
  }
  return all;
}

// Several requests at once, their rows in any order and cuts, read now and then.
TEST(RequestTableProperty, GivesTheSameWhateverTheCutsModesIntervalsAndPlacement) {
  Random random(23);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const ByteVocabulary vocabulary = MakeVocabulary(random);
    const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
    for (const StopAt stop_at : {StopAt::kEngine, StopAt::kFrontend}) {
      OneEngine engine(tokenizer, stop_at, 3);
      EngineInfo info = InfoOf(tokenizer, 3);
      info.end_tokens = {};
      engine.table.SetInfo(0, info);
      struct Live {
        RequestId id;
        RowScript script;
        Collected expected;
      };
      std::vector<Live> live;
      int left = 8;
      while (left > 0 || !live.empty()) {
        while (left > 0 && engine.table.HasFreeSlot(0)) {
          Case made = RandomCase(vocabulary, random);
          made.request.mode = random.Pick(kModes);
          made.request.stream_interval = random.Coin() ? 1 : random.Between(2, 9);
          const Collected expected = Define(made, tokenizer, info);
          const RequestId id = engine.Add(std::move(made.request));
          live.push_back({id,
                          RowScript(engine.sent.at(id.value), tokenizer, made.script, info.vocab),
                          expected});
          --left;
        }
        Live& one = random.Pick(live);
        engine.table.Take(0, one.script.Next(random.Coin() ? 1 : random.Between(1, 7)));
        if (random.Coin(0.7)) engine.Collect();
        for (const RequestAddress& address : engine.table.TakeAborts(0)) {
          for (Live& aborted : live) {
            if (aborted.script.request().address != address) continue;
            // Tokens that were on their way, then the end.
            if (random.Coin()) engine.table.Take(0, aborted.script.Next(2));
            if (!aborted.script.has_ended()) engine.table.Take(0, aborted.script.Cancelled());
          }
        }
        std::erase_if(live, [&](const Live& ended) {
          if (!ended.script.has_ended()) return false;
          engine.Collect();
          EXPECT_EQ(engine.got[ended.id], ended.expected);
          return true;
        });
        if (HasFailure()) return;
      }
      engine.Collect();
      engine.table.Release();
      EXPECT_EQ(engine.table.live_requests(), 0);
      EXPECT_EQ(engine.table.taken_slots(0), 0);
      const ClientCounters& counters = engine.table.counters;
      EXPECT_EQ(counters.requests, 8);
      EXPECT_EQ(counters.unknown_rows + counters.repeated_ends + counters.gaps +
                    counters.foreign_ids + counters.disagreements,
                0);
      if (stop_at == StopAt::kEngine) {
        EXPECT_EQ(counters.aborts, 0);
        EXPECT_EQ(counters.stale_tokens, 0);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
