// The ranks of a sharded call on a certified head, one after the other on one GPU: the answers of
// the whole head.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "parallel/drawn_rows.h"
#include "tests/head/device_head.h"
#include "tests/head/heads.h"
#include "tests/parallel/device_ranks.h"
#include "tests/parallel/slices.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

// Of a head, its hidden states and their requests; the values of rows are the logits of the whole
// head.
struct HeadRows {
  HeadRows(Rows of_head, const Rows& states, std::vector<float> bias_of_head, DType dtype)
      : weights(std::move(of_head)),
        bias(std::move(bias_of_head)),
        hidden(std::make_unique<Batch>(states, dtype)) {}

  void Add(const std::vector<SelectParams>& params, DType dtype, Random& random) {
    const Batch weight(weights, dtype);
    const auto logits = DenseLogits({Matrix(weight), bias}, {Matrix(*hidden), bitmask});
    for (size_t r = 0; r < logits.size(); ++r) rows.Add(logits[r], params[r], random);
  }

  Rows weights;
  std::vector<float> bias;
  std::unique_ptr<Batch> hidden;
  std::vector<int32_t> bitmask;  // or none
  RequestRows rows;
};

// Half of the rows with random parameters, the others by top-k or from everything.
HeadRows RandomHeadRows(HeadKind kind, int64_t vocab, int64_t dim, DType dtype, Random& random) {
  const Rows weights = Representable(MakeHead(kind, vocab, dim, random), dtype);
  Rows states;
  std::vector<SelectParams> params;
  for (int i = 0; i < 4; ++i) {
    for (const HiddenKind hidden : kAllHiddenKinds) {
      states.push_back(MakeHidden(hidden, weights, random));
      params.push_back(RandomSwitchedParams(vocab, random));
      if (random.Coin()) continue;
      params.back() = {.top_k = static_cast<int32_t>(random.Between(1, 20))};
      constexpr float kTemperatures[] = {0.05f, 0.7f, 1.0f, 1.9f};
      if (random.Coin()) params.back() = {.temperature = kTemperatures[random.Below(4)]};
    }
  }
  HeadRows head(weights, states, MakeBias(vocab, random), dtype);
  if (random.Coin()) head.bitmask = RandomBitmask(states.size(), vocab, random);
  head.Add(params, dtype, random);
  return head;
}

// How the ranks are asked.
struct Asked {
  int32_t candidates;
  DrawMethod method = DrawMethod::kGumbel;
  CertificateKind kind = CertificateKind::kDither4;
  bool needs_cuts = true;
};

// A rank with some rows of a certified head.
class HeadRank {
 public:
  HeadRank(const HeadRows& whole, DType dtype, const ShardSlice& slice, int32_t ranks,
           const Asked& asked)
      : weight_(OwnOf(whole.weights, slice), dtype),
        bias_(whole.bias.empty() ? whole.bias : OwnOf(whole.bias, slice)),
        head_(weight_, bias_, HeadPlanes::Build(Matrix(weight_), {.kind = asked.kind, .seed = 3})),
        logits_(whole.rows.size() * static_cast<size_t>(slice.tokens)),
        params_(whole.rows.params),
        keys_(whole.rows.keys),
        workspace_(
            cuda::ShardWorkspaceBytes(std::ssize(whole.rows.params), asked.candidates, ranks)),
        results_(whole.rows.size()),
        paths_(whole.rows.size()) {
    head_.Ask(*whole.hidden, OwnBits(whole.bitmask, slice));
    call_.head = head_.call();
    call_.slice = slice;
    call_.params = {params_, keys_};
    call_.method = asked.method;
    call_.candidates = asked.candidates;
    call_.needs_cuts = asked.needs_cuts;
    call_.workspace = workspace_;
    call_.logits = {logits_.data(), static_cast<int64_t>(whole.rows.size()),
                    slice.tokens,   slice.tokens,
                    DType::kF32,    {DeviceKind::kCuda, 0}};
    argument_ = cuda::ShardArgumentOf(call_, ranks, results_, paths_);
  }

