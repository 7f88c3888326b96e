// The functions that a backend provides for the forward pass, and their meaning. Sums have a fixed
// order, so that a row has the same bits on every backend and in every batch:
//   - a sum over a row's elements goes by 16 lanes, lane j takes elements j, j + 16, ... in order,
//     then a halving tree 8, 4, 2, 1 (LaneSums, layer_ref.cc);
//   - the score of a position is one chain of fma over the elements of the head;
//   - the output of a head is, for each element, one chain of fma over the positions;
//   - a product of int8 rows is an int32, which is exact.
// Arguments have been checked; pointers need no alignment but that of their elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::model {

inline constexpr size_t kLanes = 16;
inline constexpr size_t kPagePositions = 16;  // a vector of positions: see Attention
inline constexpr size_t kHeadsAtOnce = 4;     // of a group: their scores lie together

// How far apart rows of codes lie; the elements after a row's width are zero.
constexpr size_t CodeStride(size_t width) { return (width + 63) / 64 * 64; }

enum class Activation : uint8_t { kSilu, kGeluTanh };

// A row with a largest magnitude below this is zero: 127 / max|x| would not be finite.
inline constexpr float kLeastCoded = 0x1p-118f;

// codes[i] * scale, where scale = max|x| / 127 and codes are x * (127 / max|x|) rounded to nearest
// even. A row that is not finite has scale NaN.
struct CodedRows {
  int16_t* codes = nullptr;  // of int8 range; [rows, CodeStride(width)]
  float* scales = nullptr;
  // Where the backend has `narrow` and there are several rows:
  int8_t* bytes = nullptr;  // the codes again
  int32_t* sums = nullptr;  // of each row's codes
};

struct Int8Matrix {
  const int8_t* codes = nullptr;  // [rows, CodeStride(columns)]
  const float* scales = nullptr;  // one a row
  int64_t rows = 0;
  int64_t columns = 0;
};

// One query row against the keys of one head. A page holds 16 positions of one layer: for each head
// of keys first the keys, [head_dim][16], element by element, then the values, [16][value_stride].
struct Attention {
  const float* queries = nullptr;  // [group, head_dim]: the heads that share these keys
  size_t group = 1;
  size_t head_dim = 0;
  size_t value_stride = 0;         // head_dim rounded up to kLanes
  const float* cache = nullptr;    // of this head and layer, in page 0
  size_t page_stride = 0;          // floats from one page to the next
  const int32_t* pages = nullptr;  // of the sequence
  int64_t begin = 0, end = 0;      // positions that are seen
  float scale = 1.0f;
  float softcap = 0.0f;     // of scores; 0: none
  float* scores = nullptr;  // room for those of kHeadsAtOnce heads, or of the group
  size_t score_stride = 0;  // from one head's to the next: end rounded up to 16, at least
  float* out = nullptr;     // [group, head_dim]
};

struct LayerTable {
  // y = x / sqrt(mean(x^2) + eps) * weight. y may be x.
  void (*rms_norm)(const float* x, const float* weight, size_t width, float eps, float* y);
  // One row. Writes CodeStride(width) codes; returns the scale.
  float (*encode)(const float* x, size_t width, int16_t* codes);
  // One row's codes to CodeStride(width) bytes; returns their sum. Null: `multiply` needs no bytes.
  int32_t (*narrow)(const int16_t* codes, size_t width, int8_t* bytes);
  // y[r * stride + v] = float(<codes, row v>) * (scale of r * scale of v) for v in [begin, end).
  void (*multiply)(const Int8Matrix& matrix, const CodedRows& x, int64_t rows, int64_t begin,
                   int64_t end, float* y, size_t stride);
  // Turns element i with element i + half by the angle of the given cosine and sine.
  void (*rotate)(float* head, size_t half, const float* cosines, const float* sines);
  void (*attend)(const Attention& attention);
  // gate = activation(gate) * up.
  void (*activate)(Activation activation, float* gate, const float* up, size_t count);
  void (*add)(float* x, const float* y, size_t count);  // x += y
  void (*soft_cap)(float cap, float* x, size_t count);
};

extern const LayerTable kLayerRef;
extern const LayerTable kLayerAvx2;
extern const LayerTable kLayerAvx512;      // of any processor with AVX-512
extern const LayerTable kLayerAvx512Vnni;  // of one that multiplies bytes as well

}  // namespace sluice::model
