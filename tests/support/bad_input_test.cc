// Every wrong argument of every function on rows is an Error that names it, before anything is
// touched. The sampler's are in sampler/bad_request_test.cc.
//
// Built twice: SLUICE_OVER_C makes the same calls through the C interface, with the same answers.
#include "tests/support/bad_input.h"

#include <cstdlib>
#include <limits>

#include "tests/support/first_difference.h"
#include "tests/support/run.h"
#if SLUICE_OVER_C
#include "tests/capi/over_c.h"
namespace api = sluice::over_c;
#else
namespace api = sluice;
#endif

namespace sluice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Good arguments for every function: two rows of four tokens, hidden states of three values.
struct Call {
  std::vector<float> values = {0, 1, 2, 3, 3, 2, 1, 0};
  LogitsView logits{values.data(), 2, 4, 4};
  MutableLogitsView mutable_logits{values.data(), 2, 4, 4};
  std::vector<SelectParams> params = std::vector<SelectParams>(1);
  std::vector<NoiseKey> keys = std::vector<NoiseKey>(1);
  Workspace memory{4096};
  Execution execution{Backend::kRef, {}, memory.span()};

  std::vector<Cut> cuts = std::vector<Cut>(2, {.lower = 0.0f, .ties_kept = 1, .count = 4});
  std::vector<CutMass> masses = std::vector<CutMass>(2);
  std::vector<TokenResult> results = std::vector<TokenResult>(2, {.id = 0});
  std::vector<int32_t> bitmask = std::vector<int32_t>(2);

  std::vector<int64_t> offsets = {0, 4, 8};
  std::vector<int32_t> ids = std::vector<int32_t>(8);
  std::vector<float> collected = std::vector<float>(8);
  std::vector<uint64_t> weights = std::vector<uint64_t>(8);

  int32_t width = 3;
  std::vector<int32_t> listed_ids = std::vector<int32_t>(6);
  std::vector<float> listed_values = std::vector<float>(6);

  std::vector<int64_t> first_row = {0, 2};
  std::vector<int32_t> draft_ids = {1, -1};
  std::vector<float> q = std::vector<float>(8, 0.25f);
  Drafts drafts{};
  DraftMode mode = DraftMode::kReject;
  CandidateOrder order = CandidateOrder::kById;
  std::vector<int32_t> emitted = std::vector<int32_t>(1);

  TopkInput topk{.scores = logits, .k = 2};
  std::vector<int32_t> lengths = {4, 4};
  std::vector<int32_t> hint = std::vector<int32_t>(6);
  std::vector<int32_t> indices = std::vector<int32_t>(4);
  std::vector<float> top_values = std::vector<float>(4);
  std::vector<RowStatus> statuses = std::vector<RowStatus>(2);

  std::vector<float> weight_values = std::vector<float>(12);
  std::vector<float> bias = std::vector<float>(4);
  MatrixView weight{weight_values.data(), 4, 3, 3};
  MatrixView hidden{weight_values.data(), 2, 3, 3};
  std::vector<int32_t> query_start_loc = {};

  std::vector<Shard> shards = {{logits, 0}, {logits, 4}};

  SelectInput Input() const { return {logits, params, keys}; }
  MatrixView Q() const { return {q.data(), 2, 4, 4}; }
};

using Cases = std::vector<BadCase<Call>>;
constexpr auto kLogits = [](Call& c) -> LogitsView& { return c.logits; };

Cases WorkspaceCases() {
  return {
      {[](Call& c) { c.execution.parallel.workers = 0; }, "execution.parallel.workers", "0",
       "[1, 65536]"},
      {[](Call& c) { c.execution.parallel.workers = -7; }, "execution.parallel.workers", "-7",
       "[1, 65536]"},
      {[](Call& c) { c.execution.workspace = c.execution.workspace.first(63); },
       "execution.workspace.size()", "63", "at least 64"},
      {[](Call& c) { c.execution.workspace = c.execution.workspace.subspan(4); },
       "execution.workspace.data()", "a misaligned pointer", "a multiple of 64"},
      {[](Call& c) { c.execution.backend = static_cast<Backend>(99); }, "backend", "99",
       "a backend of Backends()"},
  };
}

