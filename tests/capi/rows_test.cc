// Every call of the C interface on rows gives what its C++ namesake gives, bit for bit, on every
// backend and dtype, on rows of models and hostile ones.
#include <algorithm>

#include "tests/capi/as_c.h"
#include "tests/select/everything.h"
#include "tests/support/backends.h"

namespace sluice::test {
namespace {

class CRows : public BackendTest {
 protected:
  // A batch with its parameters, its Cuts and memory to run in.
  struct Setting {
    Setting(uint64_t seed, Backend backend, DType dtype)
        : mixed(MixedRows(seed)),
          batch(mixed.rows, dtype),
          memory(SelectWorkspaceBytes(batch.view(), {backend})),
          execution{backend, {}, memory.span()},
          cuts(mixed.rows.size()),
          masses(mixed.rows.size()) {
      Select(input(), cuts, masses, execution);
    }
    SelectInput input() const { return {batch.view(), mixed.params, mixed.keys}; }
    size_t rows() const { return mixed.rows.size(); }

    Mixed mixed;
    Batch batch;
    Workspace memory;
    Execution execution;
    std::vector<Cut> cuts;
    std::vector<CutMass> masses;
  };

  template <typename Body>
  void ForEachSetting(Body body) const {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      Setting setting(seed, backend(), dtype());
      body(setting);
    }
  }
};

TEST_P(CRows, WorkspaceBytes) {
  ForEachSetting([](Setting& s) {
    s.execution.parallel.workers = 3;
    const sluice_execution execution = AsC(s.execution);
    const auto logits = AsC<sluice_logits_view>(s.batch.view());
    size_t bytes = 1;
    ExpectOk(sluice_select_workspace_bytes(&logits, &execution, &bytes));
    EXPECT_EQ(bytes, SelectWorkspaceBytes(s.batch.view(), s.execution));
    ExpectOk(sluice_verify_workspace_bytes(&logits, &execution, &bytes));
    EXPECT_EQ(bytes, VerifyWorkspaceBytes(s.batch.view(), s.execution));
  });
}

TEST_P(CRows, Select) {
  ForEachSetting([](Setting& s) {
    const sluice_select_input input = AsC(s.input());
    for (const AlgorithmInfo& info : SelectAlgorithms()) {
      s.execution.algorithm = info.algorithm;
      std::vector<SelectWork> expected_work(s.rows());
      s.execution.work = expected_work;
      Select(s.input(), s.cuts, s.masses, s.execution);

      std::vector<Cut> cuts(s.rows());
      std::vector<CutMass> masses(s.rows());
      std::vector<SelectWork> work(s.rows());
      sluice_execution execution = AsC(s.execution);
      execution.work = DataAsC<sluice_select_work>(work);
      ExpectOk(sluice_select(&input, DataAsC<sluice_cut>(cuts), s.rows(),
                             DataAsC<sluice_cut_mass>(masses), s.rows(), &execution));
      EXPECT_TRUE(SameSequence(cuts, s.cuts)) << info.name;
      EXPECT_TRUE(SameSequence(masses, s.masses)) << info.name;
      for (size_t r = 0; r < s.rows(); ++r) {
        EXPECT_EQ(work[r].algorithm, expected_work[r].algorithm);
        EXPECT_EQ(work[r].elements_read, expected_work[r].elements_read);
      }
      std::fill(cuts.begin(), cuts.end(), Cut{});
      execution.work = nullptr;
      execution.work_count = 0;
      ExpectOk(sluice_select(&input, DataAsC<sluice_cut>(cuts), s.rows(), nullptr, 0, &execution));
      EXPECT_TRUE(SameSequence(cuts, s.cuts)) << info.name;
    }
  });
}

TEST_P(CRows, Mask) {
  ForEachSetting([this](Setting& s) {
    Batch other(s.mixed.rows, dtype());
    Mask(s.batch.mutable_view(), s.cuts, s.execution);
    const auto logits = AsC<sluice_mutable_logits_view>(other.mutable_view());
    const sluice_execution execution = AsC(s.execution);
    ExpectOk(sluice_mask(&logits, DataAsC<sluice_cut>(s.cuts), s.rows(), &execution));
    const size_t at = static_cast<size_t>(static_cast<const std::byte*>(s.batch.view().data) -
                                          s.batch.bytes().data());
    const size_t other_at = static_cast<size_t>(static_cast<const std::byte*>(other.view().data) -
                                                other.bytes().data());
    const size_t size = s.rows() * static_cast<size_t>(s.batch.view().stride) * SizeOf(dtype());
    EXPECT_TRUE(
        SameSequence(other.bytes().subspan(other_at, size), s.batch.bytes().subspan(at, size)));
  });
}

TEST_P(CRows, KeptBitmask) {
  ForEachSetting([](Setting& s) {
    const size_t words = s.rows() * static_cast<size_t>((s.batch.view().vocab + 31) / 32);
    std::vector<int32_t> expected(words);
    KeptBitmask(s.batch.view(), s.cuts, expected, s.execution);
    std::vector<int32_t> bitmask(words);
    const auto logits = AsC<sluice_logits_view>(s.batch.view());
    const sluice_execution execution = AsC(s.execution);
    ExpectOk(sluice_kept_bitmask(&logits, DataAsC<sluice_cut>(s.cuts), s.rows(), bitmask.data(),
                                 words, &execution));
    EXPECT_TRUE(SameSequence(bitmask, expected));
  });
}

TEST_P(CRows, Collect) {
  ForEachSetting([](Setting& s) {
    const sluice_select_input input = AsC(s.input());
    const sluice_execution execution = AsC(s.execution);
    for (const CandidateOrder order : {CandidateOrder::kById, CandidateOrder::kByRank}) {
      const Lists expected = Collected(s.input(), s.cuts, order, s.execution.backend);
      const size_t total = expected.ids.size();
      std::vector<int32_t> ids(total);
      std::vector<float> logits(total);
      std::vector<uint64_t> weights(total);
      const sluice_candidates candidates = {expected.offsets.data(),
                                            expected.offsets.size(),
                                            ids.data(),
                                            total,
                                            logits.data(),
                                            total,
                                            weights.data(),
                                            total};
      ExpectOk(sluice_collect(&input, DataAsC<sluice_cut>(s.cuts), s.rows(),
                              static_cast<sluice_candidate_order>(order), &candidates, &execution));
      EXPECT_TRUE(SameSequence(ids, expected.ids));
      EXPECT_TRUE(SameSequence(logits, expected.logits));
      EXPECT_TRUE(SameSequence(weights, expected.weights));
    }
  });
}

TEST_P(CRows, DrawSampleAndLogprobs) {
  ForEachSetting([](Setting& s) {
    const sluice_select_input input = AsC(s.input());
    const sluice_execution execution = AsC(s.execution);
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const auto c_method = static_cast<sluice_draw_method>(method);
      std::vector<TokenResult> expected(s.rows());
      Draw(s.input(), method, s.cuts, expected, s.execution);
      std::vector<TokenResult> results(s.rows());
      auto* c_results = DataAsC<sluice_token_result>(results);
      ExpectOk(sluice_draw(&input, c_method, DataAsC<sluice_cut>(s.cuts), s.rows(), c_results,
                           s.rows(), &execution));
      EXPECT_TRUE(SameSequence(results, expected));
      Sample(s.input(), method, expected, s.execution);
      ExpectOk(sluice_sample(&input, c_method, c_results, s.rows(), &execution));
      EXPECT_TRUE(SameSequence(results, expected));

      for (int mode = 0; mode < 4; ++mode) {
        constexpr int32_t kWidth = 6;
        const size_t listed = s.rows() * kWidth;
        std::vector<int32_t> expected_ids(listed), ids(listed);
        std::vector<float> expected_values(listed), values(listed);
        const LogprobInput logprob_input{s.batch.view(), static_cast<LogprobMode>(mode),
                                         s.mixed.params};
        Logprobs(logprob_input, expected, {kWidth, expected_ids, expected_values}, s.execution);
        const sluice_logprob_input c_input = {input.logits, static_cast<sluice_logprob_mode>(mode),
                                              input.params, input.param_count};
        const sluice_logprob_lists lists = {kWidth, ids.data(), listed, values.data(), listed};
        ExpectOk(sluice_logprobs(&c_input, c_results, s.rows(), &lists, &execution));
        EXPECT_TRUE(SameSequence(results, expected));
        EXPECT_TRUE(SameSequence(ids, expected_ids));
        EXPECT_TRUE(SameSequence(values, expected_values));
        ExpectOk(sluice_logprobs(&c_input, c_results, s.rows(), nullptr, &execution));
        EXPECT_TRUE(SameSequence(results, expected));
      }
    }
  });
}