  const cuda::ShardHeadCall& call() const { return call_; }
  const cuda::ShardArgument& argument() const { return argument_; }
  cuda::DeviceArray<TokenResult> result_array() { return results_; }
  cuda::DeviceArray<ShardPath> path_array() { return paths_; }
  std::vector<TokenResult> Results() const { return results_.Get(); }
  std::vector<ShardPath> ShardPaths() const { return paths_.Get(); }
  // Of its head's calls before the merge.
  std::vector<cuda::HeadRow> Paths() const { return head_.rows(); }
  // That take the dense head of the slice behind the merge.
  int32_t OpenRows() const {
    int32_t count = -1;
    Require(cudaMemcpy(&count, argument_.memory.open_count, sizeof count, cudaMemcpyDeviceToHost));
    return count;
  }

 private:
  template <typename Whole>
  static Whole OwnOf(const Whole& whole, const ShardSlice& slice) {
    const auto begin = whole.begin() + slice.first_id;
    return {begin, begin + slice.tokens};
  }

  Batch weight_;
  std::vector<float> bias_;
  DeviceHead head_;
  OnDevice<float> logits_;
  OnDevice<SelectParams> params_;
  OnDevice<NoiseKey> keys_;
  OnDevice<std::byte> workspace_;
  OnDevice<TokenResult> results_;
  OnDevice<ShardPath> paths_;
  cuda::ShardHeadCall call_;
  cuda::ShardArgument argument_;
};

using Ranks = std::vector<std::unique_ptr<HeadRank>>;

Ranks RanksOf(const HeadRows& head, DType dtype, int64_t cut, const Asked& asked) {
  const int64_t vocab = std::ssize(head.weights);
  Ranks ranks;
  for (const ShardSlice& slice : {ShardSlice{vocab, 0, cut}, {vocab, cut, vocab - cut}}) {
    ranks.push_back(std::make_unique<HeadRank>(head, dtype, slice, 2, asked));
  }
  return ranks;
}

void RunAll(Ranks& ranks) {
  for (const auto& rank : ranks) cuda::EnqueueFirst(rank->call(), rank->argument(), nullptr);
  ExchangeReports(ranks);
  for (const auto& rank : ranks) {
    cuda::LaunchMerge(rank->argument(), nullptr);
    cuda::EnqueueDense(rank->call(), rank->argument(), nullptr);
    cuda::LaunchSums(rank->argument(), DType::kF32, nullptr);
  }
  ExchangeSums(ranks);
  for (const auto& rank : ranks) cuda::LaunchFinish(rank->argument(), nullptr);
  Require(cudaDeviceSynchronize());
}

bool IsDrawnFromAll(const HeadRows& head, size_t row, DrawMethod method) {
  return cuda::IsDrawn(head.rows.params[row], head.rows.keys[row], {}, method,
                       std::ssize(head.weights));
}

// Of the whole head, where rows that are drawn from everything have a Cut if it is wanted.
std::vector<TokenResult> Expected(const HeadRows& head, const Asked& asked) {
  const Batch whole(head.rows.values);
  auto expected = Sampled({whole.view(), head.rows.params, head.rows.keys}, asked.method);
  for (size_t r = 0; r < expected.size(); ++r) {
    const bool has_cut = asked.needs_cuts || expected[r].status != RowStatus::kOk;
    if (!has_cut && IsDrawnFromAll(head, r, asked.method)) expected[r].cut = Cut{};
  }
  return expected;
}

// What the first tokens decide for certain.
bool IsListed(const SelectParams& params, const Asked& asked) {
  if (params.temperature == 0.0f) return true;
  if (params.top_n_sigma > 0 || params.typical_p < 1) return false;
  const bool is_joint = params.profile.top_k_top_p == TopKTopP::kJoint && params.top_p < 1;
  return params.top_k > 0 && params.top_k <= asked.candidates && !is_joint &&
         params.profile.ties == Ties::kLowestId;
}

