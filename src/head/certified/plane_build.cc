// Building planes from weights.
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "head/certified/plane_file.h"
#include "head/certified/plane_hash.h"
#include "head/certified/planes.h"
#include "head/certified/quantise.h"
#include "support/check.h"
#include "support/random_seed.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Row;

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kTilesInTask = 8;

// Bytes on the heap, aligned as the sections require.
class BuiltPlanes : public HeadPlanes::Impl {
 public:
  explicit BuiltPlanes(size_t size) : memory_((size + kSectionAlignment) / 8 + 8) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    const size_t skip = (kSectionAlignment - address % kSectionAlignment) % kSectionAlignment;
    data_ = reinterpret_cast<std::byte*>(memory_.data()) + skip;
    bytes_ = {data_, size};
  }
  std::byte* data() { return data_; }

 private:
  std::vector<uint64_t> memory_;
  std::byte* data_;
};

template <typename T>
T* At(std::byte* bytes, size_t offset) {
  return reinterpret_cast<T*>(bytes + offset);
}

class Builder {
 public:
  Builder(const MatrixView& weight, CertificateKind kind, uint64_t seed, BuiltPlanes& planes)
      : weight_(weight),
        kind_(kind),
        layout_(kind, weight.rows, weight.columns),
        bytes_(planes.data()),
        dither_(At<float>(bytes_, layout_.dither)) {
    for (int64_t j = 0; j < layout_.groups * kPlaneGroup; ++j) {
      dither_[j] = kind == CertificateKind::kDither4 ? DitherOf(seed, j) : 0.0f;
    }
  }

  // The first element that is not finite, as row * dim + column; or none.
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  int64_t BuildTile(int64_t tile) const {
    // A code of 0 everywhere, in the rows and elements that there are not as well.
    const size_t first = static_cast<size_t>(tile) * TileBytes();
    std::memset(bytes_ + layout_.codes + first, 0x88, TileBytes());
    if (kind_ == CertificateKind::kStrict) {
      std::memset(bytes_ + layout_.low_codes + first, 0x88, TileBytes());
    }
    for (int64_t row = 0; row < kTileRows; ++row) {
      const int64_t v = tile * kTileRows + row;
      if (v >= weight_.rows) break;
      const int64_t bad = BuildRow(tile, row, {weight_.Row(v), weight_.dtype, weight_.columns});
      if (bad != kNone) return v * weight_.columns + bad;
    }
    return kNone;
  }

 private:
  int64_t BuildRow(int64_t tile, int64_t row, const Row& weight) const {
    std::byte* const high = bytes_ + layout_.codes + TileBytes() * static_cast<size_t>(tile);
    std::byte* const low =  // of strict planes
        bytes_ + layout_.low_codes +
        TileBytes() / kTileRows * static_cast<size_t>(tile * kTileRows + row);
    double error = 0.0;
    double low_error = 0.0;
    for (int64_t group = 0; group < layout_.groups; ++group) {
      const int64_t begin = group * kPlaneGroup;
      const int64_t end = std::min(begin + kPlaneGroup, weight.size);
      double largest = 0.0;
      for (int64_t j = begin; j < end; ++j) {
        if (!std::isfinite(weight[j])) return j;
        largest = std::max(largest, std::fabs(static_cast<double>(weight[j])));
      }
      const uint16_t bits = ScaleFor(largest);
      At<uint16_t>(bytes_, layout_.scales)[(tile * layout_.groups + group) * kTileRows + row] =
          bits;
      const double scale = static_cast<double>(semantics::WidenBf16(bits));
      for (int64_t j = begin; j < end; ++j) {
        const double w = static_cast<double>(weight[j]);
        if (kind_ == CertificateKind::kDither4) {
          const double u = static_cast<double>(dither_[j]);
          SetCode(high + CodeByte(row, j), j, DitheredCode(w, scale, u));
          continue;
        }
        const TwoCodes code = StrictCodes(w, scale);
        SetCode(high + CodeByte(row, j), j, code.high);
        SetCode(low + LowCodeByte(j), j, code.low);
        const double e = w - scale * code.high;
        const double low_e = e - scale * code.low / 16.0;
        error += e * e;
        low_error += low_e * low_e;
      }
    }
    if (kind_ == CertificateKind::kStrict) {
      float* const errors = At<float>(bytes_, layout_.errors) + tile * kTileRows + row;
      errors[0] = NormUp(error);
      errors[layout_.tiles * kTileRows] = NormUp(low_error);
    }
    return kNone;
  }

  size_t TileBytes() const { return static_cast<size_t>(layout_.groups) * kTileGroupBytes; }

  // Where CodeIn finds it.
  static void SetCode(std::byte* byte, int64_t element, int code) {
    const auto bits = static_cast<std::byte>(code + 8);
    *byte = IsHighHalf(element) ? (*byte & std::byte{0x0f}) | bits << 4
                                : (*byte & std::byte{0xf0}) | bits;
  }

  const MatrixView& weight_;
  CertificateKind kind_;
  PlaneLayout layout_;
  std::byte* bytes_;
  float* dither_;
};

}  // namespace

HeadPlanes HeadPlanes::Build(const MatrixView& weight, const HeadPlaneOptions& options,
                             const ParallelFor& parallel) {
  CheckMatrix("weight", "dim", weight, kMaxDim);
  CheckInRange("weight.rows", weight.rows, 1, kMaxVocab);
  Name(options.kind);  // throws for one that there is not

  const PlaneLayout layout(options.kind, weight.rows, weight.columns);
  const auto planes = std::make_shared<BuiltPlanes>(layout.end);
  const uint64_t seed = options.seed.has_value() ? *options.seed : RandomSeed();
  const Builder builder(weight, options.kind, seed, *planes);

  std::atomic<int64_t> first_bad = Builder::kNone;
  std::atomic<int64_t> tiles_done = 0;
  const int64_t tasks = (layout.tiles + kTilesInTask - 1) / kTilesInTask;
  ForEachRow(parallel, tasks, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTilesInTask, layout.tiles);
    for (int64_t tile = task * kTilesInTask; tile < end; ++tile) {
      const int64_t bad = builder.BuildTile(tile);
      int64_t known = first_bad;
      while (bad < known && !first_bad.compare_exchange_weak(known, bad)) {
      }
    }
    const int64_t done = tiles_done += end - task * kTilesInTask;
    if (options.progress != nullptr) {
      options.progress(options.progress_context, std::min(done * kTileRows, weight.rows),
                       weight.rows);
    }
  });
  if (first_bad != Builder::kNone) {
    const int64_t v = first_bad / weight.columns;
    const int64_t j = first_bad % weight.columns;
    const float value = semantics::Load(weight.Row(v), weight.dtype, j);
    ThrowInvalid("weight[" + ToText(v) + "][" + ToText(j) + "]", ToText(static_cast<double>(value)),
                 "a finite number");
  }

  PlaneHeader header = HeaderOf(options.kind, weight);
  header.weights_hash = HashOfWeights(weight, parallel);
  header.planes_hash = HashOfPlanes(planes->bytes().subspan(layout.dither), parallel);
  header.header_hash = HashOfHeader(header);
  std::memcpy(planes->data(), &header, sizeof header);
  return PlaneAccess::Make(planes);
}

}  // namespace sluice