Cases InputCases(const std::string& prefix = "") {
  Cases cases = ViewCases<Call>(prefix + "logits", "vocab", 4, kMaxVocab, kLogits);
  Append(cases, WorkspaceCases());
  Append(cases, {{[](Call& c) { c.params.clear(); }, prefix + "params.size()", "0",
                  "1 or the number of rows, 2"},
                 {[](Call& c) { c.params.resize(3); }, prefix + "params.size()", "3",
                  "1 or the number of rows, 2"}});
  return cases;
}

BadCase<Call> NoKeys(const std::string& prefix = "") {
  return {[](Call& c) { c.keys.clear(); }, prefix + "keys.size()", "0",
          "1 or the number of rows, 2"};
}
BadCase<Call> ThreeCuts() {
  return {[](Call& c) { c.cuts.resize(3); }, "cuts.size()", "3", "2"};
}
BadCase<Call> OneResult() {
  return {[](Call& c) { c.results.resize(1); }, "results.size()", "1", "2"};
}

TEST(BadInput, SelectWorkspaceBytes) {
  Cases cases = ViewCases<Call>("logits", "vocab", 4, kMaxVocab, kLogits);
  ExpectErrors(cases, [](Call& c) { api::SelectWorkspaceBytes(c.logits, c.execution); });
}

TEST(BadInput, Select) {
  Cases cases = InputCases();
  Append(cases,
         {ThreeCuts(),
          {[](Call& c) { c.masses.resize(1); }, "masses.size()", "1", "2"},
          {[](Call& c) { c.keys.resize(3); }, "keys.size()", "3", "1 or the number of rows, 2"},
          {[](Call& c) {
             c.keys.clear();
             c.params[0].xtc_probability = 0.5f;
           },
           "keys", "empty", "one NoiseKey for all rows or one a row when XTC is on"}});
  ExpectErrors(cases, [](Call& c) { api::Select(c.Input(), c.cuts, c.masses, c.execution); });
}

TEST(BadInput, Mask) {
  Cases cases = ViewCases<Call>("logits", "vocab", 4, kMaxVocab,
                                [](Call& c) -> MutableLogitsView& { return c.mutable_logits; });
  cases.push_back(ThreeCuts());
  ExpectErrors(cases, [](Call& c) { api::Mask(c.mutable_logits, c.cuts, c.execution); });
}

TEST(BadInput, KeptBitmask) {
  Cases cases = ViewCases<Call>("logits", "vocab", 4, kMaxVocab, kLogits);
  Append(cases, {ThreeCuts(), {[](Call& c) { c.bitmask.resize(3); }, "bitmask.size()", "3", "2"}});
  ExpectErrors(cases, [](Call& c) { api::KeptBitmask(c.logits, c.cuts, c.bitmask, c.execution); });
}

TEST(BadInput, Collect) {
  Cases cases = InputCases();
  Append(cases, {ThreeCuts(),
                 {[](Call& c) { c.offsets.resize(2); }, "candidates.offsets.size()", "2", "3"},
                 {[](Call& c) { c.offsets = {0, 3, 8}; }, "candidates.offsets", "3",
                  "the running sum of the Cuts' counts, 4"},
                 {[](Call& c) { c.cuts[1].count = -5; }, "cuts.count", "-5", "[0, 4]"},
                 {[](Call& c) { c.offsets = {1, 5, 9}; }, "candidates.offsets[0]", "1", "0"},
                 {[](Call& c) { c.ids.resize(7); }, "candidates.ids.size()", "7", "8"},
                 {[](Call& c) { c.collected.resize(9); }, "candidates.logits.size()", "9", "8"},
                 {[](Call& c) { c.weights.resize(1); }, "candidates.weights.size()", "1", "8"},
                 {[](Call& c) { c.order = CandidateOrder{2}; }, "order", "2", "[0, 1]"}});
  ExpectErrors(cases, [](Call& c) {
    api::Collect(c.Input(), c.cuts, c.order, {c.offsets, c.ids, c.collected, c.weights},
                 c.execution);
  });
}

TEST(BadInput, Draw) {
  Cases cases = InputCases();
  Append(cases, {ThreeCuts(), OneResult(), NoKeys()});
  ExpectErrors(cases, [](Call& c) {
    api::Draw(c.Input(), DrawMethod::kGumbel, c.cuts, c.results, c.execution);
  });
}

