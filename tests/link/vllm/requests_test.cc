// What goes to a vLLM engine: the bytes of vLLM's own encoder, and nothing that the engine would
// fail at.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "link/vllm/engine_core_outputs.h"
#include "link/vllm/engine_core_request.h"
#include "link/vllm/handshake.h"
#include "sluice/error.hpp"
#include "tests/link/vllm/fixtures.h"

namespace sluice::test {
namespace {

std::string Written(const EngineRequest& request, uint64_t life = kVllmLife) {
  std::string frame;
  link::vllm::WriteAdd(request, life, 0, {}, 1.5, frame);
  return frame;
}

void ExpectAsVllm(const EngineRequest& request, const std::string& name,
                  uint64_t life = kVllmLife) {
  EXPECT_EQ(testing::PrintToString(Written(request, life)),
            testing::PrintToString(VllmMessage(name).at(0)));
}

EngineRequest FullRequest() {
  EngineRequest request = PlainVllmRequest();
  request.address = {(1 << 24) - 1, std::numeric_limits<uint32_t>::max()};
  SamplingParams& params = request.params;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = -0.25f;
  params.repetition_penalty = 1.25f;
  params.temperature = 0.75f;
  params.top_p = 0.5f;
  params.top_k = 40;
  params.min_p = 0.125f;
  params.stop_token_ids = {2, 7};
  params.min_tokens = 3;
  params.logprobs = 5;
  params.logit_bias = {{3, -200.0f}, {70000, 1.5f}};
  params.allowed_token_ids = {1, 2, 3, 70000};
  params.bad_words = {{4}, {5, 6}};
  params.seed = UINT64_MAX - 3;
  request.choice = 3;
  request.max_tokens = 20;
  request.prompt_logprobs = 0;
  request.text.stops = {"not for the engine"};
  return request;
}

TEST(VllmRequest, HasTheBytesOfVllmsEncoder) {
  EngineRequest request = PlainVllmRequest();
  ExpectAsVllm(request, "request.plain");
  request.params.top_k = -1;  // all, as 0
  ExpectAsVllm(request, "request.plain");
  ExpectAsVllm(FullRequest(), "request.everything", UINT64_MAX);
}

TEST(VllmRequest, SaysToWhichClientItsOutputsGo) {
  std::string frame;
  link::vllm::WriteAdd(PlainVllmRequest(), kVllmLife, 1, {}, 1.5, frame);
  EXPECT_EQ(testing::PrintToString(frame),
            testing::PrintToString(VllmMessage("request.second_client").at(0)));
}

TEST(VllmRequest, HasTheSaltOfItsCacheAndItsAdapter) {
  EngineRequest request = PlainVllmRequest();
  request.extras.cache_salt = "salt";
  ExpectAsVllm(request, "request.salted");
  std::string frame;
  link::vllm::WriteAdd(request, kVllmLife, 0, {.name = "a", .path = "/b", .number = 3}, 1.5, frame);
  std::string with = VllmMessage("request.salted").at(0);
  const std::string salt = "\xc0\xa4salt";  // a nil before it
  with.replace(with.find(salt), salt.size(),
               "\x93\xa1"
               "a"
               "\x03\xa2/b"
               "\xa4salt");
  EXPECT_EQ(testing::PrintToString(frame), testing::PrintToString(with));
}

TEST(VllmRequest, OfAGreedyOneHasNoFilters) {
  EngineRequest request = PlainVllmRequest();
  request.params.temperature = 0;
  request.params.top_p = 0.5f;
  request.params.top_k = 3;
  request.params.min_p = 0.5f;
  request.max_tokens = 1000;
  ExpectAsVllm(request, "request.greedy");
}

TEST(VllmRequest, ForThePromptAloneAsksForOneToken) {
  EngineRequest request = PlainVllmRequest();
  request.params.seed = 0;
  request.max_tokens = 0;
  request.prompt_logprobs = 3;
  request.params.min_tokens = 9;
  std::string more = Written(request);
  EXPECT_NE(more, VllmMessage("request.prompt_alone").at(0));  // as many as there will be
  request.params.min_tokens = 0;
  ExpectAsVllm(request, "request.prompt_alone");
}

// vLLM's frontend writes the field so, and its engine has the markers.
TEST(VllmRequest, HasABudgetOfReasoning) {
  EngineRequest request = PlainVllmRequest();
  const size_t without = Written(request).size();
  request.thinking = ThinkingBudget{.tokens = 5, .is_open = true};
  const std::string entry = "\xB5thinking_token_budget\x05";
  EXPECT_NE(Written(request).find(entry), std::string::npos);
  EXPECT_EQ(Written(request).size(), without + entry.size());
}

EngineRequest RequestWith(const OutputGrammar& grammar) {
  EngineRequest request = PlainVllmRequest();
  request.params.stop_token_ids = {2};
  request.grammar = grammar;
  return request;
}

TEST(VllmRequest, HasItsGrammarInTheWordsOfVllm) {
  const auto expect = [](const OutputGrammar& grammar, const char* name) {
    EngineRequest request = RequestWith(grammar);
    request.params.logit_bias = {{3, 1.5f}};
    ExpectAsVllm(request, name);
  };
  expect({.kind = GrammarKind::kJsonSchema, .text = R"({"type":"object"})"}, "request.json");
  expect({.kind = GrammarKind::kJsonObject}, "request.json_object");
  expect({.kind = GrammarKind::kRegex, .text = "a+"}, "request.regex");
  for (const GrammarKind kind : {GrammarKind::kEbnf, GrammarKind::kLark}) {
    expect({.kind = kind, .text = "root ::= \"a\""}, "request.grammar");
  }
  expect({.kind = GrammarKind::kStructuralTag, .text = "{}", .options = {.max_whitespace = 0}},
         "request.structural_tag");
}

// With a budget the answer alone has the grammar: the engine begins it at the end of reasoning.
TEST(VllmRequest, HasItsGrammarAfterReasoningOfABudget) {
  EngineRequest request = RequestWith({.kind = GrammarKind::kJsonObject});
  request.thinking = ThinkingBudget{.tokens = 9, .is_open = true};
  ExpectAsVllm(request, "request.reasoning_open");
  request.thinking->is_open = false;
  ExpectAsVllm(request, "request.reasoning_unknown");
}

// vLLM orders the requests of all by it.
TEST(VllmRequest, HasAPriorityOnlyWhereItOrdersAllRequests) {
  const auto bytes_of = [](uint64_t group, int32_t priority) {
    EngineRequest request = PlainVllmRequest();
    request.group = group;
    request.priority = priority;
    return Written(request, kVllmLife);
  };
  EXPECT_EQ(bytes_of(7, -5), bytes_of(7, 0));
  EXPECT_NE(bytes_of(0, -5), bytes_of(0, 0));
}

TEST(VllmRequest, HasAGrammarThatTheEngineCanFollow) {
  const auto error_of = [](const EngineRequest& request) -> std::string {
    try {
      link::vllm::CheckRequest(request);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidValue);
      return error.what();
    }
  };
  const EngineRequest good =
      RequestWith({.kind = GrammarKind::kJsonSchema, .text = R"({"type":"object"})"});
  EXPECT_EQ(error_of(good), "");
  EngineRequest bad = good;
  bad.params.allowed_token_ids = {1, 2};
  EXPECT_TRUE(error_of(bad).starts_with("allowed_token_ids = ")) << error_of(bad);
  bad = good;
  bad.params.bad_words = {{1}};
  EXPECT_TRUE(error_of(bad).starts_with("bad_words = ")) << error_of(bad);
  bad = good;
  bad.params.stop_token_ids = {};
  EXPECT_NE(error_of(bad).find("end tokens"), std::string::npos) << error_of(bad);
  bad = RequestWith({.kind = GrammarKind::kRegex, .text = "a^b"});
  EXPECT_TRUE(error_of(bad).starts_with("regex = ")) << error_of(bad);
  bad = good;
  bad.grammar->text = R"({"type":"object","properties":{"a":{"not":{}}}})";
  EXPECT_EQ(error_of(bad),
            "json_schema = a schema is not allowed: \"not\" is not a supported keyword, at "
            "/properties/a/not");
  bad.grammar->text = std::string(100, '[') + std::string(100, ']');
  EXPECT_NE(error_of(bad).find("64 levels"), std::string::npos) << error_of(bad);
  bad.grammar->text = std::string(GrammarLimits{}.text_bytes + 1, ' ');
  EXPECT_NE(error_of(bad).find("at most 256 KiB"), std::string::npos) << error_of(bad);
  bad.grammar = {.kind = GrammarKind::kStructuralTag,
                 .text = R"({"format":{"type":"json_schema","json_schema":{"not":{}}}})"};
  EXPECT_TRUE(error_of(bad).starts_with("structural_tag = ")) << error_of(bad);
}

TEST(VllmRequest, HasItsAddressAsItsId) {
  for (const RequestAddress address :
       {RequestAddress{0, 1}, RequestAddress{(1 << 24) - 1, UINT32_MAX}}) {
    const std::string id = link::vllm::RequestIdOf(UINT64_MAX, address);
    EXPECT_EQ(link::vllm::AddressOf(UINT64_MAX, id), address);
    EXPECT_LT(link::vllm::AddressOf(1, id).slot, 0);  // of another life
    EXPECT_LE(id.size(), link::vllm::kMostIdBytes);
  }
  EXPECT_EQ(link::vllm::AddressOf(7, "sluice-7-1-2"), (RequestAddress{1, 2}));
  for (const char* const id :
       {"", "sluice-", "sluice-7", "sluice-7-1", "sluice-7-1-", "sluice-7-1-2-3", "sluice-7--2",
        "sluice-7-1-4294967296", "sluice-7-99999999999-1", "sluice-77777777777777777777-1-2",
        "sluice--1-2", "sluice-1-2", "other-7-1-2"}) {
    EXPECT_LT(link::vllm::AddressOf(7, id).slot, 0) << id;
  }
}

TEST(VllmRequest, AbortsAndPingsHaveTheBytesOfMsgspec) {
  std::string frame;
  const RequestAddress addresses[] = {{1, 2}, {0, 1}};
  link::vllm::WriteAbort(addresses, kVllmLife, frame);
  EXPECT_EQ(frame, VllmMessage("abort").at(0));
  const std::string ids[] = {"sluice-77-1-2", "sluice-77-0-1"};
  link::vllm::WriteAbort(ids, frame);
  EXPECT_EQ(frame, VllmMessage("abort").at(0));
  link::vllm::WritePing(0, 7, frame);
  EXPECT_EQ(frame, VllmMessage("ping").at(0));
}

// What a client is told: a 400 that names the parameter.
void ExpectRefused(const char* parameter, const std::function<void(SamplingParams&)>& set) {
  EngineRequest request = PlainVllmRequest();
  link::vllm::CheckRequest(request);
  set(request.params);
  try {
    link::vllm::CheckRequest(request);
    ADD_FAILURE() << parameter << " is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidValue);
    EXPECT_EQ(error.parameter(), parameter);
    EXPECT_FALSE(error.allowed().empty());
  }
}

TEST(VllmRequest, RefusesByNameWhatTheEngineHasNot) {
  ExpectRefused("top_n_sigma", [](auto& params) { params.top_n_sigma = 1; });
  ExpectRefused("typical_p", [](auto& params) { params.typical_p = 0.5f; });
  ExpectRefused("xtc_probability", [](auto& params) { params.xtc_probability = 0.5f; });
  ExpectRefused("dry_multiplier", [](auto& params) { params.dry_multiplier = 0.8f; });
  ExpectRefused("temperature", [](auto& params) { params.temperature = 2.5f; });
  ExpectRefused("profile", [](auto& params) { params.profile.ties = Ties::kAll; });
  ExpectRefused("draw_method", [](auto& params) { params.draw_method = DrawMethod::kCdf; });
  ExpectRefused("draft_mode", [](auto& params) { params.draft_mode = DraftMode::kReject; });
  ExpectRefused("logprobs_mode",
                [](auto& params) { params.logprob_mode = LogprobMode::kProcessedLogits; });
}

// Each of these would end the engine's process.
TEST(VllmRequest, RefusesByNameWhatTheEngineHasNoRoomFor) {
  ExpectRefused("logit_bias", [](auto& params) { params.logit_bias = {{1, 1}, {1, 2}}; });
  ExpectRefused("logit_bias", [](auto& params) {
    for (int32_t id = 0; id < 1025; ++id) params.logit_bias.push_back({id, 1});
  });
  ExpectRefused("allowed_token_ids",
                [](auto& params) { params.allowed_token_ids = TokenIds(1025, 1); });
  ExpectRefused("stop_token_ids", [](auto& params) { params.stop_token_ids = TokenIds(129, 1); });
  ExpectRefused("bad_words", [](auto& params) { params.bad_words = TokenSequences(129, {1}); });
  ExpectRefused("bad_words", [](auto& params) { params.bad_words = {TokenIds(1025, 1)}; });
}

// It would draw from NaN.
TEST(VllmRequest, RefusesThatNothingIsLeftToDraw) {
  ExpectRefused("allowed_token_ids", [](auto& params) {
    params.allowed_token_ids = {5, 6};
    params.stop_token_ids = {6, 5};
    params.min_tokens = 1;
  });
  ExpectRefused("allowed_token_ids", [](auto& params) {
    params.allowed_token_ids = {5, 6};
    params.stop_token_ids = {6};
    params.bad_words = {{5}, {7, 5}};
    params.min_tokens = 1;
  });
  EngineRequest request = PlainVllmRequest();
  request.params.allowed_token_ids = {5, 6};
  request.params.stop_token_ids = {5, 6};
  link::vllm::CheckRequest(request);  // the first token is a stop, and may be
  request.params.min_tokens = 1;
  request.params.stop_token_ids = {5};
  request.params.bad_words = {{6, 6}};
  link::vllm::CheckRequest(request);
}

TEST(VllmHandshake, ReadsAndWritesTheBytesOfMsgspec) {
  link::vllm::Greeting greeting;
  EXPECT_EQ(link::vllm::ReadGreeting(VllmMessage("handshake.hello").at(0), greeting), "");
  EXPECT_TRUE(greeting.is_hello && greeting.is_headless);
  EXPECT_EQ(link::vllm::ReadGreeting(VllmMessage("handshake.ready").at(0), greeting), "");
  EXPECT_FALSE(greeting.is_hello);

  std::string frame;
  const std::vector<std::string> inputs = {"tcp://127.0.0.1:1", "tcp://127.0.0.1:3"};
  const std::vector<std::string> outputs = {"tcp://127.0.0.1:2", "tcp://127.0.0.1:4"};
  link::vllm::WriteAddresses(std::span(inputs).first(1), std::span(outputs).first(1), frame);
  EXPECT_EQ(frame, VllmMessage("handshake.addresses").at(0));
  link::vllm::WriteAddresses(inputs, outputs, frame);
  EXPECT_EQ(frame, VllmMessage("handshake.two_clients").at(0));
  EXPECT_EQ(link::vllm::IdentityOf(258), "\2\1");
  EXPECT_EQ(link::vllm::RankOf("\2\1"), 258);
  EXPECT_EQ(link::vllm::RankOf("abc"), -1);

  link::vllm::EngineFacts facts;
  EXPECT_EQ(link::vllm::ReadEngineFacts(VllmMessage("handshake.facts").at(0), facts), "");
  EXPECT_EQ(facts.version, "0.33.0");
  EXPECT_EQ(facts.context, 4096);
  EXPECT_EQ(facts.max_requests, 256);
  EXPECT_EQ(facts.added + facts.missing, "");
}

TEST(VllmHandshake, KnowsWhichVersionsSpeakSo) {
  using enum link::vllm::VersionFit;
  for (const char* const known : {"0.33.0", "0.32.0", "0.31.2", "0.33.1+cpu"}) {
    EXPECT_EQ(link::vllm::FitOf(known), kKnown) << known;
  }
  for (const char* const newer : {"0.34.0", "0.330.1", "1.0.0", "0.34.0rc1"}) {
    EXPECT_EQ(link::vllm::FitOf(newer), kNewer) << newer;
  }
  for (const char* const other : {"", "0.33", "0.3", "0.30.0", "0.33.", "0.-1.0", "x.33.0"}) {
    EXPECT_EQ(link::vllm::FitOf(other), kOther) << other;
  }
}

// Of 0.31 and 0.32: a request is the same, and what comes lacks fields at its end.
TEST(VllmHandshake, OfOlderVersionsIsReadToo) {
  int facts_read = 0, outputs_read = 0;
  for (const auto& [name, frames] : OlderVllmMessages()) {
    const std::string version = name.substr(0, name.find('/'));
    const std::string kind = name.substr(name.find('/') + 1);
    if (kind == "handshake.facts") {
      link::vllm::EngineFacts facts;
      EXPECT_EQ(link::vllm::ReadEngineFacts(frames.at(0), facts), "") << name;
      EXPECT_EQ(facts.version, version);
      EXPECT_EQ(facts.context, 4096);
      EXPECT_EQ(facts.added, "");
      EXPECT_EQ(facts.missing,
                "coord_store_port, coordinator_input_address, coordinator_output_address");
      ++facts_read;
      continue;
    }
    ASSERT_TRUE(kind.starts_with("outputs.")) << name;
    link::vllm::EngineCoreOutputs older, newest;
    EXPECT_EQ(link::vllm::ReadOutputs(Views(frames), older), "") << name;
    EXPECT_EQ(link::vllm::ReadOutputs(Views(VllmMessage(kind)), newest), "") << name;
    ASSERT_EQ(older.outputs.size(), newest.outputs.size()) << name;
    for (size_t i = 0; i < older.outputs.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(older.outputs[i].ids, newest.outputs[i].ids)) << name;
      EXPECT_EQ(older.outputs[i].finish, newest.outputs[i].finish) << name;
      EXPECT_EQ(older.outputs[i].cached_tokens, newest.outputs[i].cached_tokens) << name;
    }
    EXPECT_EQ(older.answered, newest.answered) << name;
    ++outputs_read;
  }
  EXPECT_EQ(facts_read, 2);
  EXPECT_GT(outputs_read, 10);
}

