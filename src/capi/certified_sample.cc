// Draws from a certified head, for rows and for the requests of a sampler.
#include "capi/certified_head.h"
#include "capi/guard.h"
#include "capi/sampler.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

sluice_status sluice_sample_from_head_workspace_bytes(const sluice_certified_head* certified,
                                                      int64_t rows,
                                                      const sluice_execution* execution,
                                                      size_t* bytes) {
  return Guarded([&] {
    const CertifiedHead& own = Deref("certified", certified).head;
    size_t& result = Deref("bytes", bytes);
    result = SampleFromHeadWorkspaceBytes(own, rows, ToExecution(execution));
  });
}

sluice_status sluice_sample_from_head(const sluice_certified_head* certified,
                                      const sluice_certified_input* input,
                                      const sluice_row_draws* draws, sluice_token_result* results,
                                      size_t result_count, sluice_certified_row* rows,
                                      size_t row_count, sluice_certified_stats* stats,
                                      const sluice_execution* execution) {
  return Guarded([&] {
    const CertifiedHead& own = Deref("certified", certified).head;
    const CertifiedInput in = ToCpp(Deref("input", input));
    const sluice_row_draws& c = Deref("draws", draws);
    Report(
        SampleFromHead(own, in, ToSelectParams("", c.params, c.param_count),
                       ToNoiseKeys("", c.keys, c.key_count), ToCpp(c.limits),
                       static_cast<DrawMethod>(c.method), Structs("results", results, result_count),
                       Structs("rows", rows, row_count), ToExecution(execution)),
        stats);
  });
}

sluice_status sluice_sample_ids_from_head(const sluice_certified_head* certified,
                                          const sluice_certified_input* input,
                                          const sluice_row_draws* draws, int32_t* ids,
                                          size_t id_count, sluice_row_status* statuses,
                                          size_t status_count, sluice_certified_row* rows,
                                          size_t row_count, sluice_certified_stats* stats,
                                          const sluice_execution* execution) {
  return Guarded([&] {
    const CertifiedHead& own = Deref("certified", certified).head;
    const CertifiedInput in = ToCpp(Deref("input", input));
    const sluice_row_draws& c = Deref("draws", draws);
    Report(SampleIdsFromHead(own, in, ToSelectParams("", c.params, c.param_count),
                             ToNoiseKeys("", c.keys, c.key_count), ToCpp(c.limits),
                             static_cast<DrawMethod>(c.method), Elements("ids", ids, id_count),
                             ToStatuses("statuses", statuses, status_count),
                             Structs("rows", rows, row_count), ToExecution(execution)),
           stats);
  });
}

sluice_status sluice_sampler_step_from_head(sluice_sampler* sampler,
                                            const sluice_certified_head* certified,
                                            const sluice_certified_input* input,
                                            const sluice_request_handle* requests,
                                            size_t request_count, sluice_token_result* results,
                                            size_t result_count, sluice_certified_row* rows,
                                            size_t row_count, sluice_certified_stats* stats,
                                            const sluice_execution* execution) {
  return Guarded([&] {
    Sampler& own = Deref("sampler", sampler).sampler;
    const CertifiedHead& head = Deref("certified", certified).head;
    Report(own.StepFromHead(head, ToCpp(Deref("input", input)),
                            Structs("requests", requests, request_count),
                            Structs("results", results, result_count),
                            Structs("rows", rows, row_count), ToExecution(execution)),
           stats);
  });
}

sluice_status sluice_sampler_step_ids_from_head(
    sluice_sampler* sampler, const sluice_certified_head* certified,
    const sluice_certified_input* input, const sluice_request_handle* requests,
    size_t request_count, int32_t* ids, size_t id_count, sluice_row_status* statuses,
    size_t status_count, sluice_certified_row* rows, size_t row_count,
    sluice_certified_stats* stats, const sluice_execution* execution) {
  return Guarded([&] {
    Sampler& own = Deref("sampler", sampler).sampler;
    const CertifiedHead& head = Deref("certified", certified).head;
    Report(own.StepIdsFromHead(
               head, ToCpp(Deref("input", input)), Structs("requests", requests, request_count),
               Elements("ids", ids, id_count), ToStatuses("statuses", statuses, status_count),
               Structs("rows", rows, row_count), ToExecution(execution)),
           stats);
  });
}
