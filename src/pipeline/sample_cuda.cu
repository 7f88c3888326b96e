// Select and Draw in one kernel, by the definition.
#include "backend/rows.cuh"
#include "draw/draw_row.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;
};

template <DType kDType>
__global__ void __launch_bounds__(kThreads) SampleKernel(SampleArgument argument) {
  __shared__ TeamMemory team_memory;
  __shared__ FindMemory find_memory;
  const Team team(team_memory);
  const TeamRow<kDType> row(team, argument.rows);
  const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
  TokenResult result;
  result.cut = semantics::CutOfStatus(scan.status);
  result.status = scan.status;
  if (scan.status == RowStatus::kOk) {
    RowRules rules(team, find_memory, row.slice, scan, row.params, row.key);
    result.cut = rules.Select(nullptr);
    const float scale = semantics::ScalesOf(row.params).draw;
    result.id = DrawToken(team, find_memory, row.slice, result.cut,
                          {scan.max, scale, argument.method, row.key});
  }
  if (team.IsFirstThread()) argument.results[row.index] = result;
}

}  // namespace

void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("results", results, logits.rows);
  SampleArgument argument{ArgumentOf(logits, params), method, results.data};
  const RowKernel kernel{ForDType(logits.dtype, SampleKernel<DType::kF32>,
                                  SampleKernel<DType::kBf16>, SampleKernel<DType::kF16>),
                         kThreads, BlocksForRows(logits.rows)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
}

}  // namespace sluice::cuda