void ExpectEqualWhereDecided(const HeadRows& head, const Ranks& ranks, const Asked& asked) {
  auto expected = Expected(head, asked);
  const std::vector<ShardPath> paths = ranks[0]->ShardPaths();
  for (size_t r = 0; r < paths.size(); ++r) {
    if (paths[r] == ShardPath::kGathered) expected[r] = TokenResult{};
    if (paths[r] != ShardPath::kStatus && IsListed(head.rows.params[r], asked)) {
      EXPECT_EQ(paths[r], ShardPath::kCandidates) << "row " << r;
    }
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->ShardPaths(), paths);
    EXPECT_TRUE(SameSequence(rank->Results(), expected));
  }
}

class ShardHeadCuda : public DeviceTest {};

TEST_F(ShardHeadCuda, EqualsTheWholeHeadForRandomHeadsAndParameters) {
  Random random(8);
  int i = 0;
  for (const HeadKind kind : kAllHeadKinds) {
    for (const DType dtype : kAllDTypes) {
      const HeadRows head =
          RandomHeadRows(kind, 900 + 100 * (i % 3), 64 + 32 * (i % 4), dtype, random);
      const int64_t cut = random.Between(30, std::ssize(head.weights) - 30);
      for (const bool needs_cuts : {true, false}) {
        const Asked asked{.candidates = i % 2 == 0 ? 24 : 5,
                          .method = i % 4 == 0 ? DrawMethod::kCdf : DrawMethod::kGumbel,
                          .kind = kCertificateKinds[i % 2],
                          .needs_cuts = needs_cuts};
        Ranks ranks = RanksOf(head, dtype, i % 3 == 0 ? cut / 8 * 8 : cut, asked);
        RunAll(ranks);
        ExpectEqualWhereDecided(head, ranks, asked);
        ASSERT_FALSE(HasFailure()) << "case " << i << (needs_cuts ? "" : " without Cuts");
      }
      ++i;
    }
  }
}

constexpr int64_t kVocab = 6000;
constexpr int64_t kDim = 256;

// Draws of one hidden state, so flat that tokens of both slices win.
HeadRows DrawnRows(const Rows& weights, float temperature, HiddenKind hidden, Random& random,
                   size_t draws = 64) {
  std::vector<float> state = MakeHidden(hidden, weights, random);
  for (float& x : state) x *= 4.0f;
  HeadRows head(weights, Rows(draws, state), {}, DType::kBf16);
  head.Add(std::vector<SelectParams>(draws, SelectParams{.temperature = temperature}), DType::kBf16,
           random);
  return head;
}

// Of which four bits say nothing: logits differ by a fiftieth of what their intervals are for.
Rows AlikeRows(Random& random) {
  Rows rows = MakeHead(HeadKind::kNormal, kVocab, kDim, random);
  for (size_t v = 1; v < rows.size(); ++v) {
    for (size_t j = 0; j < rows[v].size(); ++j) rows[v][j] = rows[0][j] + rows[v][j] / 50.0f;
  }
  return rows;
}

TEST_F(ShardHeadCuda, DrawsFromEverythingBySurvivorsAlone) {
  Random random(10);
  const Rows weights = MakeHead(HeadKind::kNormal, kVocab, kDim, random);
  const Asked asked{.candidates = 16, .kind = CertificateKind::kStrict, .needs_cuts = false};
  for (const size_t draws : {64, 8, 5, 1}) {  // which kernels score depends on it
    const HeadRows head = DrawnRows(weights, 1.5f, HiddenKind::kPeaked, random, draws);
    for (const int64_t cut : {2503, 2504, 2512}) {  // in a block of noise, behind one, behind two
      Ranks ranks = RanksOf(head, DType::kBf16, cut, asked);
      RunAll(ranks);
      ExpectEqualWhereDecided(head, ranks, asked);
      const std::vector<TokenResult> results = ranks[0]->Results();
      const auto of_first = std::count_if(results.begin(), results.end(),
                                          [&](const TokenResult& r) { return r.id < cut; });
      if (draws == 64) {
        EXPECT_GT(of_first, 0);
        EXPECT_LT(of_first, std::ssize(results));
      }
      const std::vector<ShardPath> paths = ranks[0]->ShardPaths();
      EXPECT_EQ(std::count(paths.begin(), paths.end(), ShardPath::kSums), std::ssize(paths));
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank->OpenRows(), 0);
        for (const cuda::HeadRow& row : rank->Paths()) {
          EXPECT_EQ(row.path, CertifiedPath::kPlanes);
          EXPECT_GT(row.survivors, 0);
        }
      }
    }
  }
}

