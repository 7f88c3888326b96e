// The header of a file of planes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "head/certified/plane_hash.h"
#include "head/certified/planes.h"

namespace sluice {

inline constexpr char kPlaneMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'H', 'P'};
inline constexpr uint32_t kPlaneVersion = 1;

inline uint64_t HashOfHeader(const PlaneHeader& header) {
  return HashOf({reinterpret_cast<const std::byte*>(&header), offsetof(PlaneHeader, header_hash)});
}

// All but the hashes.
inline PlaneHeader HeaderOf(CertificateKind kind, const MatrixView& weight) {
  PlaneHeader header = {};
  std::memcpy(header.magic, kPlaneMagic, sizeof header.magic);
  header.version = kPlaneVersion;
  header.kind = static_cast<uint32_t>(kind);
  header.dtype = static_cast<uint32_t>(weight.dtype);
  header.group = kPlaneGroup;
  header.vocab = weight.rows;
  header.dim = weight.columns;
  header.file_bytes = PlaneLayout(kind, weight.rows, weight.columns).end;
  return header;
}

// Whole or not at all. Throws Error naming `path`.
void WriteWhole(const std::string& path, std::span<const std::byte> bytes);

}  // namespace sluice