TEST(BadInput, Sample) {
  Cases cases = InputCases();
  Append(cases, {OneResult(), NoKeys()});
  ExpectErrors(cases,
               [](Call& c) { api::Sample(c.Input(), DrawMethod::kCdf, c.results, c.execution); });
}

TEST(BadInput, Logprobs) {
  Cases cases = InputCases();
  Append(cases, {OneResult(),
                 {[](Call& c) { c.width = -1; }, "lists.width", "-1", "[0, 5]"},
                 {[](Call& c) { c.width = 6; }, "lists.width", "6", "[0, 5]"},
                 {[](Call& c) { c.width = 2; }, "lists.ids.size()", "6", "4"},
                 {[](Call& c) { c.listed_values.resize(5); }, "lists.values.size()", "5", "6"},
                 {[](Call& c) { c.results[1].id = 4; }, "results.id", "4", "[0, 3]"}});
  ExpectErrors(cases, [](Call& c) {
    api::Logprobs({c.logits, LogprobMode::kRawLogprobs, c.params}, c.results,
                  {c.width, c.listed_ids, c.listed_values}, c.execution);
  });
}

TEST(BadInput, VerifyWorkspaceBytes) {
  Cases cases = ViewCases<Call>("logits", "vocab", 4, kMaxVocab, kLogits);
  ExpectErrors(cases, [](Call& c) { api::VerifyWorkspaceBytes(c.logits, c.execution); });
}

// The drafts of the call, its vectors included.
void RunVerify(Call& c) {
  c.drafts.first_row = c.first_row;
  c.drafts.ids = c.draft_ids;
  api::Verify(c.Input(), c.drafts, c.mode, DrawMethod::kGumbel, c.results, c.emitted, c.execution);
}

TEST(BadInput, Verify) {
  Cases cases = InputCases("target.");
  Append(cases, {OneResult(),
                 NoKeys("target."),
                 {[](Call& c) { c.first_row.clear(); }, "drafts.first_row", "empty",
                  "requests + 1 elements"},
                 {[](Call& c) { c.draft_ids.resize(1); }, "drafts.ids.size()", "1", "2"},
                 {[](Call& c) { c.draft_ids[0] = 4; }, "drafts.ids", "4", "[0, 3]"},
                 {[](Call& c) { c.draft_ids[0] = -1; }, "drafts.ids", "-1", "[0, 3]"},
                 {[](Call& c) { c.emitted.resize(2); }, "emitted.size()", "2", "1"},
                 {[](Call& c) { c.mode = DraftMode{7}; }, "mode", "7", "[0, 1]"},
                 {[](Call& c) { c.first_row = {1, 2}; }, "drafts.first_row[0]", "1", "0"},
                 {[](Call& c) { c.first_row = {0, 3}; }, "drafts.first_row[requests]", "3", "2"},
                 {[](Call& c) {
                    c.first_row = {0, 0, 2};
                    c.emitted.resize(2);
                  },
                  "drafts.first_row", "0", "[1, 2]"}});
  ExpectErrors(cases, RunVerify);
}

TEST(BadInput, VerifyWithProbabilities) {
  Cases cases = ViewCases<Call>("drafts.probabilities", "columns", 4, kMaxVocab,
                                [](Call& c) -> MatrixView& { return c.drafts.probabilities; });
  std::erase_if(cases, [](const auto& c) { return c.value == "null"; });  // that is: none given
  Append(cases,
         {{[](Call& c) { c.drafts.probabilities.rows = 1; }, "drafts.probabilities.rows", "1", "2"},
          {[](Call& c) { c.drafts.probabilities.columns = 3; }, "drafts.probabilities.columns", "3",
           "4"},
          {[](Call& c) { c.drafts.probabilities.dtype = DType::kF16; },
           "drafts.probabilities.dtype", "float16", "float32", ErrorCode::kInvalidType},
          {[](Call& c) { c.drafts.model.logits = c.logits; }, "drafts.probabilities",
           "given with drafts.model", "at most one of the two"}});
  struct WithQ : Call {
    WithQ() { drafts.probabilities = Q(); }
  };
  std::vector<BadCase<WithQ>> own;
  for (const auto& c : cases) own.push_back({c.spoil, c.parameter, c.value, c.allowed, c.code});
  ExpectErrors(own, RunVerify);
}

