// A draw from everything is decided when all ranks have sent their largest values, but the tokens
// that may win it are known before: a larger maximum m lowers the scores fl(fl(fl(x - m) s) + g) of
// all tokens alike, but for roundings. Noise g lies in (-6, 49). Where m is up to 1000 octaves
// above the slice's own maximum, a token that can come within 108 of the best has roundings of less
// than 3 * 2^-24 * 1200 < 0.0003; beyond, no token of the slice reaches the score of the maximum
// itself, which is its noise. So those that come within a hundredth of the slice's best hold its
// winner for every m that lets the slice win.
#include "parallel/slice_head.h"

#include <algorithm>
#include <memory>

#include "semantics/adjust/mask.h"
#include "semantics/filters/filter_class.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::FilterClass;
using semantics::Token;

constexpr float kRoundings = 0.01f;

// A worker's: a bound and an id a token.
size_t ContenderBytes(int64_t tokens) {
  return static_cast<size_t>(tokens) * (sizeof(float) + sizeof(int32_t));
}

std::span<std::byte> Aligned(std::vector<std::byte>& bytes, size_t size) {
  bytes.resize(std::max(bytes.size(), size + kWorkspaceAlignment));
  void* start = bytes.data();
  size_t space = bytes.size();
  return {static_cast<std::byte*>(std::align(kWorkspaceAlignment, size, start, space)), size};
}

}  // namespace

SliceHead::SliceHead(const ShardRank& rank, int64_t candidates, const SliceHeadCall& call,
                     SliceHeadMemory& memory)
    : rank_(rank),
      candidates_(candidates),
      call_(call),
      memory_(memory),
      tokens_(rank.slice().tokens),
      first_id_(static_cast<int32_t>(rank.slice().first_id)) {
  const auto rows = static_cast<size_t>(call.input.hidden.rows);
  memory.places.assign(rows, -1);
  memory.is_drawn.assign(rows, 0);
  memory.draws.resize(std::max(memory.draws.size(), rows));
  memory.lists.resize(std::max(memory.lists.size(),
                               static_cast<size_t>(std::max(1, call.execution.parallel.workers))));
}

SliceHead::Plan SliceHead::PlanOf(int64_t row) const {
  const SelectParams& params = PerRow(call_.params, row);
  if (!semantics::AreValid(params, call_.limits) || !semantics::IsValid(PerRow(call_.keys, row))) {
    return {false, false, 0};
  }
  switch (semantics::FilterClassOf(params, call_.method, rank_.vocab())) {
    case FilterClass::kFirst: {
      // With all ties of the last one: by one more it is known that there are none.
      const bool has_ties = params.profile.ties == Ties::kAll;
      const int64_t wanted =
          semantics::IsGreedy(params) ? 1 : int64_t{params.top_k} + (has_ties ? 1 : 0);
      return {wanted <= candidates_, false, std::min(wanted, candidates_)};
    }
    case FilterClass::kLikely:
      return {true, false, candidates_};
    case FilterClass::kSoftmax:
      return {true, true, 1};
    case FilterClass::kMass:
      break;
  }
  return {false, false, candidates_};
}

int64_t SliceHead::ListSize(int64_t row) const { return PlanOf(row).wanted; }

void SliceHead::List(const RankReports& reports) {
  reports_ = reports;
  const int64_t rows = call_.input.hidden.rows;
  std::vector<int64_t> dense;
  for (int64_t r = 0; r < rows; ++r) {
    const Plan plan = PlanOf(r);
    if (plan.is_listed) continue;
    Fail(r, RowStatus::kOk);  // nothing is known of a row with bad parameters
    if (plan.wanted > 0) dense.push_back(r);
  }
  ListFromPlanes();
  Open(dense);
  ForEachRow(call_.execution.parallel, std::ssize(dense), [&](int64_t i, int worker) {
    const int64_t r = dense[static_cast<size_t>(i)];
    ListSlice(Part(r), first_id_, PlanOf(r).wanted, candidates_,
              memory_.lists[static_cast<size_t>(worker)], reports_[r]);
  });
}

void SliceHead::ListFromPlanes() {
  Execution execution = call_.execution;
  const size_t bytes = ContenderBytes(tokens_);
  execution.workspace =
      Aligned(memory_.workspace,
              CertifiedRows::Bytes(call_.head, call_.input.hidden.rows, execution, bytes));
  CertifiedRows rows(call_.head, call_.input, {}, execution, bytes);
  ForEachRow(execution.parallel, rows.size(), [&](int64_t r, int) {
    if (!PlanOf(r).is_listed) return;
    const RowStatus status = rows.Plan(r, CertifiedRows::Need::kPlanes);
    if (status != RowStatus::kOk) Fail(r, status);
  });
  rows.Score();
  ForEachRow(execution.parallel, rows.size(), [&](int64_t r, int worker) {
    std::optional<RowCertificate> certificate = rows.Certificate(r, worker);
    if (!certificate.has_value()) return;
    rows.Close(r, *certificate, ListFrom(r, *certificate, rows.Memory(worker)));
  });
  ForEachRow(execution.parallel, rows.ProjectRest(), [&](int64_t i, int worker) {
    const CertifiedRows::DenseRow row = rows.Logits(i);
    ListFromLogits(row.row, row.logits, rows.Tokens(worker));
  });
  stats_ = rows.Finish();
}