TEST_P(CRows, Verify) {
  ForEachSetting([](Setting& s) {
    const size_t rows = s.rows();
    const size_t vocab = static_cast<size_t>(s.batch.view().vocab);
    std::vector<int64_t> first_row;
    for (size_t r = 0; r < rows; r += 3) first_row.push_back(static_cast<int64_t>(r));
    first_row.push_back(static_cast<int64_t>(rows));
    const size_t requests = first_row.size() - 1;
    std::vector<TokenResult> sampled(rows);
    Sample(s.input(), DrawMethod::kGumbel, sampled, s.execution);
    std::vector<int32_t> ids(rows);
    for (size_t r = 0; r < rows; ++r) {
      ids[r] = sampled[r].id >= 0 && r % 2 == 0 ? sampled[r].id : static_cast<int32_t>(r);
    }
    std::vector<float> q(rows * vocab, 1.0f / static_cast<float>(vocab));
    const int64_t width = static_cast<int64_t>(vocab);
    Drafts with_q{first_row, ids};
    with_q.probabilities = {q.data(), static_cast<int64_t>(rows), width, width};
    Drafts with_model{first_row, ids};
    with_model.model = s.input();
    with_model.model_cuts = s.cuts;
    for (const Drafts& drafts : {Drafts{first_row, ids}, with_q, with_model}) {
      for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
        std::vector<TokenResult> expected(rows), results(rows);
        std::vector<int32_t> expected_emitted(requests), emitted(requests);
        Verify(s.input(), drafts, mode, DrawMethod::kCdf, expected, expected_emitted, s.execution);
        const sluice_select_input input = AsC(s.input());
        const sluice_drafts c_drafts = AsC(drafts);
        const sluice_execution execution = AsC(s.execution);
        ExpectOk(sluice_verify(&input, &c_drafts, static_cast<sluice_draft_mode>(mode),
                               SLUICE_DRAW_CDF, DataAsC<sluice_token_result>(results), rows,
                               emitted.data(), requests, &execution));
        EXPECT_TRUE(SameSequence(results, expected));
        EXPECT_TRUE(SameSequence(emitted, expected_emitted));
      }
    }
  });
}

