// Draw: one token from each given Cut, by the definition.
#include "cuda/row_by_definition.cuh"
#include "draw/cuda/draw_row.cuh"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

struct DrawArgument {
  RowsArgument rows;
  DrawMethod method;
  const Cut* cuts;
  TokenResult* results;
};

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    DrawKernel(const __grid_constant__ DrawArgument argument) {
  __shared__ TeamMemory team_memory;
  __shared__ FindMemory find_memory;
  const Team team(team_memory);
  const TeamRow<kDType, kPatched> row(team, argument.rows, TeamIndex(team));
  const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
  TokenResult result;
  result.cut = argument.cuts[row.index];
  result.status = semantics::Worse(result.cut.status, scan.status);
  if (result.status == RowStatus::kOk) {
    const float scale = semantics::ScalesOf(row.params).draw;
    result.id =
        semantics::IsGreedy(row.params)
            ? FirstKept(team, row.slice, ResolveTies(team, find_memory, row.slice, result.cut))
            : DrawToken(team, find_memory, row.slice, result.cut,
                        {scan.max, scale, argument.method, row.key});
    if (result.id < 0) result.status = RowStatus::kEmptySupport;  // a Cut that keeps nothing of it
  }
  if (result.status != RowStatus::kOk) result.cut = semantics::CutOfStatus(result.status);
  if (team.IsFirstThread()) argument.results[row.index] = result;
}

}  // namespace

void Draw(const LogitsView& logits, const RowParams& params, DrawMethod method,
          DeviceArray<const Cut> cuts, DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckOneARow("results", results, logits.rows);
  DrawArgument argument{ArgumentOf(logits, params), method, cuts.data, results.data};
  const void* kernel =
      argument.rows.patches != nullptr
          ? ForDType(logits.dtype, DrawKernel<DType::kF32, true>, DrawKernel<DType::kBf16, true>,
                     DrawKernel<DType::kF16, true>)
          : ForDType(logits.dtype, DrawKernel<DType::kF32, false>, DrawKernel<DType::kBf16, false>,
                     DrawKernel<DType::kF16, false>);
  LaunchOverRows({kernel, ShapeForRows(logits.rows), 0}, logits.rows, &argument, stream);
}

}  // namespace sluice::cuda