TEST(BadInput, VerifyWithASluiceDraft) {
  struct WithSluice : Call {
    WithSluice() {
      drafts.model = Input();
      drafts.model_cuts = cuts;
    }
  };
  auto cases =
      ViewCases<WithSluice>("drafts.model.logits", "vocab", 4, kMaxVocab,
                            [](WithSluice& c) -> LogitsView& { return c.drafts.model.logits; });
  std::erase_if(cases, [](const auto& c) { return c.value == "null"; });
  Append(cases,
         {{[](WithSluice& c) { c.drafts.model.params = {}; }, "drafts.model.params.size()", "0",
           "1 or the number of rows, 2"},
          {[](WithSluice& c) { c.drafts.model.logits.rows = 1; }, "drafts.model.logits.rows", "1",
           "2"},
          {[](WithSluice& c) { c.drafts.model.logits.vocab = 3; }, "drafts.model.logits.vocab", "3",
           "4"},
          {[](WithSluice& c) { c.drafts.model_cuts = {}; }, "drafts.model_cuts.size()", "0", "2"}});
  ExpectErrors(cases, RunVerify);
}

TEST(BadInput, Topk) {
  Cases cases = ViewCases<Call>("scores", "vocab", 4, kMaxVocab,
                                [](Call& c) -> LogitsView& { return c.topk.scores; });
  Append(cases, WorkspaceCases());
  Append(cases,
         {{[](Call& c) { c.topk.k = 0; }, "k", "0", "[1, 8388608]"},
          {[](Call& c) { c.topk.k = -5; }, "k", "-5", "[1, 8388608]"},
          {[](Call& c) { c.topk.k = 3; }, "indices.size()", "4", "6"},
          {[](Call& c) { c.topk.next_n = 0; }, "next_n", "0", "[1, 65536]"},
          {[](Call& c) { c.topk.next_n = 3; }, "scores.rows", "2", "a multiple of next_n, 3"},
          {[](Call& c) { c.topk.lengths = std::span(c.lengths).first(1); }, "lengths.size()", "1",
           "2"},
          {[](Call& c) {
             c.lengths[1] = 5;
             c.topk.lengths = c.lengths;
           },
           "lengths", "5", "[0, 4]"},
          {[](Call& c) {
             c.lengths[0] = -1;
             c.topk.lengths = c.lengths;
           },
           "lengths", "-1", "[0, 4]"},
          {[](Call& c) { c.topk.hint_columns = -1; }, "hint_columns", "-1", "[0, 8388608]"},
          {[](Call& c) { c.topk.hint_columns = 3; }, "hint.size()", "0", "6"},
          {[](Call& c) { c.topk.hint = c.hint; }, "hint.size()", "6", "0"},
          {[](Call& c) { c.topk.thresholds = c.top_values; }, "thresholds.size()", "4", "2"},
          {[](Call& c) { c.top_values.resize(3); }, "values.size()", "3", "4"},
          {[](Call& c) { c.statuses.resize(1); }, "statuses.size()", "1", "2"}});
  ExpectErrors(
      cases, [](Call& c) { api::Topk(c.topk, c.indices, c.top_values, c.statuses, c.execution); });
}

TEST(BadInput, Project) {
  constexpr int64_t kMaxDim = 1 << 20;
  Cases cases = ViewCases<Call>("head.weight", "dim", 3, kMaxDim,
                                [](Call& c) -> MatrixView& { return c.weight; });
  Append(cases, ViewCases<Call>("hidden", "dim", 3, kMaxDim,
                                [](Call& c) -> MatrixView& { return c.hidden; }));
  Append(cases, ViewCases<Call>("logits", "vocab", 4, kMaxVocab,
                                [](Call& c) -> MutableLogitsView& { return c.mutable_logits; }));
  Append(cases,
         {{[](Call& c) { c.weight.rows = 0; }, "head.weight.rows", "0", "[1, 8388608]"},
          {[](Call& c) { c.bias.resize(3); }, "head.bias.size()", "3", "4"},
          {[](Call& c) { c.hidden.columns = 2; }, "hidden.dim", "2", "3"},
          {[](Call& c) { c.mutable_logits.vocab = 3; }, "logits.vocab", "3", "4"},
          {[](Call& c) { c.mutable_logits.rows = 1; }, "logits.rows", "1", "2"},
          {[](Call& c) { c.mutable_logits.dtype = DType::kBf16; }, "logits.dtype", "bfloat16",
           "float32", ErrorCode::kInvalidType},
          {[](Call& c) { c.query_start_loc = {0, 2}; }, "logits.rows", "2", "1"},
          {[](Call& c) { c.query_start_loc = {0, 1, 3}; }, "query_start_loc", "3", "[2, 2]"},
          {[](Call& c) { c.query_start_loc = {-1, 1, 2}; }, "query_start_loc", "-1", "[0, 1]"},
          {[](Call& c) { c.query_start_loc = {0, 0, 2}; }, "query_start_loc", "0", "[1, 2]"},
          {[](Call& c) { c.execution.parallel.workers = 0; }, "execution.parallel.workers", "0",
           "[1, 65536]"}});
  // A range of one value is written as the value.
  for (BadCase<Call>& c : cases) c.allowed = c.allowed == "[2, 2]" ? "2" : c.allowed;
  ExpectErrors(cases, [](Call& c) {
    api::Project({c.weight, c.bias}, c.hidden, c.query_start_loc, c.mutable_logits, c.execution);
  });
}