TEST_P(CRows, Topk) {
  ForEachSetting([](Setting& s) {
    const size_t rows = s.rows();
    std::vector<int32_t> lengths(rows);
    std::vector<int32_t> hint(rows * 2);
    for (size_t r = 0; r < rows; ++r) {
      lengths[r] = static_cast<int32_t>(s.batch.view().vocab - static_cast<int64_t>(r));
      hint[2 * r] = static_cast<int32_t>(r);
    }
    TopkInput plain{.scores = s.batch.view(), .k = 5};
    std::vector<float> thresholds(rows, 1.0f), c_thresholds = thresholds;
    TopkInput everything{s.batch.view(), 9, lengths, 1, hint, 2, -1, true, thresholds};
    for (const TopkInput& input : {plain, everything}) {
      const Workspace memory(TopkWorkspaceBytes(input, s.execution));
      s.execution.workspace = memory.span();
      const size_t size = rows * static_cast<size_t>(input.k);
      std::vector<int32_t> expected(size), indices(size);
      std::vector<float> expected_values(size), values(size);
      std::vector<RowStatus> expected_statuses(rows), statuses(rows);
      Topk(input, expected, expected_values, expected_statuses, s.execution);
      sluice_topk_input c_input = AsC(input);
      if (c_input.threshold_count != 0) c_input.thresholds = c_thresholds.data();
      const sluice_execution execution = AsC(s.execution);
      size_t bytes = 1;
      ExpectOk(sluice_topk_workspace_bytes(&c_input, &execution, &bytes));
      EXPECT_EQ(bytes, memory.span().size());
      ExpectOk(sluice_topk(&c_input, indices.data(), size, values.data(), size,
                           DataAsC<sluice_row_status>(statuses), rows, &execution));
      EXPECT_TRUE(SameSequence(indices, expected));
      EXPECT_TRUE(SameSequence(values, expected_values));
      EXPECT_TRUE(SameSequence(statuses, expected_statuses));
    }
    EXPECT_TRUE(SameSequence(c_thresholds, thresholds));
  });
}

