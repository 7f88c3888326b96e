// The draw from a certified head on a device, in the order of its kernels.
#include "sampler/certified/sample_survivors.h"
#include "sluice/cuda/certified_sample.hpp"

namespace sluice::cuda {

void SampleIdsFromHead(const CertifiedCall& call, const RowParams& params, DrawMethod method,
                       DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream) {
  const int64_t rows = call.hidden.rows;
  QuestionArgument question = {};
  question.method = method;
  question.params = params.params.data;
  question.keys = params.keys.data;
  question.has_params_per_row = params.params.size > 1;
  question.has_keys_per_row = params.keys.size > 1;
  question.limits = params.limits;
  const CertifiedArgs argument = ArgumentOf(call, question);
  CheckRowParams(params, rows, true);
  CheckMethod(method);
  CheckOneARow("ids", ids, rows);
  CheckOneARow("statuses", statuses, rows, true);
  if (rows == 0) return;
  const DrawnTokens tokens = {ids.data, statuses.size == 0 ? nullptr : statuses.data};
  LaunchCertifiedPrefix(argument, stream);
  SampleSurvivors(argument, params, method, tokens, stream);
  LaunchDense(argument, stream);
  SampleDenseRows(argument, params, method, tokens, stream);
}

}  // namespace sluice::cuda
