// The parts of a layer by their definition, one number after the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/elementwise.h"
#include "model/layer_backend.h"
#include "support/registry.h"

namespace sluice::model {
namespace {

struct LaneSums {
  float lane[kLanes] = {};

  float Total() {
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
    }
    return lane[0];
  }
};

void RmsNorm(const float* x, const float* weight, size_t width, float eps, float* y) {
  LaneSums squares;
  for (size_t i = 0; i < width; ++i) {
    float& sum = squares.lane[i % kLanes];
    sum = Fma(x[i], x[i], sum);
  }
  const float mean = squares.Total() / static_cast<float>(width);
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (size_t i = 0; i < width; ++i) y[i] = x[i] * factor * weight[i];
}

float Encode(const float* x, size_t width, int16_t* codes) {
  std::fill_n(codes, CodeStride(width), int16_t{0});
  float largest = 0.0f;
  bool is_finite = true;
  for (size_t i = 0; i < width; ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (!is_finite) return semantics::QuietNan();
  if (largest < kLeastCoded) return 0.0f;
  const float factor = 127.0f / largest;
  for (size_t i = 0; i < width; ++i) codes[i] = static_cast<int16_t>(std::nearbyint(x[i] * factor));
  return largest / 127.0f;
}

void Multiply(const Int8Matrix& matrix, const CodedRows& x, int64_t rows, int64_t begin,
              int64_t end, float* y, size_t stride) {
  const size_t width = CodeStride(static_cast<size_t>(matrix.columns));
  for (int64_t r = 0; r < rows; ++r) {
    const int16_t* const codes = x.codes + static_cast<size_t>(r) * width;
    for (int64_t v = begin; v < end; ++v) {
      const int8_t* const row = matrix.codes + static_cast<size_t>(v) * width;
      int32_t sum = 0;
      for (size_t i = 0; i < width; ++i) sum += codes[i] * row[i];
      y[static_cast<size_t>(r) * stride + static_cast<size_t>(v)] =
          static_cast<float>(sum) * (x.scales[r] * matrix.scales[v]);
    }
  }
}

void Rotate(float* head, size_t half, const float* cosines, const float* sines) {
  for (size_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

// The keys of a page, then its values.
const float* Page(const Attention& a, int64_t position) {
  return a.cache + static_cast<size_t>(a.pages[position / int64_t{kPagePositions}]) * a.page_stride;
}

float Score(const Attention& a, const float* query, int64_t position) {
  const float* const keys = Page(a, position);
  const size_t slot = static_cast<size_t>(position) % kPagePositions;
  float sum = 0.0f;
  for (size_t d = 0; d < a.head_dim; ++d) sum = Fma(query[d], keys[d * kPagePositions + slot], sum);
  const float score = sum * a.scale;
  return a.softcap > 0.0f ? SoftCap(score, a.softcap) : score;
}

void Attend(const Attention& a) {
  for (size_t g = 0; g < a.group; ++g) {
    const float* const query = a.queries + g * a.head_dim;
    float* const out = a.out + g * a.head_dim;
    float largest = -semantics::Infinity();
    for (int64_t p = a.begin; p < a.end; ++p) {
      a.scores[p] = Score(a, query, p);
      largest = std::max(largest, a.scores[p]);
    }
    LaneSums weights;
    for (int64_t p = a.begin; p < a.end; ++p) {
      a.scores[p] = Exp(a.scores[p] - largest);
      weights.lane[static_cast<size_t>(p) % kLanes] += a.scores[p];
    }
    const float inverse = 1.0f / weights.Total();
    for (size_t d = 0; d < a.head_dim; ++d) {
      float sum = 0.0f;
      for (int64_t p = a.begin; p < a.end; ++p) {
        const size_t slot = static_cast<size_t>(p) % kPagePositions;
        const float* const values = Page(a, p) + a.head_dim * kPagePositions;
        sum = Fma(a.scores[p], values[slot * a.value_stride + d], sum);
      }
      out[d] = sum * inverse;
    }
  }
}

void Activate(Activation activation, float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    gate[i] = (activation == Activation::kSilu ? Silu(gate[i]) : GeluTanh(gate[i])) * up[i];
  }
}

void Add(float* x, const float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] += y[i];
}

void SoftCapAll(float cap, float* x, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] = SoftCap(x[i], cap);
}

}  // namespace

const LayerTable kLayerRef = {RmsNorm, Encode,   nullptr, Multiply,  Rotate,
                              Attend,  Activate, Add,     SoftCapAll};

#if SLUICE_HAS_CPU
namespace {

bool Runs(Backend backend) {
  return std::ranges::any_of(Backends(), [backend](const BackendInfo& info) {
    return info.backend == backend && info.available;
  });
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }

}  // namespace
#endif

const LayerTable& LayerTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return HasVnni() ? kLayerAvx512Vnni : kLayerAvx512;
    case Backend::kCpuAvx2:
      return kLayerAvx2;
#endif
    default:
      return kLayerRef;
  }
}

std::span<const LayerTable* const> LayerTables() {
  static const std::vector<const LayerTable*> tables = [] {
    std::vector<const LayerTable*> here = {&kLayerRef};
#if SLUICE_HAS_CPU
    if (Runs(Backend::kCpuAvx2)) here.push_back(&kLayerAvx2);
    if (Runs(Backend::kCpuAvx512)) here.push_back(&kLayerAvx512);
    if (Runs(Backend::kCpuAvx512) && HasVnni()) here.push_back(&kLayerAvx512Vnni);
#endif
    return here;
  }();
  return tables;
}

}  // namespace sluice::model