TEST(BadInput, Shards) {
  Cases cases = ViewCases<Call>("shards.logits", "vocab", 4, kMaxVocab,
                                [](Call& c) -> LogitsView& { return c.shards[1].logits; });
  std::erase_if(cases, [](const auto& c) { return c.parameter == "shards.logits.rows"; });
  Append(cases, {{[](Call& c) { c.shards.clear(); }, "shards.size()", "0", "at least 1"},
                 {[](Call& c) { c.shards[1].logits.rows = 1; }, "shards.logits.rows", "1", "2"},
                 {[](Call& c) { c.shards[0].first_id = 1; }, "shards.first_id", "1", "0"},
                 {[](Call& c) { c.shards[1].first_id = 3; }, "shards.first_id", "3", "4"},
                 {[](Call& c) {
                    c.shards[1].logits.vocab = kMaxVocab;
                    c.shards[1].logits.stride = kMaxVocab;
                  },
                  "the vocabulary of all shards", "8388612", "[1, 8388608]"},
                 {[](Call& c) { c.params.resize(3); }, "params.size()", "3",
                  "1 or the number of rows, 2"}});
  Cases sample = cases;
  Append(sample, {OneResult(), NoKeys()});
  ExpectErrors(sample, [](Call& c) {
    api::SampleShards({c.shards, c.params, c.keys, {}}, DrawMethod::kCdf, c.results, {});
  });
  ExpectErrors(cases,
               [](Call& c) { api::SelectShards({c.shards, c.params, c.keys, {}}, c.cuts, {}); });
}

TEST(BadInput, StridesAndWorkersCannotOverflow) {
  Call call;
  call.logits.stride = INT64_MAX;
  ExpectError([&] { api::Select(call.Input(), call.cuts, {}, call.execution); }, "logits.stride",
              std::to_string(INT64_MAX), "at most 2^61 elements in all rows");
  Call idle;
  ExpectError([&] { api::SelectWorkspaceBytes(idle.logits, {.parallel = {.workers = -1}}); },
              "execution.parallel.workers", "-1", "[1, 65536]");
  ExpectError([&] { api::ShardCut({}, -1, 0); }, "ties_before_upper", "-1", "[0, 8388608]");
  ExpectError([&] { api::Sample(idle.Input(), DrawMethod{7}, idle.results, idle.execution); },
              "draw_method", "7", "gumbel or cdf");
}

// A Cut, key or row that does not go with the rest is the row's status, never a wrong token.
TEST(BadInput, ADrawTrustsNeitherCutNorRow) {
  Call call;
  auto drawn = [&call](const Cut& cut) {
    call.cuts.assign(2, cut);
    api::Draw(call.Input(), DrawMethod::kCdf, call.cuts, call.results, call.execution);
    return call.results[0];
  };
  EXPECT_EQ(drawn(Cut{}).status, RowStatus::kEmptySupport);
  EXPECT_EQ(drawn(Cut{}).id, -1);
  const Cut all{.lower = 0.0f, .ties_kept = 1, .count = 4};
  EXPECT_EQ(drawn(all).status, RowStatus::kOk);
  call.params[0].temperature = 0.0f;
  EXPECT_EQ(drawn(all).id, 3);  // greedy on a Cut that is not
  call.params[0].temperature = kNan;
  EXPECT_EQ(drawn(all).status, RowStatus::kBadParam);
  call.params[0].temperature = 1.0f;
  call.keys[0].choice = 1u << 24;
  EXPECT_EQ(drawn(all).status, RowStatus::kBadParam);
  call.keys[0].choice = 0;
  call.values[2] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(drawn(all).status, RowStatus::kPosInfInput);
}

