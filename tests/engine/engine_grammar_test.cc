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
