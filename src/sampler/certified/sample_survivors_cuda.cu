// The last steps of a certified draw: from the few rows of the head that survived, and from the
// logits of the rows that the planes did not answer.
#include "head/certified/cuda/row_progress.cuh"
#include "head/certified/cuda/survivor_list.cuh"
#include "sampler/certified/sample_survivors.h"
#include "sampler/device/kernels/sample_kernel.cuh"

namespace sluice::cuda {
namespace {

struct SurvivorsArgument {
  SampleArgument sample;
  CertifiedArgs call;
};

// The Gumbel draw from everything: the survivors hold all that may win and the maximum.
__device__ int32_t DrawFromSurvivors(const Team& block, const CertifiedTokens& survivors,
                                     const RowProgress& progress) {
  const float max = ValueOf(FirstSurvivor(block, survivors));
  BestToken best;
  for (int i = block.thread(); i < survivors.size; i += block.threads()) {
    const auto [x, id] = survivors.data[i];
    if (x == -INFINITY) continue;
    const uint64_t bits =
        semantics::NoiseBits(progress.key, semantics::GumbelStream(progress.key), id);
    best.See(semantics::LogWeight(x, max, progress.draw_scale) + semantics::Gumbel(bits), x, id);
  }
  return IdOfBest(block, best);
}

// Why the survivors of a row do not answer it: kNone where they do. The first thread has that and
// the result.
__device__ DenseReason SampleListed(const Team& block, SampleMemory& memory,
                                    const SurvivorsArgument& argument, int row,
                                    TokenResult& result) {
  const RowProgress& progress = argument.call.memory.progress[row];
  const CertifiedTokens survivors = TokensOf(argument.call, row);
  const bool is_of_planes = progress.way == RowProgress::Way::kPlanes;
  float least = survivors.least;
  if (is_of_planes) {
    if (progress.filter_class == FilterClass::kSoftmax) {
      result.id = DrawFromSurvivors(block, survivors, progress);
      return DenseReason::kNone;
    }
    if (progress.filter_class == FilterClass::kFirst && progress.k == 1) {
      const uint64_t first = FirstSurvivor(block, survivors);
      if (progress.takes_first) {
        result.id = IdOf(first);
        return DenseReason::kNone;
      }
      least = ValueOf(first);
    }
  }
  const RowsArgument& rows = argument.sample.rows;
  Clear(block, memory.first.list);
  if (block.thread() == 0) {
    memory.start.params = rows.params[rows.has_params_per_row ? row : 0];
    memory.start.key = rows.keys[rows.has_keys_per_row ? row : 0];
    memory.start.scales = semantics::ScalesOf(memory.start.params);
  }
  block.SyncBlock();
  TokenList& list = memory.first.list;
  for (int i = block.thread(); i < survivors.size; i += block.threads()) {
    const auto [x, id] = survivors.data[i];
    if (x == -INFINITY || x < least) continue;
    const uint32_t place = atomicAdd(&list.count, 1u);
    if (place < kListCapacity) list.tokens[place] = KeyOfToken(x, id);
  }
  block.SyncBlock();
  if (list.count > kListCapacity) return DenseReason::kSurvivors;
  const int size = static_cast<int>(list.count);
  if (!is_of_planes) {  // by any rules
    result = SampleFromList(list.tokens, size, argument.sample.method);
  } else {
    ListedTop top;
    top.size = size;
    if (progress.is_nucleus) {
      // Fewer tokens than the row needs have an end, so all were computed.
      top.has_all = progress.first == 0;
      // The sums are off by what WholeMassOf allows, and those of the ends once more.
      const double sum = progress.most_mass + progress.least_mass;
      const double difference = progress.most_mass - progress.least_mass;
      top.read = {0.5 * sum, difference / sum + 2e-5};
      top.unit = {progress.filter_scale, progress.mass_offset};
    }
    const int needed = progress.filter_class == FilterClass::kFirst ? progress.k : size;
    result = SampleFromTop(block, memory, top, {needed, progress.is_nucleus}, argument.sample);
  }
  if (result.id != kUndecided) return DenseReason::kNone;
  return is_of_planes && progress.is_nucleus ? DenseReason::kMass : DenseReason::kSurvivors;
}

constexpr int kSurvivorThreads = 512;

__global__ void __launch_bounds__(kSurvivorThreads)
    SampleSurvivorsKernel(const __grid_constant__ SurvivorsArgument argument) {
  LetNextKernelStart();
  AwaitKernelBefore();
  SampleMemory& memory = MemoryOfBlock();
  const Team block(memory.team);
  const int row = static_cast<int>(blockIdx.x);
  RowProgress& progress = argument.call.memory.progress[row];
  if (HasTooMany(argument.call, progress)) {
    if (block.IsFirstThread()) LeaveToDense(progress, DenseReason::kSurvivors);
  } else if (progress.way != RowProgress::Way::kDense) {
    TokenResult result;
    result.id = -1;
    result.status = StatusOf(progress);
    const DenseReason reason = result.status != RowStatus::kOk
                                   ? DenseReason::kNone
                                   : SampleListed(block, memory, argument, row, result);
    if (block.IsFirstThread()) {
      if (reason == DenseReason::kNone) {
        argument.sample.Set(row, result, RowPath::kCertified);
      } else {
        LeaveToDense(progress, reason);
      }
    }
  }
  if (block.IsFirstThread()) Report(argument.call, row);
}

__global__ void __launch_bounds__(kMostThreads)
    SampleDenseKernel(const __grid_constant__ SurvivorsArgument argument) {
  LetNextKernelStart();
  AwaitKernelBefore();
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  if (TeamIndex(team) >= argument.call.memory.counters->dense) return;
  const int row = argument.call.memory.dense_rows[TeamIndex(team)];
  if (!SampleByGuess<DType::kF32, false>(team, memory, argument.sample, row)) {
    SampleByDefinition<DType::kF32, false>(argument.sample, row);
  }
}

SurvivorsArgument ArgumentOf(const CertifiedArgs& call, const RowParams& params, DrawMethod method,
                             const DrawnTokens& tokens) {
  const int64_t stride = int64_t{call.planes.tiles} * kTileRows;
  const LogitsView logits{
      call.memory.scores, call.memory.rows, call.planes.vocab, stride, DType::kF32, {}};
  return {{.rows = ArgumentOf(logits, params),
           .method = method,
           .results = nullptr,
           .ids = tokens.ids,
           .statuses = tokens.statuses,
           .ways = nullptr},
          call};
}

}  // namespace

void SampleSurvivors(const CertifiedArgs& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream) {
  SurvivorsArgument argument = ArgumentOf(call, params, method, tokens);
  LaunchDependent(reinterpret_cast<const void*>(SampleSurvivorsKernel),
                  {.blocks = static_cast<unsigned>(call.memory.rows),
                   .threads = kSurvivorThreads,
                   .shared_bytes = sizeof(SampleMemory)},
                  &argument, stream);
}

void SampleDenseRows(const CertifiedArgs& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream) {
  SurvivorsArgument argument = ArgumentOf(call, params, method, tokens);
  const TeamShape shape = ShapeForRows(call.memory.rows);
  LaunchDependent(reinterpret_cast<const void*>(SampleDenseKernel),
                  {.blocks = static_cast<unsigned>(call.memory.rows),
                   .threads = static_cast<unsigned>(shape.threads),
                   .shared_bytes = sizeof(SampleMemory),
                   .cluster = static_cast<unsigned>(shape.blocks)},
                  &argument, stream);
}

}  // namespace sluice::cuda