void SliceHead::Open(std::span<const int64_t> rows) {
  const MatrixView& hidden = call_.input.hidden;
  int64_t opened = 0;
  for (const int64_t place : memory_.places) opened = std::max(opened, place + 1);
  const int64_t before = opened;
  for (const int64_t r : rows) {
    int64_t& place = memory_.places[static_cast<size_t>(r)];
    if (place < 0) place = opened++;
  }
  if (opened == before) return;
  memory_.logits.resize(
      std::max(memory_.logits.size(), static_cast<size_t>(opened) * static_cast<size_t>(tokens_)));
  // Rows by their ends: the head reads its weights once for all of them.
  std::vector<int32_t> ends = {0};
  for (const int64_t r : rows) {
    if (memory_.places[static_cast<size_t>(r)] >= before) {
      ends.push_back(static_cast<int32_t>(r) + 1);
    }
  }
  float* const logits = memory_.logits.data() + before * tokens_;
  const DenseHead& head = call_.head.head();
  Execution execution = call_.execution;
  execution.workspace = Aligned(memory_.workspace, ProjectWorkspaceBytes(head, hidden, execution));
  Project(head, hidden, ends, {logits, opened - before, tokens_, tokens_, DType::kF32, {}},
          execution);
  if (!call_.input.bitmask.empty()) {
    for (size_t i = 1; i < ends.size(); ++i) {
      float* const row = logits + (static_cast<int64_t>(i) - 1) * tokens_;
      semantics::ApplyBitmask({row, static_cast<size_t>(tokens_)},
                              call_.input.bitmask.data() + (ends[i] - 1) * ((tokens_ + 31) / 32));
    }
  }
  stats_.dense_rows += opened - before;
  stats_.bytes_read += stats_.dense_bytes;
}

semantics::Row SliceHead::Part(int64_t row) const {
  const int64_t place = memory_.places[static_cast<size_t>(row)];
  return {memory_.logits.data() + place * tokens_, DType::kF32, tokens_};
}

SliceDraw& SliceHead::DrawOf(int64_t row) {
  memory_.is_drawn[static_cast<size_t>(row)] = 1;
  SliceDraw& draw = memory_.draws[static_cast<size_t>(row)];
  draw.contenders.clear();
  draw.count = draw.ties = 0;
  draw.lowest = semantics::Infinity();
  return draw;
}

void SliceHead::Put(int64_t row, std::span<const Token> first, int64_t support) {
  RankReport& report = reports_[row];
  report.status = static_cast<uint32_t>(RowStatus::kOk);
  report.support = static_cast<int32_t>(support);
  PutTokens(first, first_id_, candidates_, report);
}

void SliceHead::Fail(int64_t row, RowStatus status) {
  Put(row, {}, 0);
  reports_[row].status = static_cast<uint32_t>(status);
  if (PlanOf(row).is_drawn) DrawOf(row);  // nothing
}

float SliceHead::ScoreOf(int64_t row, float x, int32_t local, float max) const {
  const NoiseKey& key = PerRow(call_.keys, row);
  const float scale = semantics::ScalesOf(PerRow(call_.params, row)).draw;
  const float g =
      semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), first_id_ + local));
  return semantics::LogWeight(x, max, scale) + g;
}

DenseReason SliceHead::ListFrom(int64_t row, RowCertificate& certificate, std::byte* memory) {
  if (certificate.status() != RowStatus::kOk) {
    Fail(row, certificate.status());
    return DenseReason::kNone;
  }
  if (const CertifiedTokens* const allowed = certificate.allowed(); allowed != nullptr) {
    ListFromTokens(row, *allowed);
    return DenseReason::kNone;
  }
  const Plan plan = PlanOf(row);
  const std::optional<CertifiedTokens> top = certificate.Top(std::min(plan.wanted, tokens_));
  if (!top.has_value()) return DenseReason::kSurvivors;
  const int64_t size = top->size;
  const auto listed = top->span().first(static_cast<size_t>(std::min(size, plan.wanted)));
  if (!plan.is_drawn) {
    Put(row, listed, size < plan.wanted ? size : tokens_);
    return DenseReason::kNone;
  }
  const Token first = listed[0];
  if (!ListContenders(row, certificate, first, memory)) return DenseReason::kSurvivors;
  Put(row, {&first, 1}, memory_.draws[static_cast<size_t>(row)].count);
  return DenseReason::kNone;
}

