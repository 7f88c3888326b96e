// Scores from planes, one row after the other, and the choice of a backend's way.
#include <algorithm>
#include <array>

#include "head/certified/score_table.h"
#include "support/registry.h"

namespace sluice {
namespace {

struct RowScore {
  float score = 0.0f;
  float square = 0.0f;
};

// code(j): of the element. step: of the plane, in scales.
template <typename Code>
RowScore ScoreRow(const PlaneView& planes, int64_t row, float step, const HiddenState& state,
                  const Code& code) {
  const uint16_t* const scales = planes.Scales(row / kTileRows) + row % kTileRows;
  RowScore of_row;
  for (int64_t g = 0; g < planes.groups; ++g) {
    const HiddenGroup& hidden = state.groups[g];
    int32_t sum = hidden.start;
    for (int j = 0; j < kPlaneGroup; ++j) {
      sum += code(g * kPlaneGroup + j) * (128 * hidden.high[j] + hidden.low[j]);
    }
    // Below 2^24, so that fp32 holds it.
    const float y = semantics::Fma(static_cast<float>(sum), hidden.scale, hidden.dither);
    const float scale = semantics::WidenBf16(scales[g * kTileRows]);
    of_row.score = semantics::Fma(scale * step, y, of_row.score);
    of_row.square = semantics::Fma(scale * scale, hidden.square, of_row.square);
  }
  return of_row;
}

void ScoreRef(const PlaneView& planes, std::span<const float> bias,
              std::span<const HiddenState> states, std::span<const Intervals> intervals,
              int64_t begin_tile, int64_t end_tile) {
  for (size_t i = 0; i < states.size(); ++i) {
    for (int64_t v = begin_tile * kTileRows; v < end_tile * kTileRows; ++v) {
      const std::byte* const codes = planes.Codes(v / kTileRows);
      const RowScore of_row = ScoreRow(planes, v, 1.0f, states[i],
                                       [&](int64_t j) { return CodeOf(codes, v % kTileRows, j); });
      const bool has_bias = v < std::ssize(bias);
      const float score = has_bias ? of_row.score + bias[static_cast<size_t>(v)] : of_row.score;
      const float error = planes.errors == nullptr ? 0.0f : planes.errors[v];
      intervals[i].scores[v] = score;
      intervals[i].widths[v] = HalfWidth(score, of_row.square, error, states[i].bound);
    }
  }
}

void RefineRef(const PlaneView& planes, const HiddenState& state, int64_t row,
               const Intervals& intervals) {
  const std::byte* const codes = planes.LowCodes(row);
  const RowScore low =
      ScoreRow(planes, row, 0x1p-4f, state, [&](int64_t j) { return LowCodeOf(codes, j); });
  const float score = intervals.scores[row] + low.score;
  intervals.scores[row] = score;
  intervals.widths[row] = HalfWidth(score, low.square, planes.low_errors[row], state.bound);
}

MassBounds MassBoundsRef(const Intervals& intervals, int64_t size, const MassQuestion& question) {
  const auto weight = [&](float x) { return semantics::Weight(x, question.max, question.scale); };
  MassBounds around;
  for (int64_t v = 0; v < size; ++v) {
    const float score = intervals.scores[v];
    const float width = intervals.widths[v];
    const float lower = std::min(score - width, question.max);
    const float upper = std::min(score + width, question.max);
    if (upper < question.x) {
      around.rest.least += weight(lower);
      around.rest.most += weight(upper);
    } else if (width == 0.0f && score == question.x) {
      ++around.ties;
    } else {
      around.above.most += weight(upper);
      ++around.tokens.most;
      if (!(lower > question.x)) continue;
      around.above.least += weight(lower);
      ++around.tokens.least;
    }
  }
  AddOpen(question, around);
  return around;
}

}  // namespace

const ScoreTable kScoreRef = {ScoreRef, RefineRef, MassBoundsRef};

#if SLUICE_HAS_CPU
namespace {
bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }
}  // namespace
#endif

const ScoreTable& ScoreTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return HasVnni() ? kScoreAvx512Vnni : kScoreAvx512;
    case Backend::kCpuAvx2:
      return kScoreAvx2;
#endif
    default:
      return kScoreRef;
  }
}

std::span<const ScoreTable* const> ScoreTables() {
  struct Available {
    std::array<const ScoreTable*, 4> tables = {};
    size_t count = 0;
  };
  static const Available available = [] {
    Available here;
    here.tables[here.count++] = &kScoreRef;
#if SLUICE_HAS_CPU
    for (const BackendInfo& info : Backends()) {
      if (info.backend == Backend::kCpuAvx2 && info.available) {
        here.tables[here.count++] = &kScoreAvx2;
      }
    }
    for (const BackendInfo& info : Backends()) {
      if (info.backend != Backend::kCpuAvx512 || !info.available) continue;
      here.tables[here.count++] = &kScoreAvx512;
      if (HasVnni()) here.tables[here.count++] = &kScoreAvx512Vnni;
    }
#endif
    return here;
  }();
  return {available.tables.data(), available.count};
}

}  // namespace sluice
