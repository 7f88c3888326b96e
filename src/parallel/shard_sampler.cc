// The course of a call on one rank; sluice/shards.hpp says what is exchanged.
#include <algorithm>
#include <memory>

#include "parallel/first_tokens.h"
#include "parallel/row_request.h"
#include "parallel/shard_logprobs.h"
#include "parallel/shard_rank.h"
#include "parallel/slice_head.h"
#include "semantics/select_row.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {
namespace {

// Slices of as many rows are gathered at once as fit: 32 rows of 131072 tokens.
constexpr int64_t kMostGatheredBytes = int64_t{16} << 20;

using semantics::Row;
using semantics::Token;
using semantics::Winner;

// Exchange 2, a row that needs it: of the slice's tokens that are kept, or that top-p is measured
// on.
struct SliceSums {
  uint64_t mass;
  int32_t count;
  int32_t ties;  // that equal `lowest`
  float lowest;
  Winner best;  // id -1: none
};
static_assert(sizeof(SliceSums) == 32);

// Slices with computed logits.
class SliceLogits final : public SliceSource {
 public:
  SliceLogits(const ShardRank& rank, int64_t candidates, const LogitsView& logits,
              const ParallelFor& parallel, std::vector<std::vector<uint64_t>>& lists)
      : rank_(rank), candidates_(candidates), logits_(logits), parallel_(parallel), lists_(lists) {
    // Never fewer: a worker's list keeps its memory.
    lists.resize(std::max(lists.size(), static_cast<size_t>(parallel.workers)));
  }

  int64_t ListSize(int64_t) const override { return candidates_; }
  void List(const RankReports& reports) override {
    const auto first_id = static_cast<int32_t>(rank_.slice().first_id);
    ForEachRow(parallel_, logits_.rows, [&](int64_t r, int worker) {
      ListSlice(Part(r), first_id, candidates_, candidates_, lists_[static_cast<size_t>(worker)],
                reports[r]);
    });
  }
  const SliceDraw* Draw(int64_t) const override { return nullptr; }
  void Open(std::span<const int64_t>) override {}
  Row Part(int64_t row) const override { return rank_.Row(logits_, row); }

 private:
  const ShardRank& rank_;
  const int64_t candidates_;
  const LogitsView& logits_;
  const ParallelFor& parallel_;
  std::vector<std::vector<uint64_t>>& lists_;
};

// The arguments of a call.
struct SampledRows {
  const SelectParams& ParamsOf(int64_t row) const { return PerRow(params, row); }
  const NoiseKey& KeyOf(int64_t row) const { return PerRow(keys, row); }
  TokenResult& ResultOf(int64_t row) const { return results[static_cast<size_t>(row)]; }
  SampleRequest RequestOf(int64_t row) const { return {ParamsOf(row), KeyOf(row), limits, method}; }

  int64_t rows;
  std::span<const SelectParams> params;
  std::span<const NoiseKey> keys;
  Limits limits;
  DrawMethod method;
  std::span<TokenResult> results;
};

// The state of a row, equal on all ranks.
struct RowState {
  RowStatus status;
  RowNeed need;
  ShardPath path;
  int64_t support;
  int64_t listed;  // the first tokens of the row
  uint64_t cdf_threshold;
  int32_t cdf_rank;  // where the drawn token lies, -1 when the draw is not of that kind
};

void CheckSampled(int64_t rows, std::span<const SelectParams> params,
                  std::span<const NoiseKey> keys, DrawMethod method,
                  std::span<const TokenResult> results, const Execution& execution,
                  std::span<const ShardPath> paths) {
  CheckPerRow("params", params.size(), rows);
  CheckPerRow("keys", keys.size(), rows);
  CheckMethod(method);
  CheckSize("results", results.size(), rows);
  if (!paths.empty()) CheckSize("paths", paths.size(), rows);
  CheckWorkers(execution);
}

}  // namespace

struct ShardSampler::Impl {
  Impl(ShardGroup& group, const ShardSlice& slice, int32_t listed)
      : rank(group, slice, listed), candidates(listed) {}

  const RankReport& ReportOf(int32_t of, int64_t row) const {
    return *reinterpret_cast<const RankReport*>(rank.MessageOf(of) +
                                                static_cast<size_t>(row) * ReportBytes(candidates));
  }
  semantics::SortedRow First(int64_t row) const {
    return {first.data() + row * candidates, states[static_cast<size_t>(row)].listed};
  }

