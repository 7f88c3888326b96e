// Engine with grammars over the default model: what is drawn matches, whatever happens to a
// request.
#include <set>

#include "sluice/generator.hpp"
#include "tests/engine/engine_grammar_fixture.h"

namespace sluice::test {
namespace {

struct Flight {
  const char* name;
  int32_t steps;
  bool has_thread;
};

class EngineGrammar : public ::testing::TestWithParam<Flight> {
 protected:
  GrammarEngine Make(GrammarService* service, ModelRunnerOptions options = {.max_requests = 8}) {
    return GrammarEngine(service, GetParam().steps, GetParam().has_thread, options);
  }
};

TEST_P(EngineGrammar, EveryTextMatchesItsSchema) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine = Make(service.get());
  std::vector<std::pair<const CheckedSchema*, RequestAddress>> requests;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const CheckedSchema& schema : kSchemas) {
      requests.emplace_back(&schema, engine.client->Submit(GrammarRequest(schema.schema, seed)));
    }
    requests.emplace_back(nullptr, engine.client->Submit(MakeRequest({5, 6, 7}, 30)));
  }
  Drain(*engine.engine, {&*engine.client});
  for (const auto& [schema, address] : requests) {
    const Received& received = engine.client->Of(address);
    if (schema == nullptr) {
      EXPECT_EQ(received.ids.size(), 30u);
    } else {
      ExpectMatch(*schema, received);
      if (HasFatalFailure()) return;
    }
  }
  const GrammarCounters& counters = engine.engine->counters().grammars;
  EXPECT_EQ(counters.compiling, 0);
  EXPECT_GT(counters.masks, 0);
  RecordProperty("masks", std::to_string(counters.masks));
  RecordProperty("mask_waits", std::to_string(counters.mask_waits));
}

// Of a request alone depends its output: not on a preemption, the other requests, a step in flight.
TEST_P(EngineGrammar, GivesTheTokensOfAGeneratorAlsoAfterPreemptions) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarCompiler compiler(*library, DefaultModel().tokenizer(), DefaultModel().end_tokens(),
                           static_cast<int32_t>(DefaultModel().vocab()));
  GrammarEngine engine = Make(service.get(), {.max_requests = 6, .cache_tokens = 96});
  std::vector<RequestAddress> addresses;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    addresses.push_back(engine.client->Submit(GrammarRequest(kSchemas[0].schema, seed, 60)));
  }
  Drain(*engine.engine, {&*engine.client});
  EXPECT_GT(engine.engine->counters().preemptions, 0);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const EngineRequest like = GrammarRequest(kSchemas[0].schema, seed, 60);
    Generator generator(DefaultModel(), {.params = like.params,
                                         .prompt = like.prompt,
                                         .max_tokens = 60,
                                         .grammar = compiler.Compile(GrammarKind::kJsonSchema,
                                                                     kSchemas[0].schema)});
    while (!generator.Step().empty()) {
    }
    const auto expected = generator.OutputTokens(0);
    EXPECT_EQ(engine.client->Of(addresses[seed - 1]).ids,
              std::vector<int32_t>(expected.begin(), expected.end()));
  }
}

TEST_P(EngineGrammar, ChoicesOfOneRequestFollowOneGrammarEach) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine = Make(service.get());
  std::vector<RequestAddress> addresses;
  std::set<std::string> distinct;
  for (uint32_t choice = 0; choice < 8; ++choice) {
    EngineRequest request = GrammarRequest(kSchemas[2].schema);
    request.choice = choice;
    addresses.push_back(engine.client->Submit(std::move(request)));
  }
  Drain(*engine.engine, {&*engine.client});
  for (const RequestAddress& address : addresses) {
    ExpectMatch(kSchemas[2], engine.client->Of(address));
    distinct.insert(TextOf(engine.client->Of(address)));
  }
  EXPECT_GT(distinct.size(), 1u);
}

