// Scores from planes, one row after the other, and the choice of a backend's way.
#include <array>

#include "backend/registry.h"
#include "head/score_table.h"

namespace sluice {
namespace {

// Of a plane's codes with a group of a hidden state; below 2^24, so that fp32 holds it.
int32_t GroupSum(const std::byte* codes, int64_t row, int64_t group, const HiddenGroup& hidden) {
  int32_t sum = hidden.start;
  for (int j = 0; j < kPlaneGroup; ++j) {
    sum += CodeOf(codes, row, group * kPlaneGroup + j) * (128 * hidden.high[j] + hidden.low[j]);
  }
  return sum;
}

struct RowScore {
  float score = 0.0f;
  float square = 0.0f;
};

RowScore ScoreRow(const PlaneView& planes, const std::byte* plane, float step,
                  const HiddenState& state, int64_t tile, int64_t row) {
  const std::byte* const codes = planes.Codes(plane, tile);
  RowScore of_row;
  for (int64_t g = 0; g < planes.groups; ++g) {
    const HiddenGroup& hidden = state.groups[g];
    const float scale = semantics::WidenBf16(planes.Scales(tile)[g * kTileRows + row]);
    const float sum = static_cast<float>(GroupSum(codes, row, g, hidden));
    const float y = semantics::Fma(sum, hidden.scale, hidden.dither);
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
      const int64_t tile = v / kTileRows;
      const int64_t row = v % kTileRows;
      const RowScore of_row = ScoreRow(planes, planes.codes, 1.0f, states[i], tile, row);
      const bool has_bias = v < std::ssize(bias);
      const float score = has_bias ? of_row.score + bias[static_cast<size_t>(v)] : of_row.score;
      const float error = planes.errors == nullptr ? 0.0f : planes.errors[v];
      intervals[i].scores[v] = score;
      intervals[i].widths[v] = HalfWidth(score, of_row.square, error, states[i].bound);
    }
  }
}

void RefineRef(const PlaneView& planes, const HiddenState& state, int64_t tile,
               const Intervals& intervals) {
  for (int64_t row = 0; row < kTileRows; ++row) {
    const int64_t v = tile * kTileRows + row;
    const RowScore low = ScoreRow(planes, planes.low_codes, 0x1p-4f, state, tile, row);
    const float score = intervals.scores[v] + low.score;
    intervals.scores[v] = score;
    intervals.widths[v] = HalfWidth(score, low.square, planes.low_errors[v], state.bound);
  }
}

}  // namespace

const ScoreTable kScoreRef = {ScoreRef, RefineRef};

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