TEST(VllmHandshake, SaysHowANewerVersionDiffers) {
  // 0.33's with another version, a field more and one less.
  const std::string facts_of_33 = VllmMessage("handshake.facts").at(0);
  std::string bytes = Renamed(facts_of_33, "0.33.0", "0.34.0");
  bytes = Renamed(bytes, "dtype", "shape");
  link::vllm::EngineFacts facts;
  EXPECT_EQ(link::vllm::ReadEngineFacts(bytes, facts), "");
  EXPECT_EQ(link::vllm::NewerThanKnown(facts),
            "it is vLLM 0.34.0, newer than those that are known (0.31, 0.32 or 0.33); its greeting "
            "has in addition shape; it lacks dtype");
}

TEST(VllmHandshake, RefusesWhatIsCut) {
  for (const char* const name : {"handshake.hello", "handshake.facts"}) {
    const std::string whole = VllmMessage(name).at(0);
    for (size_t size = 0; size < whole.size(); ++size) {
      link::vllm::Greeting greeting;
      link::vllm::EngineFacts facts;
      EXPECT_NE(link::vllm::ReadGreeting(whole.substr(0, size), greeting), "");
      EXPECT_NE(link::vllm::ReadEngineFacts(whole.substr(0, size), facts), "");
    }
  }
}

}  // namespace
}  // namespace sluice::test
