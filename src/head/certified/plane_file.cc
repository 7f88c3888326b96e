// Planes as a file: what is in memory, byte for byte, mapped back when it is loaded.
#include "head/certified/plane_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "head/certified/planes.h"
#include "support/check.h"
#include "support/mapped_file.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr int64_t kHashedAtOnce = int64_t{1} << 20;
constexpr int64_t kRowsHashedAtOnce = 64;

[[noreturn]] void Refuse(const std::string& path, const std::string& found,
                         const std::string& allowed) {
  ThrowInvalid("planes", ToText(path) + " (" + found + ")", allowed);
}

class MappedPlanes : public HeadPlanes::Impl {
 public:
  explicit MappedPlanes(const std::string& path) : file_(path, "planes", "a file of planes") {
    const size_t size = file_.bytes().size();
    if (size < sizeof(PlaneHeader)) {
      Refuse(path, "truncated: " + std::to_string(size) + " bytes",
             "at least the " + std::to_string(sizeof(PlaneHeader)) + " bytes of a header");
    }
    bytes_ = file_.bytes();
  }

 private:
  MappedFile file_;
};

// In this order: what is no file of planes is not called damaged.
void CheckHeader(const std::string& path, const PlaneHeader& header, size_t file_bytes) {
  if (std::memcmp(header.magic, kPlaneMagic, sizeof header.magic) != 0) {
    Refuse(path, "does not begin with SLUICEHP", "a file that HeadPlanes::Save wrote");
  }
  if (header.version != kPlaneVersion) {
    Refuse(path, "version " + std::to_string(header.version),
           "version " + std::to_string(kPlaneVersion) + ": build the planes again");
  }
  if (header.header_hash != HashOfHeader(header)) {
    Refuse(path, "its header is damaged", "a header with the hash that it says");
  }
  if (header.kind > static_cast<uint32_t>(CertificateKind::kStrict) ||
      header.group != kPlaneGroup) {
    Refuse(path,
           "kind " + std::to_string(header.kind) + ", groups of " + std::to_string(header.group),
           "a kind and a group of this version");
  }
  if (header.file_bytes != file_bytes) {
    const char* const found = file_bytes < header.file_bytes ? "truncated: " : "too long: ";
    Refuse(path, found + std::to_string(file_bytes) + " bytes",
           std::to_string(header.file_bytes) + " bytes, as its header says");
  }
}

void CheckSame(const std::string& path, const char* what, int64_t found, int64_t wanted) {
  if (found == wanted) return;
  Refuse(path, std::string(what) + " " + std::to_string(found),
         std::string(what) + " " + std::to_string(wanted) + ", the weight's");
}

void CheckWeightsAre(const std::string& path, const PlaneHeader& header, const MatrixView& weight) {
  CheckSame(path, "vocab", header.vocab, weight.rows);
  CheckSame(path, "dim", header.dim, weight.columns);
  if (header.dtype != static_cast<uint32_t>(weight.dtype)) {
    Refuse(path, "dtype " + std::string(Name(static_cast<DType>(header.dtype))),
           std::string(Name(weight.dtype)) + ", the weight's");
  }
  const auto kind = static_cast<CertificateKind>(header.kind);
  if (header.file_bytes != PlaneLayout(kind, weight.rows, weight.columns).end) {
    Refuse(path, std::to_string(header.file_bytes) + " bytes", "the bytes of its shape");
  }
}

uint64_t Combined(const std::vector<uint64_t>& hashes) {
  return HashOf(std::as_bytes(std::span(hashes)));
}

}  // namespace

uint64_t HashOfWeights(const MatrixView& weight, const ParallelFor& parallel) {
  const int64_t tasks = (weight.rows + kRowsHashedAtOnce - 1) / kRowsHashedAtOnce;
  std::vector<uint64_t> hashes(static_cast<size_t>(tasks));
  const size_t row_bytes = static_cast<size_t>(weight.columns) * SizeOf(weight.dtype);
  ForEachRow(parallel, tasks, [&](int64_t task, int) {
    uint64_t hash = 0;
    const int64_t end = std::min((task + 1) * kRowsHashedAtOnce, weight.rows);
    for (int64_t v = task * kRowsHashedAtOnce; v < end; ++v) {
      hash = MixedHash(hash, HashOf({static_cast<const std::byte*>(weight.Row(v)), row_bytes}));
    }
    hashes[static_cast<size_t>(task)] = hash;
  });
  return Combined(hashes);
}

uint64_t HashOfPlanes(std::span<const std::byte> sections, const ParallelFor& parallel) {
  const int64_t size = std::ssize(sections);
  const int64_t tasks = (size + kHashedAtOnce - 1) / kHashedAtOnce;
  std::vector<uint64_t> hashes(static_cast<size_t>(tasks));
  ForEachRow(parallel, tasks, [&](int64_t task, int) {
    const int64_t begin = task * kHashedAtOnce;
    const int64_t end = std::min(begin + kHashedAtOnce, size);
    hashes[static_cast<size_t>(task)] =
        HashOf(sections.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  });
  return Combined(hashes);
}

HeadPlanes HeadPlanes::Load(const std::string& path, const MatrixView& weight,
                            const PlaneChecks& checks, const ParallelFor& parallel) {
  CheckMatrix("weight", "dim", weight, int64_t{1} << 20);
  CheckInRange("weight.rows", weight.rows, 1, kMaxVocab);
  auto mapped = std::make_shared<MappedPlanes>(path);
  const PlaneHeader& header = mapped->header();
  CheckHeader(path, header, mapped->bytes().size());
  CheckWeightsAre(path, header, weight);
  const auto kind = static_cast<CertificateKind>(header.kind);
  const PlaneLayout layout(kind, weight.rows, weight.columns);
  if (checks.planes &&
      header.planes_hash != HashOfPlanes(mapped->bytes().subspan(layout.dither), parallel)) {
    Refuse(path, "its planes are damaged", "planes with the hash that its header says");
  }
  if (checks.weights && header.weights_hash != HashOfWeights(weight, parallel)) {
    Refuse(path, "of other weights", "planes of these weights: build them again");
  }
  return PlaneAccess::Make(std::move(mapped));
}

void HeadPlanes::Save(const std::string& path) const { WriteWhole(path, impl_->bytes()); }

void WriteWhole(const std::string& path, std::span<const std::byte> bytes) {
  // Whole or not at all: a reader never finds half a file under the name.
  const std::string partial = path + ".partial";
  std::FILE* const file = std::fopen(partial.c_str(), "wb");
  const auto refuse = [&] {
    const std::string why = std::strerror(errno);
    if (file != nullptr) std::remove(partial.c_str());
    ThrowInvalid("path", ToText(path) + " (" + why + ")", "a file that can be written");
  };
  if (file == nullptr) refuse();
  const bool is_written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool is_closed = std::fclose(file) == 0;
  if (!is_written || !is_closed) refuse();
  if (std::rename(partial.c_str(), path.c_str()) != 0) refuse();
}

}  // namespace sluice