TEST_F(ShardHeadCuda, DrawsFromDenseLogitsWhereTooManySurvive) {
  Random random(11);
  const HeadRows head = DrawnRows(AlikeRows(random), 0.02f, HiddenKind::kNormal, random);
  const Asked asked{.candidates = 16, .needs_cuts = false};
  Ranks ranks = RanksOf(head, DType::kBf16, 3001, asked);
  RunAll(ranks);
  ExpectEqualWhereDecided(head, ranks, asked);
  const std::vector<ShardPath> paths = ranks[0]->ShardPaths();
  EXPECT_EQ(std::count(paths.begin(), paths.end(), ShardPath::kSums), std::ssize(paths));
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->OpenRows(), 0);
    for (const cuda::HeadRow& row : rank->Paths()) EXPECT_EQ(row.path, CertifiedPath::kDense);
  }
}

TEST_F(ShardHeadCuda, DrawsInTwoExchangesWhereMoreMayWinThanAreTold) {
  Random random(12);
  const Rows weights = MakeHead(HeadKind::kNormal, kVocab, kDim, random);
  const HeadRows head = DrawnRows(weights, 1.0f, HiddenKind::kNormal, random);
  const Asked asked{.candidates = 1, .needs_cuts = false};
  Ranks ranks = RanksOf(head, DType::kBf16, 3001, asked);
  RunAll(ranks);
  ExpectEqualWhereDecided(head, ranks, asked);
  const std::vector<ShardPath> paths = ranks[0]->ShardPaths();
  EXPECT_EQ(std::count(paths.begin(), paths.end(), ShardPath::kSums), std::ssize(paths));
  EXPECT_GT(ranks[0]->OpenRows(), 0);
}

TEST_F(ShardHeadCuda, IsCapturedInAGraphAndGathersWhatIsLeft) {
  Random random(9);
  const HeadRows head = RandomHeadRows(HeadKind::kTrained, 1200, 96, DType::kBf16, random);
  const ShardSlice slice{1200, 0, 1200};
  for (const bool needs_cuts : {true, false}) {
    const Asked asked{.candidates = 32, .needs_cuts = needs_cuts};
    HeadRank rank(head, DType::kBf16, slice, 1, asked);
    OneRank group;
    const cuda::ShardCall on_logits = cuda::OnLogits(rank.call());
    const OnDevice<std::byte> memory(cuda::GatheredWorkspaceBytes(on_logits, 1, 1200));
    cudaStream_t stream;
    Require(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cuda::Sample(rank.call(), group, rank.result_array(), rank.path_array(), stream);
    cuda::SampleGathered(on_logits, group, {&slice, 1}, memory, rank.result_array(),
                         rank.path_array(), stream);
    Require(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    Require(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) Require(cudaGraphLaunch(executable, stream));
    Require(cudaStreamSynchronize(stream));
    EXPECT_TRUE(SameSequence(rank.Results(), Expected(head, asked)));
    Require(cudaGraphExecDestroy(executable));
    Require(cudaGraphDestroy(graph));
    Require(cudaStreamDestroy(stream));
  }
}

}  // namespace
}  // namespace sluice::test