  void Run(ShardTask task, const SampledRows& call, SliceSource& source, const Execution& execution,
           std::span<ShardPath> paths);
  void MergeRow(int64_t row, bool is_valid, int64_t wanted);
  void DecideByList(int64_t row, const SelectParams& params, const NoiseKey& key, DrawMethod method,
                    TokenResult& result);
  SliceSums SumSlice(const Row& part, int64_t row, const SelectParams& params,
                     const NoiseKey& key) const;
  SliceSums SumDraw(const SliceDraw& draw, int64_t row, const SelectParams& params,
                    const NoiseKey& key) const;
  void DecideBySums(int64_t row, int64_t place, const SelectParams& params, const NoiseKey& key,
                    DrawMethod method, TokenResult& result);
  int32_t CdfToken(const Row& part, int64_t row, const SelectParams& params) const;
  void Keep(int64_t row, semantics::Interval kept, const SelectParams& params, const NoiseKey& key,
            DrawMethod method, TokenResult& result);
  // `one`: of a row at a time, without its workspace.
  void SampleGathered(const SampledRows& call, const SliceSource& source, Execution one);
  void SampleGatheredRows(std::span<const int64_t> rows, int64_t widest, const SampledRows& call,
                          const SliceSource& source, const Execution& one);
  LogitsView WholeRowView() const {
    return {whole_row.data(), 1, rank.vocab(), rank.vocab(), DType::kF32, {}};
  }

  // Rows that need `need`, or that wait for a cdf's token.
  template <typename Belongs>
  void ListRows(int64_t rows, Belongs belongs) {
    places.clear();
    for (int64_t r = 0; r < rows; ++r) {
      if (belongs(states[static_cast<size_t>(r)])) places.push_back(r);
    }
  }

  ShardRank rank;
  int64_t candidates;
  std::vector<RowState> states;
  std::vector<Token> first;  // `candidates` a row
  std::vector<int64_t> places;
  std::vector<int32_t> next;                 // of a merge, one a rank
  std::vector<std::vector<uint64_t>> lists;  // one a worker
  SliceHeadMemory head;
  std::vector<Token> by_id;
  std::vector<float> whole_row;
  std::vector<WholeRow> wholes;  // of Logprobs
  std::vector<std::byte> workspace;
};

void ShardSampler::Impl::MergeRow(int64_t row, bool is_valid, int64_t wanted) {
  RowState& state = states[static_cast<size_t>(row)];
  state = {is_valid ? RowStatus::kOk : RowStatus::kBadParam,
           RowNeed::kNothing,
           ShardPath::kStatus,
           0,
           0,
           0,
           -1};
  for (int32_t r = 0; r < rank.ranks(); ++r) {
    const RankReport& report = ReportOf(r, row);
    const auto status = static_cast<RowStatus>(report.status);
    state.support += report.support;
    // A slice without support says nothing of the row.
    if (status != RowStatus::kEmptySupport) state.status = semantics::Worse(state.status, status);
  }
  if (state.support == 0) state.status = semantics::Worse(state.status, RowStatus::kEmptySupport);
  if (state.status != RowStatus::kOk) return;

  // The next token of the row is the first remaining one of one of the lists: a list that has less
  // than all of its slice ends after as many tokens as `wanted`.
  state.listed = std::min(wanted, state.support);
  next.assign(static_cast<size_t>(rank.ranks()), 0);
  Token* merged = first.data() + row * candidates;
  for (int64_t i = 0; i < state.listed; ++i) {
    int32_t from = -1;
    Token best{0.0f, -1};
    for (int32_t r = 0; r < rank.ranks(); ++r) {
      const int32_t at = next[static_cast<size_t>(r)];
      if (at == candidates) continue;
      const Token token = ReportOf(r, row).tokens()[at];
      if (token.id < 0 || (from >= 0 && !semantics::Before(token, best))) continue;
      best = token;
      from = r;
    }
    ++next[static_cast<size_t>(from)];
    merged[i] = best;
  }
}

void ShardSampler::Impl::Keep(int64_t row, semantics::Interval kept, const SelectParams& params,
                              const NoiseKey& key, DrawMethod method, TokenResult& result) {
  const semantics::SortedRow list = First(row);
  states[static_cast<size_t>(row)].path = ShardPath::kCandidates;
  result.cut = semantics::CutOfInterval(list, kept);
  result.id = DrawListed(list, kept, semantics::ScalesOf(params).draw, method, key, by_id);
}

