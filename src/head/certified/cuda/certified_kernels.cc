#include "head/certified/cuda/certified_kernels.h"

#include <algorithm>

#include "support/check.h"

namespace sluice::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DevicePlaneLayout::DevicePlaneLayout(CertificateKind kind, int64_t vocab, int64_t dim)
    : tiles((vocab + kTileRows - 1) / kTileRows), groups((dim + kPlaneGroup - 1) / kPlaneGroup) {
  const auto tile_groups = static_cast<size_t>(tiles * groups);
  dither = 0;
  scales = Aligned(static_cast<size_t>(groups) * kPlaneGroup * sizeof(float));
  codes = Aligned(scales + tile_groups * kTileRows * 2);
  errors = Aligned(codes + tile_groups * kTileRows * kPlaneGroup / 2);
  const bool is_strict = kind == CertificateKind::kStrict;
  const size_t padded_rows = is_strict ? static_cast<size_t>(tiles) * kTileRows : 0;
  const size_t of_row = static_cast<size_t>(groups);
  low_codes = Aligned(errors + padded_rows * sizeof(float));
  low_scales = Aligned(low_codes + padded_rows * of_row * kRowGroupBytes);
  low_errors = Aligned(low_scales + padded_rows * of_row * 2);
  end = low_errors + padded_rows * sizeof(float);
}

PlanesArgument ArgumentOf(const DevicePlanes& planes) {
  const DevicePlaneLayout layout(planes.kind, planes.vocab, planes.dim);
  const std::byte* const data = planes.memory.data;
  PlanesArgument argument = {};
  argument.dither = reinterpret_cast<const float*>(data + layout.dither);
  argument.scales = reinterpret_cast<const uint32_t*>(data + layout.scales);
  argument.codes = reinterpret_cast<const uint4*>(data + layout.codes);
  if (planes.kind == CertificateKind::kStrict) {
    argument.errors = reinterpret_cast<const float*>(data + layout.errors);
    argument.low_codes = reinterpret_cast<const uint4*>(data + layout.low_codes);
    argument.low_scales = reinterpret_cast<const uint16_t*>(data + layout.low_scales);
    argument.low_errors = reinterpret_cast<const float*>(data + layout.low_errors);
  }
  argument.vocab = static_cast<int32_t>(planes.vocab);
  argument.dim = static_cast<int32_t>(planes.dim);
  argument.tiles = static_cast<int32_t>(layout.tiles);
  argument.groups = static_cast<int32_t>(layout.groups);
  return argument;
}

CertifiedWorkspace LayOut(const DevicePlanes& planes, int64_t rows, std::byte* workspace,
                          size_t* bytes) {
  const DevicePlaneLayout layout(planes.kind, planes.vocab, planes.dim);
  const auto count = static_cast<size_t>(rows);
  const auto tiles = static_cast<size_t>(layout.tiles);
  constexpr size_t kStatesTogether = kQuadsTogether * kStatesOfQuad;
  const size_t quads = (count + kStatesTogether - 1) / kStatesTogether * kQuadsTogether;
  const size_t quad_groups = quads * static_cast<size_t>(layout.groups);
  CertifiedWorkspace memory = {};
  memory.rows = static_cast<int32_t>(rows);
  memory.budget = static_cast<int32_t>(SurvivorBudget(planes.vocab, rows));
  const size_t listed = count * static_cast<size_t>(memory.budget);
  size_t offset = 0;
  auto take = [&](auto*& member, size_t size) {
    using T = std::remove_reference_t<decltype(*member)>;
    member = reinterpret_cast<T*>(workspace + offset);
    offset += Aligned(size * sizeof(T));
  };
  take(memory.progress, count);
  take(memory.counters, 1);
  take(memory.dense_rows, count);
  take(memory.hidden, count * static_cast<size_t>(planes.dim));
  take(memory.quads, quad_groups);
  take(memory.sure, count);
  if (planes.kind == CertificateKind::kStrict && layout.groups <= kMostRefinedGroups) {
    take(memory.probed, count);
    take(memory.tile_middles, count * tiles);
  }
  take(memory.tile_least, count * tiles);
  take(memory.tile_most, count * tiles);
  take(memory.tile_least_scores, count * tiles);
  take(memory.tile_most_scores, count * tiles);
  take(memory.survivors, listed);
  take(memory.scores, count * tiles * kTileRows);
  take(memory.widths, count * tiles * kTileRows);
  *bytes = offset;
  return memory;
}

