#include "head/certified/planes.h"

#include <string>

#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr size_t Aligned(size_t offset) {
  return (offset + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

constexpr std::string_view kKinds[] = {"dither4", "strict"};

}  // namespace

PlaneLayout::PlaneLayout(CertificateKind kind, int64_t vocab, int64_t dim)
    : tiles((vocab + kTileRows - 1) / kTileRows), groups((dim + kPlaneGroup - 1) / kPlaneGroup) {
  const auto tile_groups = static_cast<size_t>(tiles * groups);
  const size_t code_bytes = tile_groups * kTileGroupBytes;
  const bool is_strict = kind == CertificateKind::kStrict;
  dither = Aligned(sizeof(PlaneHeader));
  scales = Aligned(dither + static_cast<size_t>(groups) * kPlaneGroup * sizeof(float));
  codes = Aligned(scales + tile_groups * kTileRows * sizeof(uint16_t));
  low_codes = codes + code_bytes;
  errors = low_codes + (is_strict ? code_bytes : 0);
  end = errors + (is_strict ? 2 * static_cast<size_t>(tiles) * kTileRows * sizeof(float) : 0);
}

PlaneView HeadPlanes::Impl::view() const {
  PlaneView view;
  view.kind = static_cast<CertificateKind>(header().kind);
  view.vocab = header().vocab;
  view.dim = header().dim;
  const PlaneLayout layout(view.kind, view.vocab, view.dim);
  view.groups = layout.groups;
  const std::byte* const data = bytes_.data();
  view.dither = reinterpret_cast<const float*>(data + layout.dither);
  view.scales = reinterpret_cast<const uint16_t*>(data + layout.scales);
  view.codes = data + layout.codes;
  if (view.kind == CertificateKind::kStrict) {
    view.low_codes = data + layout.low_codes;
    view.errors = reinterpret_cast<const float*>(data + layout.errors);
    view.low_errors = view.errors + layout.tiles * kTileRows;
  }
  return view;
}

CertificateKind HeadPlanes::kind() const {
  return static_cast<CertificateKind>(impl_->header().kind);
}
int64_t HeadPlanes::vocab() const { return impl_->header().vocab; }
int64_t HeadPlanes::dim() const { return impl_->header().dim; }
size_t HeadPlanes::bytes() const { return impl_->bytes().size(); }

std::string_view Name(CertificateKind kind) {
  if (kind > CertificateKind::kStrict) {
    ThrowInvalid("kind", ToText(static_cast<int64_t>(kind)), "dither4 or strict");
  }
  return kKinds[static_cast<size_t>(kind)];
}

CertificateKind CertificateKindByName(std::string_view name) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i] == name) return static_cast<CertificateKind>(i);
  }
  ThrowInvalid("kind", ToText(name), "dither4 or strict");
}

std::string_view Name(CertifiedPath path) {
  if (path > CertifiedPath::kDense) {
    ThrowInvalid("path", ToText(static_cast<int64_t>(path)), "nothing, planes, allowed or dense");
  }
  constexpr std::string_view kNames[] = {"nothing", "planes", "allowed", "dense"};
  return kNames[static_cast<size_t>(path)];
}

std::string_view Name(DenseReason reason) {
  if (reason > DenseReason::kMass) {
    ThrowInvalid("reason", ToText(static_cast<int64_t>(reason)),
                 "none, hidden, survivors, parameters or mass");
  }
  constexpr std::string_view kNames[] = {"none", "hidden", "survivors", "parameters", "mass"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace sluice