void ShardSampler::Impl::DecideByList(int64_t row, const SelectParams& params, const NoiseKey& key,
                                      DrawMethod method, TokenResult& result) {
  RowState& state = states[static_cast<size_t>(row)];
  result = TokenResult{};
  if (state.status != RowStatus::kOk) {
    result.status = state.status;
    result.cut = semantics::CutOfStatus(state.status);
    return;
  }
  const auto kept = SelectFromFirst(First(row), state.listed == state.support, params, key);
  if (kept) return Keep(row, *kept, params, key, method, result);
  state.need = NeedOf(params, key, state.support);
}

SliceSums ShardSampler::Impl::SumSlice(const Row& part, int64_t row, const SelectParams& params,
                                       const NoiseKey& key) const {
  const semantics::Scales scales = semantics::ScalesOf(params);
  const float max = First(row).Max();
  const bool is_mass = states[static_cast<size_t>(row)].need == RowNeed::kMass;
  const uint64_t least = is_mass ? LeastWeightBefore(params) : LeastWeight(params);
  SliceSums sums{0, 0, 0, semantics::Infinity(), {0.0f, {0.0f, -1}}};
  for (int64_t i = 0; i < part.size; ++i) {
    const float x = part[i];
    if (x == -semantics::Infinity()) continue;
    const uint64_t weight = semantics::Weight(x, max, scales.filter);
    if (weight < least) continue;
    if (is_mass) {
      sums.mass += weight;
      continue;
    }
    sums.mass += semantics::Weight(x, max, scales.draw);
    ++sums.count;
    if (x < sums.lowest) sums.ties = 0;
    sums.lowest = std::min(sums.lowest, x);
    sums.ties += x == sums.lowest ? 1 : 0;
    const int32_t id = static_cast<int32_t>(rank.slice().first_id + i);
    const float g = semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), id));
    const Winner winner{semantics::LogWeight(x, max, scales.draw) + g, {x, id}};
    if (semantics::Beats(winner, sums.best)) sums.best = winner;
  }
  return sums;
}

// The sums of a draw from everything, which does not need its mass.
SliceSums ShardSampler::Impl::SumDraw(const SliceDraw& draw, int64_t row,
                                      const SelectParams& params, const NoiseKey& key) const {
  const float scale = semantics::ScalesOf(params).draw;
  const float max = First(row).Max();
  SliceSums sums{0, draw.count, draw.ties, draw.lowest, {0.0f, {0.0f, -1}}};
  for (const Token& token : draw.contenders) {
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), token.id));
    const Winner winner{semantics::LogWeight(token.x, max, scale) + g, token};
    if (semantics::Beats(winner, sums.best)) sums.best = winner;
  }
  return sums;
}

void ShardSampler::Impl::DecideBySums(int64_t row, int64_t place, const SelectParams& params,
                                      const NoiseKey& key, DrawMethod method, TokenResult& result) {
  RowState& state = states[static_cast<size_t>(row)];
  uint64_t mass = 0;
  Cut cut;
  Winner best{0.0f, {0.0f, -1}};
  for (int32_t r = 0; r < rank.ranks(); ++r) {
    const SliceSums& sums = rank.PartOf<SliceSums>(r, place);
    mass += sums.mass;
    cut.count += sums.count;
    if (sums.lowest < cut.lower) cut.ties_kept = 0;
    cut.lower = std::min(cut.lower, sums.lowest);
    if (sums.count > 0 && sums.lowest == cut.lower) cut.ties_kept += sums.ties;
    if (semantics::Beats(sums.best, best)) best = sums.best;
  }
  if (state.need == RowNeed::kMass) {
    const auto kept = semantics::SelectByMass(First(row), params, key, mass);
    state.need = kept ? RowNeed::kNothing : RowNeed::kRow;
    if (kept) Keep(row, *kept, params, key, method, result);
    return;
  }
  state.path = ShardPath::kSums;
  cut.lower += 0.0f;  // a zero boundary is +0
  result.cut = cut;
  result.id = best.token.id;
  if (method == DrawMethod::kGumbel) return;
  // Slices lie in the order of ids, as the running mass of a cdf does.
  const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
  uint64_t before = 0;
  for (int32_t r = 0; r < rank.ranks(); ++r) {
    const uint64_t own = rank.PartOf<SliceSums>(r, place).mass;
    if (before <= threshold && before + own > threshold) {
      state.cdf_rank = r;
      state.cdf_threshold = threshold - before;
    }
    before += own;
  }
}