TEST(BadInput, Names) {
  ExpectError([] { api::ProfileByName("ollama"); }, "profile", "\"ollama\"",
              "vllm, hf, sglang, llamacpp, tensorrt-llm");
  std::string known = "auto, cpu";
  for (const BackendInfo& info : Backends()) known += ", " + std::string(info.name);
  ExpectError([] { api::BackendByName("tpu"); }, "backend", "\"tpu\"", known);
  EXPECT_EQ(api::BackendByName("auto"), Backend::kAuto);
  EXPECT_EQ(api::BackendByName("ref"), Backend::kRef);
}

TEST(BadInput, AParameterOutOfRangeIsTheStatusOfItsRowAlone) {
  const std::vector<SelectParams> bad = {
      {.temperature = kNan},
      {.temperature = -1.0f},
      {.temperature = 2.5f},
      {.temperature = std::numeric_limits<float>::infinity()},
      {.top_k = -2},
      {.top_p = 0.0f},
      {.top_p = 1.5f},
      {.top_p = kNan},
      {.min_p = -0.1f},
      {.min_p = 1.1f},
      {.min_p = kNan},
      {.top_n_sigma = -1.0f},
      {.top_n_sigma = 17.0f},
      {.top_n_sigma = kNan},
      {.typical_p = 0.0f},
      {.typical_p = 2.0f},
      {.typical_p = kNan},
      {.xtc_probability = -0.5f},
      {.xtc_probability = 1.5f},
      {.xtc_threshold = 1.5f},
      {.xtc_threshold = -0.1f},
      {.xtc_probability = kNan},
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    Call call;
    call.params = {bad[i], {}};
    api::Sample(call.Input(), DrawMethod::kGumbel, call.results, call.execution);
    EXPECT_EQ(call.results[0].status, RowStatus::kBadParam) << i;
    EXPECT_EQ(call.results[0].id, -1) << i;
    EXPECT_EQ(call.results[1].status, RowStatus::kOk) << i;
    EXPECT_EQ(call.results[1].cut.count, 4) << i;
  }
}

TEST(BadInput, NoRowsAreFineEverywhere) {
  const LogitsView none{nullptr, 0, 4, 4};
  const Workspace memory(4096);
  const Execution execution{Backend::kRef, {}, memory.span()};
  const std::vector<int64_t> zero = {0};
  EXPECT_NO_THROW(api::Select({none, {}}, {}, {}, execution));
  EXPECT_NO_THROW(api::Mask({nullptr, 0, 4, 4}, {}, execution));
  EXPECT_NO_THROW(api::KeptBitmask(none, {}, {}, execution));
  EXPECT_NO_THROW(
      api::Collect({none, {}}, {}, CandidateOrder::kById, {.offsets = zero}, execution));
  EXPECT_NO_THROW(api::Draw({none, {}}, DrawMethod::kCdf, {}, {}, execution));
  EXPECT_NO_THROW(api::Sample({none, {}}, DrawMethod::kCdf, {}, execution));
  EXPECT_NO_THROW(api::Logprobs({none, LogprobMode::kRawLogits, {}}, {}, {.width = 5}, execution));
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    EXPECT_NO_THROW(
        api::Verify({none, {}}, {.first_row = zero}, mode, DrawMethod::kCdf, {}, {}, execution));
  }
  EXPECT_NO_THROW(api::Topk({.scores = none, .k = 3}, {}, {}, {}, execution));
  const float weight[3] = {};
  EXPECT_NO_THROW(
      api::Project({{weight, 1, 3, 3}}, {nullptr, 0, 3, 3}, {}, {nullptr, 0, 1, 1}, {}));
  const Shard shard{none, 0};
  EXPECT_NO_THROW(api::SelectShards({{&shard, 1}, {}, {}, {}}, {}, {}));
  EXPECT_NO_THROW(api::SampleShards({{&shard, 1}, {}, {}, {}}, DrawMethod::kCdf, {}, {}));
}

}  // namespace
}  // namespace sluice::test