TEST_P(CRows, Project) {
  ForEachSetting([](Setting& s) {
    // The rows as hidden states of 67 values, and as the weights of as many tokens.
    const LogitsView v = s.batch.view();
    const MatrixView matrix{v.data, v.rows, v.vocab, v.stride, v.dtype, v.device};
    const size_t tokens = s.rows();
    std::vector<float> bias(tokens, 0.25f);
    const std::vector<int32_t> starts = {0, 1, static_cast<int32_t>(v.rows)};
    for (const bool gathers : {false, true}) {
      const std::span<const int32_t> query = gathers ? starts : std::span<const int32_t>{};
      const int64_t out_rows = gathers ? 2 : v.rows;
      std::vector<float> expected(static_cast<size_t>(out_rows) * tokens), logits(expected);
      const int64_t vocab = static_cast<int64_t>(tokens);
      Project({matrix, bias}, matrix, query, {expected.data(), out_rows, vocab, vocab},
              s.execution);
      const sluice_dense_head head = {AsC<sluice_matrix_view>(matrix), bias.data(), tokens};
      const auto hidden = AsC<sluice_matrix_view>(matrix);
      const sluice_mutable_logits_view out = {logits.data(), out_rows,   vocab,
                                              vocab,         SLUICE_F32, {SLUICE_CPU, 0}};
      const sluice_execution execution = AsC(s.execution);
      size_t bytes = 1;
      ExpectOk(sluice_project_workspace_bytes(&head, &hidden, &execution, &bytes));
      EXPECT_EQ(bytes, ProjectWorkspaceBytes({matrix, bias}, matrix, s.execution));
      ExpectOk(sluice_project(&head, &hidden, query.data(), query.size(), &out, &execution));
      EXPECT_TRUE(SameSequence(logits, expected));
    }
  });
}

TEST_P(CRows, Shards) {
  ForEachSetting([](Setting& s) {
    LogitsView left = s.batch.view();
    LogitsView right = left;
    left.vocab = 30;
    right.vocab -= 30;
    right.data = static_cast<const std::byte*>(left.data) + 30 * SizeOf(left.dtype);
    const std::vector<Shard> shards = {{left, 0}, {right, 30}};
    const ShardInput cpp{shards, s.mixed.params, s.mixed.keys, {}};
    const sluice_shard_input input = AsC(cpp);
    const sluice_execution execution = AsC(s.execution);
    size_t bytes = 1;
    ExpectOk(sluice_shards_workspace_bytes(&input, &execution, &bytes));
    EXPECT_EQ(bytes, ShardsWorkspaceBytes(cpp, s.execution));
    std::vector<Cut> cuts(s.rows());
    ExpectOk(sluice_select_shards(&input, DataAsC<sluice_cut>(cuts), s.rows(), &execution));
    EXPECT_TRUE(SameSequence(cuts, s.cuts));
    for (Cut& cut : cuts) {
      const Cut part = ShardCut(cut, 1, 2);
      auto* c_cut = reinterpret_cast<sluice_cut*>(&cut);
      ExpectOk(sluice_shard_cut(c_cut, 1, 2, c_cut));
      EXPECT_TRUE(SameBits(cut, part));
    }
    std::vector<TokenResult> expected(s.rows()), results(s.rows());
    SampleShards(cpp, DrawMethod::kCdf, expected, s.execution);
    ExpectOk(sluice_sample_shards(&input, SLUICE_DRAW_CDF, DataAsC<sluice_token_result>(results),
                                  s.rows(), &execution));
    EXPECT_TRUE(SameSequence(results, expected));
  });
}

// The caller's loop runs the rows, and its context comes back to it.
TEST_P(CRows, ParallelForIsTheCallers) {
  Setting s(3, backend(), dtype());
  int64_t rows_run = 0;
  const sluice_parallel_for backwards = {
      1, &rows_run, [](void* context, int64_t count, sluice_task task, void* state) {
        for (int64_t i = count; i > 0; --i) task(state, i - 1, 0);
        *static_cast<int64_t*>(context) += count;
      }};
  sluice_execution execution = AsC(s.execution);
  execution.parallel = backwards;
  const sluice_select_input input = AsC(s.input());
  std::vector<Cut> cuts(s.rows());
  ExpectOk(sluice_select(&input, DataAsC<sluice_cut>(cuts), s.rows(), nullptr, 0, &execution));
  EXPECT_TRUE(SameSequence(cuts, s.cuts));
  EXPECT_EQ(rows_run, s.batch.view().rows);
}

SLUICE_FOR_EACH_BACKEND(CRows);

}  // namespace
}  // namespace sluice::test
