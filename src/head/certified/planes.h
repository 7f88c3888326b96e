// Planes: a head's rows in four bits an element, in addition to the head itself.
//
// Rows lie in tiles of 16, elements in groups of 128, the last of both filled up with zeros. In a
// group of a tile, 64 bytes hold 4 bytes of each row: byte b of step k has the code of element
// 4 k + b in its low half and that of element 64 + 4 k + b in its high half. So one vector of
// 32-bit lanes is 16 rows (or 8), one broadcast of four elements of a hidden state serves them all,
// and no sum has to cross lanes. A code is q + 8.
//
// Strict planes have low codes as well, w ~ s (q + low / 16). Few rows need them, so those of a row
// lie together: byte b of a group's 64 has the code of element b in its low half and that of
// element 64 + b in its high half.
//
// In memory the planes are the file: header, dither, scales, codes and, in strict planes, the low
// codes and two norms of the errors a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "head/certified/bound.h"
#include "semantics/widen.h"
#include "sluice/certified_head.hpp"

namespace sluice {

inline constexpr int kTileRows = 16;
inline constexpr int kRowGroupBytes = kPlaneGroup / 2;
inline constexpr int kTileGroupBytes = kTileRows * kRowGroupBytes;
inline constexpr size_t kSectionAlignment = 64;

struct PlaneHeader {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  uint32_t dtype;  // of the weights
  uint32_t group;
  int64_t vocab;
  int64_t dim;
  uint64_t weights_hash;
  uint64_t planes_hash;  // of what follows the header
  uint64_t file_bytes;
  uint64_t header_hash;  // of the fields above
};

// Where each section begins, and the end of the last.
struct PlaneLayout {
  PlaneLayout(CertificateKind kind, int64_t vocab, int64_t dim);

  int64_t tiles;
  int64_t groups;
  size_t dither;
  size_t scales;
  size_t codes;
  size_t low_codes;  // these two of strict planes only
  size_t errors;
  size_t end;
};

// The sections, to read.
struct PlaneView {
  CertificateKind kind = CertificateKind::kDither4;
  int64_t vocab = 0;
  int64_t dim = 0;
  int64_t groups = 0;
  const float* dither = nullptr;         // [groups][128]
  const uint16_t* scales = nullptr;      // [tiles][groups][16], bf16
  const std::byte* codes = nullptr;      // [tiles][groups][1024]
  const std::byte* low_codes = nullptr;  // [tiles * 16][groups][64]
  const float* errors = nullptr;         // [tiles][16]: ||w - s q||
  const float* low_errors = nullptr;     // [tiles][16]: ||w - s (q + low / 16)||

  const uint16_t* Scales(int64_t tile) const { return scales + tile * groups * kTileRows; }
  const std::byte* Codes(int64_t tile) const { return codes + tile * groups * kTileGroupBytes; }
  const std::byte* LowCodes(int64_t row) const { return low_codes + row * groups * kRowGroupBytes; }
  int64_t tiles() const { return (vocab + kTileRows - 1) / kTileRows; }
};

// The byte of a tile's codes that has an element, and whether it is in its high half.
inline int64_t CodeByte(int64_t row_in_tile, int64_t element) {
  const int64_t byte = element % kPlaneGroup % 64;
  return element / kPlaneGroup * kTileGroupBytes + byte / 4 * 4 * kTileRows + row_in_tile * 4 +
         byte % 4;
}
inline int64_t LowCodeByte(int64_t element) {
  return element / kPlaneGroup * kRowGroupBytes + element % kPlaneGroup % 64;
}
inline bool IsHighHalf(int64_t element) { return element % kPlaneGroup >= 64; }

// The code of an element, 0 to 15.
inline int CodeIn(std::byte byte, int64_t element) {
  return IsHighHalf(element) ? std::to_integer<int>(byte) >> 4 : std::to_integer<int>(byte) & 15;
}
inline int CodeOf(const std::byte* tile_codes, int64_t row_in_tile, int64_t element) {
  return CodeIn(tile_codes[CodeByte(row_in_tile, element)], element);
}
inline int LowCodeOf(const std::byte* row_codes, int64_t element) {
  return CodeIn(row_codes[LowCodeByte(element)], element);
}

// What a HeadPlanes holds: the bytes, built or mapped.
class HeadPlanes::Impl {
 public:
  virtual ~Impl() = default;
  std::span<const std::byte> bytes() const { return bytes_; }
  const PlaneHeader& header() const { return *reinterpret_cast<const PlaneHeader*>(bytes_.data()); }
  PlaneView view() const;

 protected:
  std::span<const std::byte> bytes_;
};

// What the certificates of a HeadPlanes read, for the rest of the library.
struct PlaneAccess {
  static PlaneView View(const HeadPlanes& planes) { return planes.impl_->view(); }
  static const PlaneHeader& Header(const HeadPlanes& planes) { return planes.impl_->header(); }
  static std::span<const std::byte> Bytes(const HeadPlanes& planes) {
    return planes.impl_->bytes();
  }
  static HeadPlanes Make(std::shared_ptr<const HeadPlanes::Impl> impl) {
    HeadPlanes planes;
    planes.impl_ = std::move(impl);
    return planes;
  }
};

}  // namespace sluice