int32_t ShardSampler::Impl::CdfToken(const Row& part, int64_t row,
                                     const SelectParams& params) const {
  const semantics::Scales scales = semantics::ScalesOf(params);
  const float max = First(row).Max();
  const uint64_t least = LeastWeight(params);
  uint64_t running = 0;
  for (int64_t i = 0; i < part.size; ++i) {
    const float x = part[i];
    if (semantics::Weight(x, max, scales.filter) < least) continue;
    running += semantics::Weight(x, max, scales.draw);
    if (running > states[static_cast<size_t>(row)].cdf_threshold) {
      return static_cast<int32_t>(rank.slice().first_id + i);
    }
  }
  return -1;  // not reached: the slice's mass is above the threshold
}

void ShardSampler::Impl::SampleGathered(const SampledRows& call, const SliceSource& source,
                                        Execution one) {
  int64_t widest = 1;
  for (int32_t r = 0; r < rank.ranks(); ++r) widest = std::max(widest, rank.slice(r).tokens);
  whole_row.resize(static_cast<size_t>(rank.vocab()));
  const size_t bytes = SelectWorkspaceBytes(WholeRowView(), one);
  workspace.resize(bytes + kWorkspaceAlignment);
  void* start = workspace.data();
  size_t space = workspace.size();
  one.workspace = {static_cast<std::byte*>(std::align(kWorkspaceAlignment, bytes, start, space)),
                   bytes};
  const int64_t row_bytes = widest * static_cast<int64_t>(sizeof(float)) * rank.ranks();
  const int64_t most = std::max<int64_t>(1, kMostGatheredBytes / row_bytes);
  for (int64_t begin = 0; begin < std::ssize(places); begin += most) {
    const int64_t count = std::min(most, std::ssize(places) - begin);
    const auto rows =
        std::span(places).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    SampleGatheredRows(rows, widest, call, source, one);
  }
}

void ShardSampler::Impl::SampleGatheredRows(std::span<const int64_t> rows, int64_t widest,
                                            const SampledRows& call, const SliceSource& source,
                                            const Execution& one) {
  float* slices = rank.Parts<float>(widest * std::ssize(rows));
  for (const int64_t row : rows) {
    const Row part = source.Part(row);
    for (int64_t i = 0; i < part.size; ++i) slices[i] = part[i];
    slices += widest;
  }
  rank.Exchange();
  for (size_t place = 0; place < rows.size(); ++place) {
    for (int32_t r = 0; r < rank.ranks(); ++r) {
      const float* part = &rank.PartOf<float>(r, static_cast<int64_t>(place) * widest);
      std::copy_n(part, rank.slice(r).tokens, whole_row.begin() + rank.slice(r).first_id);
    }
    const int64_t row = rows[place];
    states[static_cast<size_t>(row)].path = ShardPath::kGathered;
    sluice::Sample({WholeRowView(), {&call.ParamsOf(row), 1}, {&call.KeyOf(row), 1}, call.limits},
                   call.method, {&call.ResultOf(row), 1}, one);
  }
}

