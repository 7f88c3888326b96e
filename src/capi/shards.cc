// Calls on shards: each turns its arguments into those of its C++ namesake.
#include "capi/convert.h"
#include "capi/guard.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

namespace {

ShardInput ToShardInput(const sluice_shard_input* input) {
  const sluice_shard_input& c = Deref("input", input);
  return {Structs("shards", c.shards, c.shard_count), ToSelectParams("", c.params, c.param_count),
          ToNoiseKeys("", c.keys, c.key_count), ToCpp(c.limits)};
}

}  // namespace

sluice_status sluice_shards_workspace_bytes(const sluice_shard_input* input,
                                            const sluice_execution* execution, size_t* bytes) {
  return Guarded([&] {
    size_t& result = Deref("bytes", bytes);
    result = ShardsWorkspaceBytes(ToShardInput(input), ToExecution(execution));
  });
}

sluice_status sluice_select_shards(const sluice_shard_input* input, sluice_cut* cuts,
                                   size_t cut_count, const sluice_execution* execution) {
  return Guarded([&] {
    SelectShards(ToShardInput(input), Structs("cuts", cuts, cut_count), ToExecution(execution));
  });
}

sluice_status sluice_shard_cut(const sluice_cut* cut, int64_t ties_before_upper,
                               int64_t ties_before_lower, sluice_cut* part) {
  return Guarded([&] {
    sluice_cut& result = Deref("part", part);
    result = std::bit_cast<sluice_cut>(
        ShardCut(ToCpp(Deref("cut", cut)), ties_before_upper, ties_before_lower));
  });
}

sluice_status sluice_sample_shards(const sluice_shard_input* input, sluice_draw_method method,
                                   sluice_token_result* results, size_t result_count,
                                   const sluice_execution* execution) {
  return Guarded([&] {
    SampleShards(ToShardInput(input), static_cast<DrawMethod>(method),
                 Structs("results", results, result_count), ToExecution(execution));
  });
}