size_t CertifiedWorkspaceBytes(const DevicePlanes& planes, int64_t rows) {
  CheckInRange("rows", rows, 0, kMostCertifiedRows);
  size_t bytes = 0;
  LayOut(planes, rows, nullptr, &bytes);
  return bytes;
}

CertifiedArgs ArgumentOf(const CertifiedCall& call, const QuestionArgument& question) {
  CheckHead(call.head, call.hidden);
  const DevicePlanes& planes = call.planes;
  CheckInRange("planes.vocab", planes.vocab, call.head.weight.rows, call.head.weight.rows);
  CheckInRange("planes.dim", planes.dim, call.head.weight.columns, call.head.weight.columns);
  CheckDType("planes", planes.dtype, call.head.weight.dtype);
  CheckInRange("hidden.rows", call.hidden.rows, 0, kMostCertifiedRows);
  const int64_t rows = call.hidden.rows;
  if (call.bitmask.size != 0) {
    CheckSize("bitmask", static_cast<size_t>(call.bitmask.size), rows * ((planes.vocab + 31) / 32));
  }
  CheckOneARow("rows", call.rows, rows, true);
  CheckOneARow("refined", call.refined, rows, true);
  size_t bytes = 0;
  const CertifiedWorkspace memory = LayOut(planes, rows, call.workspace.data, &bytes);
  CheckInRange("workspace.size", call.workspace.size, static_cast<int64_t>(bytes), INT64_MAX);
  if (reinterpret_cast<uintptr_t>(call.workspace.data) % kAlignment != 0) {
    ThrowInvalid("workspace.data", "an address", "one aligned to 256");
  }
  const bool is_strict = planes.kind == CertificateKind::kStrict;
  return {.planes = ArgumentOf(planes),
          .head = ArgumentOf(call.head),
          .dtype = call.head.weight.dtype,
          .hidden = call.hidden.data,
          .hidden_stride = call.hidden.stride,
          .hidden_dtype = call.hidden.dtype,
          .bitmask = call.bitmask.size == 0 ? nullptr : call.bitmask.data,
          .kappa = is_strict ? 0.0 : DitherKappa(planes.vocab, kDitherFailure),
          .question = question,
          .memory = memory,
          .rows = call.rows.size == 0 ? nullptr : call.rows.data,
          .refined = call.refined.size == 0 ? nullptr : call.refined.data,
          .few_to_refine = kFewToRefine};
}

int64_t BytesRead(const DevicePlanes& planes, std::span<const HeadRow> rows,
                  std::span<const int32_t> refined) {
  if (rows.empty()) return 0;
  if (!refined.empty()) CheckSize("refined", refined.size(), std::ssize(rows));
  const DevicePlaneLayout layout(planes.kind, planes.vocab, planes.dim);
  const int64_t of_row = layout.groups * (kRowGroupBytes + int64_t{2});  // a scale
  const int64_t of_weights = planes.dim * static_cast<int64_t>(SizeOf(planes.dtype));
  int64_t bytes = layout.tiles * kTileRows * of_row;
  const int64_t budget = SurvivorBudget(planes.vocab, std::ssize(rows));
  bool is_dense = false;
  for (const HeadRow& row : rows) {
    bytes += std::min<int64_t>(row.survivors, budget) * of_weights;
    is_dense = is_dense || row.path == CertifiedPath::kDense;
  }
  for (const int32_t count : refined) bytes += count * of_row;
  return bytes + (is_dense ? planes.vocab * of_weights : 0);
}

}  // namespace sluice::cuda