TEST_P(EngineGrammar, MaxTokensStopsAndStopTokensEndAGrammarToo) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine = Make(service.get());
  const RequestAddress cut = engine.client->Submit(GrammarRequest(kSchemas[0].schema, 1, 5));
  EngineRequest with_stop = GrammarRequest(kSchemas[0].schema);
  with_stop.text.stops = {"\"age\""};
  const RequestAddress stopped = engine.client->Submit(std::move(with_stop));
  // Without the model's end tokens, and with min_tokens: the grammar decides all the same.
  EngineRequest patient = GrammarRequest(kSchemas[1].schema);
  patient.params.min_tokens = 300;
  const RequestAddress ended = engine.client->Submit(std::move(patient));
  Drain(*engine.engine, {&*engine.client});
  EXPECT_EQ(engine.client->Of(cut).end, GenerationEnd::kLength);
  EXPECT_EQ(engine.client->Of(cut).ids.size(), 5u);
  EXPECT_EQ(engine.client->Of(stopped).end, GenerationEnd::kStopString);
  ExpectMatch(kSchemas[1], engine.client->Of(ended));
}

// The text that a grammar gives repeats itself: names of fields, and what stands between values.
TEST_P(EngineGrammar, DraftsGiveTheSameTokens) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  const auto run = [&](int32_t drafts, int64_t* accepted) {
    GrammarEngine engine = Make(service.get(), {.max_requests = 4, .draft_tokens = drafts});
    std::vector<RequestAddress> addresses;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      for (const CheckedSchema& schema : kSchemas) {
        EngineRequest request = GrammarRequest(schema.schema, seed);
        request.params.logprobs = seed == 1 ? std::optional(2) : std::nullopt;
        request.params.logprob_mode = LogprobMode::kProcessedLogprobs;
        addresses.push_back(engine.client->Submit(std::move(request)));
      }
      EngineRequest list = GrammarRequest(
          R"({"type":"array","minItems":4,"maxItems":4,"items":{"type":"object","properties":{
              "is_small":{"type":"boolean"},"colour":{"enum":["red","blue"]}},
              "required":["is_small","colour"]}})",
          seed);
      list.params.temperature = 0.0f;
      addresses.push_back(engine.client->Submit(std::move(list)));
    }
    Drain(*engine.engine, {&*engine.client});
    std::vector<Received> received;
    for (const RequestAddress& address : addresses) {
      received.push_back(engine.client->Of(address));
      EXPECT_EQ(received.back().end, GenerationEnd::kStopToken) << TextOf(received.back());
    }
    *accepted = engine.engine->counters().accepted_draft_tokens;
    return received;
  };
  int64_t accepted = 0;
  const std::vector<Received> plain = run(0, &accepted);
  EXPECT_EQ(accepted, 0);
  for (const int32_t drafts : {1, 8}) {
    const std::vector<Received> drafted = run(drafts, &accepted);
    EXPECT_GT(accepted, 10) << drafts;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(drafted[i].ids, plain[i].ids) << i << " of " << drafts;
      EXPECT_EQ(drafted[i].logprobs, plain[i].logprobs) << i << " of " << drafts;
      EXPECT_EQ(drafted[i].logprob_ids, plain[i].logprob_ids) << i << " of " << drafts;
    }
  }
}

TEST_P(EngineGrammar, ComesAfterTheReasoningOfABudget) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine =
      Make(service.get(), {.max_requests = 4, .cache_tokens = 160, .draft_tokens = 4});
  constexpr std::string_view kEnd = "</think>";
  struct Sent {
    const CheckedSchema* schema;
    int64_t budget;
    RequestAddress address;
  };
  std::vector<Sent> sent;
  for (const int64_t budget : {0, 1, 12}) {
    for (const CheckedSchema& schema : kSchemas) {
      EngineRequest request = GrammarRequest(schema.schema, 1, 120);
      request.thinking = ThinkingBudget{.tokens = budget, .is_open = true};
      request.text.stops = {"never in JSON"};
      sent.push_back({&schema, budget, engine.client->Submit(request)});
      request.thinking->is_open = false;  // without a token that begins reasoning there is none
      sent.push_back({&schema, -1, engine.client->Submit(request)});
    }
  }
  Drain(*engine.engine, {&*engine.client});
  for (const Sent& one : sent) {
    Received received = engine.client->Of(one.address);
    if (one.budget >= 0) {
      const std::string text = TextOf(received);
      const size_t end = text.find(kEnd);
      ASSERT_NE(end, std::string::npos) << text;
      const Tokenizer& tokenizer = DefaultModel().tokenizer();
      size_t reasoning = 0;  // tokens up to the end
      while (tokenizer.Decode(std::span(received.ids).first(reasoning)).find(kEnd) ==
             std::string::npos) {
        ++reasoning;
      }
      EXPECT_LE(std::ssize(tokenizer.Encode(kEnd, {.add_special_tokens = false})) + one.budget,
                static_cast<int64_t>(reasoning) + 1);
      received.ids.erase(received.ids.begin(),
                         received.ids.begin() + static_cast<std::ptrdiff_t>(reasoning));
    }
    ExpectMatch(*one.schema, received);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EngineGrammar, ARequestWithNothingToDrawEndsAlone) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine = Make(service.get());
  EngineRequest stuck = GrammarRequest(kSchemas[1].schema);
  stuck.params.allowed_token_ids = DefaultModel().tokenizer().Encode("never");
  const RequestAddress bad = engine.client->Submit(std::move(stuck));
  const RequestAddress good = engine.client->Submit(GrammarRequest(kSchemas[1].schema));
  Drain(*engine.engine, {&*engine.client});
  EXPECT_EQ(engine.client->Of(bad).end, GenerationEnd::kStatus);
  EXPECT_EQ(engine.client->Of(bad).status, RowStatus::kEmptySupport);
  ExpectMatch(kSchemas[1], engine.client->Of(good));
}

