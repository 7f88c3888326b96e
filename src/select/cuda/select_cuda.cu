// Select, Mask and SelectAndMask.
#include "select/cuda/select_kernel.cuh"

namespace sluice::cuda {
namespace {

void Launch(const LogitsView& logits, SelectArgument argument, void* stream) {
  const bool by_definition = argument.is_given || argument.masses != nullptr;
  const void* function = argument.rows.patches != nullptr
                             ? PatchedSelectKernelFor(logits.dtype, by_definition)
                             : SelectKernelFor<false>(logits.dtype, by_definition);
  const RowKernel kernel =
      by_definition ? RowKernel{function, WideShapeForRows(logits.rows), 0}
                    : RowKernel{function, ShapeForRows(logits.rows), sizeof(SelectMemory)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
}

}  // namespace

void Select(const LogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
            DeviceArray<CutMass> masses, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckOneARow("masses", masses, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .cuts = cuts.data,
          .masses = masses.size == 0 ? nullptr : masses.data,
          .is_given = false,
          .masks = false},
         stream);
}

void Mask(const MutableLogitsView& logits, DeviceArray<const Cut> cuts, void* stream) {
  CheckRows(logits);
  CheckOneARow("cuts", cuts, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, {}),
          .cuts = const_cast<Cut*>(cuts.data),  // not written: they are given
          .masses = nullptr,
          .is_given = true,
          .masks = true},
         stream);
}

void SelectAndMask(const MutableLogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
                   void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckHasNoPatches(params);
  CheckOneARow("cuts", cuts, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .cuts = cuts.data,
          .masses = nullptr,
          .is_given = false,
          .masks = true},
         stream);
}

}  // namespace sluice::cuda