bool SliceHead::ListContenders(int64_t row, RowCertificate& certificate, const Token& first,
                               std::byte* memory) {
  const std::optional<RowCertificate::Bottom> bottom = certificate.Last();
  if (!bottom.has_value()) return false;
  auto* const bounds = reinterpret_cast<float*>(memory);
  auto* const ids = reinterpret_cast<int32_t*>(bounds + tokens_);
  const Intervals& intervals = certificate.intervals();
  auto is_masked = [&](int64_t v) { return certificate.Upper(v) == -semantics::Infinity(); };
  // The score that some token reaches, by the lower ends; the bounds are for the draw as a whole.
  float best = ScoreOf(row, first.x, first.id, first.x);
  for (int64_t v = 0; v < tokens_; ++v) {
    bounds[v] = -semantics::Infinity();
    if (is_masked(v)) continue;
    const auto id = static_cast<int32_t>(v);
    bounds[v] = ScoreOf(row, certificate.Upper(v), id, first.x);
    if (bounds[v] < best - kRoundings) continue;
    best = std::max(best, ScoreOf(row, intervals.scores[v] - intervals.widths[v], id, first.x));
  }
  int64_t listed = 0;
  for (int64_t v = 0; v < tokens_; ++v) {
    if (bounds[v] < best - kRoundings || is_masked(v)) continue;
    const auto id = static_cast<int32_t>(v);
    certificate.Refine(id);
    bounds[v] = ScoreOf(row, certificate.Upper(v), id, first.x);
    ids[listed++] = id;
  }
  std::sort(ids, ids + listed, [&](int32_t a, int32_t b) {
    return bounds[a] > bounds[b] || (bounds[a] == bounds[b] && a < b);
  });
  SliceDraw& draw = DrawOf(row);
  for (int64_t i = 0; i < listed && !(bounds[ids[i]] < best - kRoundings); ++i) {
    if (i > certificate.budget()) {
      memory_.is_drawn[static_cast<size_t>(row)] = 0;
      return false;
    }
    const float x = certificate.Compute(ids[i]);
    if (x == -semantics::Infinity()) continue;
    best = std::max(best, ScoreOf(row, x, ids[i], first.x));
    draw.contenders.push_back({x, first_id_ + ids[i]});
  }
  draw.count = bottom->support;
  draw.ties = bottom->ties;
  draw.lowest = bottom->value;
  return true;
}

void SliceHead::ListFromTokens(int64_t row, const CertifiedTokens& all) {
  const Plan plan = PlanOf(row);
  const int64_t size = all.size;
  const auto listed = all.span().first(static_cast<size_t>(std::min(size, plan.wanted)));
  Put(row, listed, size);
  if (!plan.is_drawn) return;
  SliceDraw& draw = DrawOf(row);
  draw.count = static_cast<int32_t>(size);
  draw.lowest = all.span().back().x;
  for (const Token& token : all.span()) {
    draw.contenders.push_back({token.x, first_id_ + token.id});
    draw.ties += token.x == draw.lowest ? 1 : 0;
  }
}

void SliceHead::ListFromLogits(int64_t row, std::span<const float> logits, Token* memory) {
  const Plan plan = PlanOf(row);
  const semantics::Row part{logits.data(), DType::kF32, tokens_};
  const semantics::RowScan scan = semantics::ScanRow(part);
  if (scan.status != RowStatus::kOk) return Fail(row, scan.status);
  int64_t size = 0;
  for (int64_t v = 0; v < tokens_; ++v) {
    if (part[v] != -semantics::Infinity()) {
      memory[size++] = {part[v], static_cast<int32_t>(v)};
    }
  }
  const int64_t listed = std::min(plan.wanted, size);
  std::partial_sort(memory, memory + listed, memory + size,
                    [](const Token& a, const Token& b) { return semantics::Before(a, b); });
  Put(row, {memory, static_cast<size_t>(listed)}, size);
  if (!plan.is_drawn) return;
  SliceDraw& draw = DrawOf(row);
  float best = -semantics::Infinity();
  for (int64_t i = 0; i < size; ++i) {
    const Token& token = memory[i];
    const float score = ScoreOf(row, token.x, token.id, scan.max);
    best = std::max(best, score);
    if (!(score < best - kRoundings)) draw.contenders.push_back({token.x, first_id_ + token.id});
    if (token.x < draw.lowest) draw.ties = 0;
    draw.lowest = std::min(draw.lowest, token.x);
    draw.ties += token.x == draw.lowest ? 1 : 0;
  }
  draw.count = static_cast<int32_t>(size);
}

}  // namespace sluice