TEST_P(EngineGrammar, AWrongGrammarIsRejectedWithItsKind) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library, {.limits = {.text_bytes = 1000}});
  GrammarEngine engine = Make(service.get());
  const RequestAddress bad = engine.client->Submit(GrammarRequest(R"({"type":"strin"})"));
  const RequestAddress large = engine.client->Submit(GrammarRequest(std::string(1001, ' ')));
  EngineRequest regex = GrammarRequest("(");
  regex.grammar->kind = GrammarKind::kRegex;
  const RequestAddress open = engine.client->Submit(std::move(regex));
  Drain(*engine.engine, {&*engine.client});
  for (const RequestAddress& address : {bad, large, open}) {
    const Received& received = engine.client->Of(address);
    EXPECT_EQ(received.end, GenerationEnd::kRejected);
    EXPECT_EQ(received.code, ErrorCode::kInvalidValue) << received.message;
    EXPECT_TRUE(received.ids.empty());
    EXPECT_FALSE(received.message.empty());
  }
  EXPECT_EQ(engine.client->Of(bad).parameter, "json_schema");
  EXPECT_EQ(engine.client->Of(large).parameter, "json_schema.size()");
  EXPECT_EQ(engine.client->Of(open).parameter, "regex");
  EXPECT_EQ(engine.engine->counters().rejected, 3);
  EXPECT_EQ(engine.engine->counters().waiting, 0);
}

TEST_P(EngineGrammar, WithoutALibraryTheErrorSaysWhatToInstall) {
  GrammarEngine engine = Make(nullptr);
  const RequestAddress address = engine.client->Submit(GrammarRequest(kSchemas[0].schema));
  Drain(*engine.engine, {&*engine.client});
  EXPECT_EQ(engine.client->Of(address).end, GenerationEnd::kRejected);
  EXPECT_EQ(engine.client->Of(address).code, ErrorCode::kUnavailable);
  EXPECT_NE(engine.client->Of(address).message.find("xgrammar"), std::string::npos);
}

TEST_P(EngineGrammar, AnAbortWhileItIsCompiledEndsTheRequestAtOnce) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  GrammarEngine engine = Make(service.get());
  std::vector<RequestAddress> addresses;
  for (int i = 0; i < 3; ++i) {
    addresses.push_back(engine.client->Submit(GrammarRequest(WideSchema(400, i))));
  }
  EXPECT_EQ(engine.engine->counters().grammars.compiling, 3);
  EXPECT_EQ(engine.engine->counters().waiting, 3);
  engine.client->Abort(addresses[1]);
  engine.client->Take(engine.engine->Step());
  EXPECT_EQ(engine.client->Of(addresses[1]).end, GenerationEnd::kCancelled);
  engine.engine->RemoveClient(engine.client->id);
  while (engine.engine->HasWork()) EXPECT_TRUE(engine.engine->Step().empty());
  EXPECT_EQ(engine.engine->counters().grammars.compiling, 0);
  EXPECT_EQ(engine.engine->counters().waiting, 0);
}

INSTANTIATE_TEST_SUITE_P(All, EngineGrammar,
                         ::testing::Values(Flight{"Synchronous", 0, false},
                                           Flight{"InFlight", 1, false},
                                           Flight{"InFlightOnAThread", 1, true}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace sluice::test
