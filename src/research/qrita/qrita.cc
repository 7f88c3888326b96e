// The names of the variants, what is said about them, and the choice between them.
#include "research/qrita/qrita.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "support/check.h"

namespace sluice::research {

using namespace cuda;

namespace {

constexpr QritaEntry kVariants[] = {
    {QritaVariant::kAuto, "auto", "always", "", ""},
    {QritaVariant::kQuaternary, "quaternary",
     "to compare with: the search of Qrita's paper, certified",
     "k above some 0.6 of the room for outliers, 0.15 % of an fp32 vocabulary, and nuclei beyond "
     "it: the whole row is searched, a read a pass",
     "Qrita, 2026"},
    {QritaVariant::kBinary, "binary", "few outliers: fewer sums a pass",
     "twice the passes, which are reads when the whole row is searched", "RTop-K, 2025"},
    {QritaVariant::kSortFinish, "sort_finish", "top-k and top-p of a few hundred outliers",
     "every other filter is left to the search of the whole row", "Qrita, 2026, run I"},
    {QritaVariant::kSort, "sort", "to compare with",
     "eight bytes of workspace an element; a block sorts a row alone", "Qrita, 2026, run J"},
    {QritaVariant::kNoTruncation, "no_truncation", "no workspace; rows that truncation misses",
     "a read for each pass", "Qrita, 2026, run E"},
    {QritaVariant::kForceFallback, "force_fallback", "to see what a miss costs",
     "the reads of both", "Qrita, 2026, run D"},
    {QritaVariant::kNoDup, "no_dup", "to see what counting ties while searching saves",
     "every search goes on until one value is left", "Qrita, 2026, run C"},
    {QritaVariant::kOneTile, "one_tile", "to see what fewer threads for fewer values save",
     "barriers of all threads, values in global memory", "Qrita, 2026, run B"},
};

std::string KnownNames() {
  std::string known;
  for (const QritaEntry& info : kVariants) {
    known.append(known.empty() ? "" : ", ").append(info.name);
  }
  return known;
}

void CheckVariant(QritaVariant variant) {
  if (static_cast<size_t>(variant) >= std::size(kVariants)) {
    ThrowInvalid("options.variant", ToText(static_cast<int64_t>(variant)), KnownNames());
  }
}

// Notes of the rows, then their outliers.
struct Layout {
  int64_t note_bytes;
  int64_t room;  // outliers a row
  int64_t bytes;
};

Layout LayoutFor(const LogitsView& logits) {
  constexpr int64_t kLeastBudget = 256 * 1024;
  constexpr int64_t kMostRoom = 8192;
  const int64_t rows = std::max<int64_t>(logits.rows, 1);
  const int64_t logit_bytes = rows * logits.vocab * static_cast<int64_t>(SizeOf(logits.dtype));
  const int64_t budget = std::max(logit_bytes / 100, kLeastBudget);
  Layout layout{};
  layout.note_bytes = (rows * static_cast<int64_t>(sizeof(RowNote)) + 15) / 16 * 16;
  const int64_t left = std::max<int64_t>(budget - layout.note_bytes, 0);
  layout.room =
      std::min({left / (rows * static_cast<int64_t>(sizeof(float))), kMostRoom, logits.vocab});
  layout.bytes = layout.note_bytes + rows * layout.room * static_cast<int64_t>(sizeof(float));
  return layout;
}

bool Truncates(QritaVariant variant) {
  return variant != QritaVariant::kAuto && variant != QritaVariant::kSort &&
         variant != QritaVariant::kNoTruncation;
}

void CheckWorkspace(const DeviceArray<std::byte>& workspace, size_t bytes) {
  if (bytes == 0) return;
  if (workspace.data == nullptr) {
    ThrowInvalid("options.workspace.data", "null", "a pointer to device memory");
  }
  if (static_cast<size_t>(std::max<int64_t>(workspace.size, 0)) < bytes) {
    ThrowInvalid("options.workspace.size", ToText(workspace.size),
                 "at least " + ToText(static_cast<int64_t>(bytes)) + " bytes");
  }
  if (reinterpret_cast<uintptr_t>(workspace.data) % 16 != 0) {
    ThrowInvalid("options.workspace.data", "a misaligned pointer", "a multiple of 16");
  }
}

}  // namespace

std::span<const QritaEntry> QritaVariants() { return kVariants; }

QritaVariant QritaVariantByName(std::string_view name) {
  for (const QritaEntry& info : kVariants) {
    if (info.name == name) return info.variant;
  }
  ThrowInvalid("variant", ToText(name), KnownNames());
}

size_t QritaWorkspaceBytes(const LogitsView& logits, QritaVariant variant) {
  CheckRows(logits);
  CheckVariant(variant);
  if (variant == QritaVariant::kSort) return SortWorkspaceBytes(logits);
  return Truncates(variant) ? static_cast<size_t>(LayoutFor(logits).bytes) : 0;
}

void SelectByQrita(const LogitsView& logits, const RowParams& params, const QritaOptions& options,
                   DeviceArray<Cut> cuts, void* stream) {
  const QritaVariant variant = options.variant;
  const size_t bytes = QritaWorkspaceBytes(logits, variant);
  if (variant == QritaVariant::kAuto) {
    cuda::Select(logits, params, cuts, DeviceArray<CutMass>(), stream);
    return;
  }
  CheckRowParams(params, logits.rows, false);
  CheckHasNoPatches(params);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckWorkspace(options.workspace, bytes);
  CheckOneARow("options.table", options.table, 1, true);

  QritaArgument argument{.rows = ArgumentOf(logits, params), .cuts = cuts.data};
  if (Truncates(variant)) {
    const Layout layout = LayoutFor(logits);
    argument.notes = reinterpret_cast<RowNote*>(options.workspace.data);
    argument.outliers = reinterpret_cast<float*>(options.workspace.data + layout.note_bytes);
    argument.room = static_cast<int32_t>(layout.room);
    argument.table = options.table.size == 0 ? nullptr : options.table.data;
    argument.leaves_all = variant == QritaVariant::kForceFallback;
    LaunchTruncation(variant, logits.dtype, argument, stream);
  } else if (variant == QritaVariant::kSort) {
    LaunchSort(logits.dtype, argument, options.workspace.data, stream);
  } else {
    argument.takes_all = true;
  }
  LaunchSearch(variant, logits.dtype, argument, stream);
}

}  // namespace sluice::research
