// Planes and the certified head as opaque handles.
#include "capi/certified_head.h"

#include <string>
#include <string_view>
#include <utility>

#include "capi/guard.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

struct sluice_head_planes {
  HeadPlanes planes;
};

namespace {

// C++ refuses a value that no enum has, which the name of one cannot.
template <typename Enum>
const char* NameUpTo(Enum last, Enum value) {
  return value <= last ? Name(value).data() : "unknown";  // a literal: it ends with 0
}

const sluice_plane_options& CheckedOptions(const sluice_plane_options* options) {
  const sluice_plane_options& c = Deref("options", options);
  CheckAbi("options", c.abi_version);
  return c;
}

}  // namespace

const char* sluice_certificate_kind_name(sluice_certificate_kind kind) {
  return NameUpTo(CertificateKind::kStrict, static_cast<CertificateKind>(kind));
}
const char* sluice_certified_path_name(sluice_certified_path path) {
  return NameUpTo(CertifiedPath::kDense, static_cast<CertifiedPath>(path));
}
const char* sluice_dense_reason_name(sluice_dense_reason reason) {
  return NameUpTo(DenseReason::kMass, static_cast<DenseReason>(reason));
}

sluice_status sluice_certificate_kind_by_name(const char* name, sluice_certificate_kind* kind) {
  return Guarded([&] {
    sluice_certificate_kind& result = Deref("kind", kind);
    result = static_cast<sluice_certificate_kind>(CertificateKindByName(&Deref("name", name)));
  });
}

sluice_status sluice_head_planes_build(const sluice_matrix_view* weight,
                                       const sluice_plane_options* options,
                                       sluice_head_planes** planes) {
  return Guarded([&] {
    sluice_head_planes*& result = Deref("planes", planes);
    result = nullptr;
    const MatrixView view = ToCpp(Deref("weight", weight));
    const sluice_plane_options& c = CheckedOptions(options);
    HeadPlaneOptions build;
    build.kind = static_cast<CertificateKind>(c.kind);
    if (c.has_seed) build.seed = c.seed;
    build.progress = c.progress;
    build.progress_context = c.progress_context;
    result = new sluice_head_planes{HeadPlanes::Build(view, build, ToCpp(c.parallel))};
  });
}

sluice_status sluice_head_planes_load(const char* path, const sluice_matrix_view* weight,
                                      const sluice_plane_options* options,
                                      sluice_head_planes** planes) {
  return Guarded([&] {
    sluice_head_planes*& result = Deref("planes", planes);
    result = nullptr;
    const std::string file = &Deref("path", path);
    const MatrixView view = ToCpp(Deref("weight", weight));
    const sluice_plane_options& c = CheckedOptions(options);
    result = new sluice_head_planes{
        HeadPlanes::Load(file, view, {c.check_weights, c.check_planes}, ToCpp(c.parallel))};
  });
}

sluice_status sluice_head_planes_save(const sluice_head_planes* planes, const char* path) {
  return Guarded([&] { Deref("planes", planes).planes.Save(&Deref("path", path)); });
}

sluice_status sluice_head_planes_info(const sluice_head_planes* planes, sluice_plane_info* info) {
  return Guarded([&] {
    const HeadPlanes& own = Deref("planes", planes).planes;
    Deref("info", info) = {static_cast<sluice_certificate_kind>(own.kind()), own.vocab(), own.dim(),
                           own.bytes()};
  });
}

void sluice_head_planes_destroy(sluice_head_planes* planes) { delete planes; }

sluice_status sluice_certified_head_create(const sluice_dense_head* head,
                                           const sluice_head_planes* planes,
                                           sluice_certified_head** certified) {
  return Guarded([&] {
    sluice_certified_head*& result = Deref("certified", certified);
    result = nullptr;
    const DenseHead dense = ToDenseHead(head);
    result = new sluice_certified_head{CertifiedHead(dense, Deref("planes", planes).planes)};
  });
}

void sluice_certified_head_destroy(sluice_certified_head* certified) { delete certified; }

sluice_status sluice_certified_topk_workspace_bytes(const sluice_certified_head* certified,
                                                    int64_t rows, const sluice_execution* execution,
                                                    size_t* bytes) {
  return Guarded([&] {
    const CertifiedHead& own = Deref("certified", certified).head;
    size_t& result = Deref("bytes", bytes);
    result = own.TopKWorkspaceBytes(rows, ToExecution(execution));
  });
}

sluice_status sluice_certified_topk(const sluice_certified_head* certified,
                                    const sluice_certified_input* input,
                                    const sluice_certified_top* top, sluice_certified_row* rows,
                                    size_t row_count, sluice_certified_stats* stats,
                                    const sluice_execution* execution) {
  return Guarded([&] {
    const CertifiedHead& own = Deref("certified", certified).head;
    const sluice_certified_top& t = Deref("top", top);
    Report(own.TopK(ToCpp(Deref("input", input)),
                    {t.k, Elements("ids", t.ids, t.id_count),
                     Elements("logits", t.logits, t.logit_count),
                     ToStatuses("status", t.status, t.status_count)},
                    Structs("rows", rows, row_count), ToExecution(execution)),
           stats);
  });
}