void ShardSampler::Impl::Run(ShardTask task, const SampledRows& call, SliceSource& source,
                             const Execution& execution, std::span<ShardPath> paths) {
  const int64_t rows = call.rows;
  const Backend backend = ResolveBackend(execution.backend);
  states.resize(static_cast<size_t>(rows));
  first.resize(static_cast<size_t>(rows * candidates));

  rank.Begin(task);
  const RankReports reports{rank.Message(static_cast<size_t>(rows) * ReportBytes(candidates)),
                            candidates};
  for (int64_t r = 0; r < rows; ++r) reports[r].fingerprint = Fingerprint(call.RequestOf(r));
  source.List(reports);
  rank.Exchange();
  RequireSameRequests(
      rank, rows, [&](int32_t of, int64_t r) { return ReportOf(of, r).fingerprint; },
      [&](int64_t r) { return call.RequestOf(r); });
  ForEachRow({}, rows, [&](int64_t r, int) {
    const bool is_valid =
        semantics::AreValid(call.ParamsOf(r), call.limits) && semantics::IsValid(call.KeyOf(r));
    MergeRow(r, is_valid, source.ListSize(r));
    DecideByList(r, call.ParamsOf(r), call.KeyOf(r), call.method, call.ResultOf(r));
  });
  auto draw_of = [&](int64_t r) {
    const bool is_drawn = states[static_cast<size_t>(r)].need == RowNeed::kSlice;
    return is_drawn ? source.Draw(r) : nullptr;
  };
  places.clear();
  for (int64_t r = 0; r < rows; ++r) {
    const bool is_open = states[static_cast<size_t>(r)].need != RowNeed::kNothing;
    if (is_open && draw_of(r) == nullptr) places.push_back(r);
  }
  source.Open(places);
  ListRows(rows, [](const RowState& state) {
    return state.need == RowNeed::kMass || state.need == RowNeed::kSlice;
  });
  if (!places.empty()) {
    SliceSums* const sums = rank.Parts<SliceSums>(std::ssize(places));
    ForEachRow(execution.parallel, std::ssize(places), [&](int64_t place, int) {
      const int64_t r = places[static_cast<size_t>(place)];
      const SliceDraw* const draw = draw_of(r);
      sums[place] = draw != nullptr ? SumDraw(*draw, r, call.ParamsOf(r), call.KeyOf(r))
                                    : SumSlice(source.Part(r), r, call.ParamsOf(r), call.KeyOf(r));
    });
    rank.Exchange();
    ForEachRow({}, std::ssize(places), [&](int64_t place, int) {
      const int64_t r = places[static_cast<size_t>(place)];
      DecideBySums(r, place, call.ParamsOf(r), call.KeyOf(r), call.method, call.ResultOf(r));
    });
  }

  ListRows(rows, [](const RowState& state) { return state.cdf_rank >= 0; });
  if (!places.empty()) {
    int32_t* const ids = rank.Parts<int32_t>(std::ssize(places));
    ForEachRow(execution.parallel, std::ssize(places), [&](int64_t place, int) {
      const int64_t r = places[static_cast<size_t>(place)];
      if (states[static_cast<size_t>(r)].cdf_rank != rank.rank()) return;
      ids[place] = CdfToken(source.Part(r), r, call.ParamsOf(r));
    });
    rank.Exchange();
    for (size_t place = 0; place < places.size(); ++place) {
      const int64_t r = places[place];
      const int32_t owner = states[static_cast<size_t>(r)].cdf_rank;
      call.ResultOf(r).id = rank.PartOf<int32_t>(owner, static_cast<int64_t>(place));
    }
  }

  ListRows(rows, [](const RowState& state) { return state.need == RowNeed::kRow; });
  if (!places.empty()) {
    SampleGathered(call, source, {backend, {}, {}, nullptr, execution.algorithm, {}});
  }
  for (int64_t r = 0; r < rows; ++r) {
    const ShardPath path = states[static_cast<size_t>(r)].path;
    ++rank.traffic().rows[static_cast<int>(path)];
    if (!paths.empty()) paths[static_cast<size_t>(r)] = path;
  }
}

ShardSampler::ShardSampler(ShardGroup& group, const ShardSlice& slice, int32_t candidates)
    : impl_(std::make_unique<Impl>(group, slice, candidates)) {}
ShardSampler::~ShardSampler() = default;

const ShardTraffic& ShardSampler::traffic() const { return impl_->rank.traffic(); }

void ShardSampler::Sample(const SelectInput& own, DrawMethod method, std::span<TokenResult> results,
                          const Execution& execution, std::span<ShardPath> paths) {
  Impl& impl = *impl_;
  const int64_t rows = own.logits.rows;
  impl.rank.CheckOwn("logits", own.logits);
  CheckSampled(rows, own.params, own.keys, method, results, execution, paths);
  SliceLogits source(impl.rank, impl.candidates, own.logits, execution.parallel, impl.lists);
  impl.Run(ShardTask::kSample, {rows, own.params, own.keys, own.limits, method, results}, source,
           execution, paths);
}

CertifiedStats ShardSampler::Sample(const CertifiedHead& head, const CertifiedInput& input,
                                    std::span<const SelectParams> params,
                                    std::span<const NoiseKey> keys, const Limits& limits,
                                    DrawMethod method, std::span<TokenResult> results,
                                    const Execution& execution, std::span<ShardPath> paths) {
  Impl& impl = *impl_;
  const int64_t rows = input.hidden.rows;
  const int64_t tokens = impl.rank.slice().tokens;
  CheckInRange("head.weight.rows", head.head().weight.rows, tokens, tokens);
  CheckHidden(head, input.hidden);
  if (!input.bitmask.empty()) {
    CheckSize("bitmask", input.bitmask.size(), rows * ((tokens + 31) / 32));
  }
  CheckSampled(rows, params, keys, method, results, execution, paths);
  const SliceHeadCall call{head, input, params, keys, limits, method, execution};
  SliceHead source(impl.rank, impl.candidates, call, impl.head);
  impl.Run(ShardTask::kSampleHidden, {rows, params, keys, limits, method, results}, source,
           execution, paths);
  return source.stats();
}

void ShardSampler::Logprobs(const LogprobInput& own, std::span<TokenResult> results,
                            const Execution& execution) {
  MergeLogprobs(impl_->rank, own, results, execution, impl_->wholes);
}

}  // namespace sluice
