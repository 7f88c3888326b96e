// Hidden states as integers (head/certified/hidden_codes.h) in the order in which tensor cores take
// them, and what each row is after. A warp has a group of a hidden state, a thread four
// neighbouring elements.
#include "cuda/row_slice.cuh"
#include "head/certified/cuda/row_progress.cuh"
#include "head/certified/quantise.h"
#include "semantics/draw/noise.h"
#include "semantics/validate.h"
#include "semantics/widen.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr double kLargest = 127 * 128;  // these three as in hidden_codes.cc
constexpr double kLeastNorm = 0x1p-60;
constexpr double kLeastStep = 0x1p-90;

struct EncodeMemory {
  double rho[kWarps];
  double squares[kWarps];
  int32_t allowed[kWarps];
  uint32_t has_nan;
  uint32_t has_inf;
};

template <typename T>
__device__ T SumOfWarp(T value) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

struct EncodedGroup {
  double squares;
  double rho;
};

// By a warp. values: four elements of a thread, of the padding 0.
__device__ EncodedGroup EncodeGroup(const CertifiedArgs& call, int row, int group,
                                    const float (&values)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float largest = 0.0f;
  for (const float x : values) largest = fmaxf(largest, fabsf(x));
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  const float scale_of_group =
      largest == 0.0f
          ? 0.0f
          : static_cast<float>(fmax(static_cast<double>(largest) / kLargest, kLeastStep));
  const double scale = static_cast<double>(scale_of_group);
  const float4 u = reinterpret_cast<const float4*>(call.planes.dither + group * kPlaneGroup)[lane];
  const float dither_of[4] = {u.x, u.y, u.z, u.w};
  double squares = 0.0, rest_squares = 0.0, dither = 0.0;
  uint32_t high_word = 0, low_word = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const double value = static_cast<double>(values[e]);
    const int element = largest == 0.0f ? 0 : static_cast<int>(rint(value / scale));
    const int high = (element + 64 + 128 * 128) / 128 - 128;  // floor
    const int low = element - 128 * high;
    high_word |= static_cast<uint32_t>(high & 0xff) << 8 * e;
    low_word |= static_cast<uint32_t>(low & 0xff) << 8 * e;
    dither += static_cast<double>(dither_of[e]) * element;
    const double rest = value - scale * element;
    squares += value * value;
    rest_squares += rest * rest;
  }
  squares = SumOfWarp(squares);
  rest_squares = SumOfWarp(rest_squares);
  dither = SumOfWarp(dither);

  QuadGroup& quad = call.memory.quads[PlaceOfQuad(row / kStatesOfQuad, group, call.planes.groups)];
  const int state = row % kStatesOfQuad;
  quad.elements[lane / 4][2 * state][lane % 4] = high_word;
  quad.elements[lane / 4][2 * state + 1][lane % 4] = low_word;
  const double norm = largest == 0.0f ? 0.0 : fmax(sqrt(squares), kLeastNorm);
  if (lane == 0) {
    quad.constants[state] = {scale_of_group * 0x1p-4f, static_cast<float>(scale * dither),
                             RoundedUp(norm * norm * (1.0 + 1e-9)), 0.0f};
  }
  return {squares, largest == 0.0f ? 0.0 : sqrt(rest_squares) / norm * (1.0 + 1e-9)};
}

// What the parameters say. By one thread.
__device__ void ReadQuestion(const CertifiedArgs& call, int row, RowProgress& progress) {
  const QuestionArgument& question = call.question;
  progress = RowProgress{};
  progress.way = RowProgress::Way::kPlanes;
  progress.filter_class = FilterClass::kFirst;
  progress.k = question.k;
  progress.takes_first = question.k == 1;
  progress.least_first = ~0u;
  progress.first_id = question.first_id;
  if (question.params == nullptr) return;
  const SelectParams& params = question.params[question.has_params_per_row ? row : 0];
  progress.key = question.keys[question.has_keys_per_row ? row : 0];
  if (!semantics::AreValid(params, question.limits) || !semantics::IsValid(progress.key)) {
    progress.way = RowProgress::Way::kAnswered;
    progress.status = RowStatus::kBadParam;
    return;
  }
  const semantics::Scales scales = semantics::ScalesOf(params);
  progress.filter_scale = scales.filter;
  progress.draw_scale = scales.draw;
  progress.min_p = params.min_p;
  const int32_t vocab = question.vocab > 0 ? question.vocab : call.planes.vocab;
  const FilterClass filter_class = semantics::FilterClassOf(params, question.method, vocab);
  if (question.k > 0 && filter_class != FilterClass::kSoftmax) return;
  progress.filter_class = filter_class;
  const bool is_greedy = semantics::IsGreedy(params);
  progress.k = is_greedy || progress.filter_class != FilterClass::kFirst ? 1 : params.top_k;
  // Of ties at the first place noise chooses where all of them are kept.
  const bool keeps_one = progress.k == 1 && params.profile.ties == Ties::kLowestId;
  progress.takes_first = is_greedy || (progress.filter_class == FilterClass::kFirst && keeps_one);
  if (progress.filter_class != FilterClass::kMass) return;
  if (!semantics::IsNucleus(params)) return LeaveToDense(progress, DenseReason::kParameters);
  progress.filter_class = FilterClass::kFirst;
  progress.k = min(kMostNucleus, min(max(call.planes.vocab / 256, 16), call.planes.vocab));
  progress.is_nucleus = true;
  progress.mass_offset = NAN;
}

template <DType kHidden>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(const __grid_constant__ CertifiedArgs call) {
  __shared__ EncodeMemory memory;
  // In this order: the next kernel reads the planes before it waits, and whatever writes them is
  // over here.
  AwaitKernelBefore();
  LetNextKernelStart();
  using Element = typename ElementOf<kHidden>::Type;
  const int row = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const PlanesArgument& planes = call.planes;
  if (threadIdx.x == 0) memory.has_nan = memory.has_inf = 0;
  if (row == 0 && threadIdx.x == 0) *call.memory.counters = {};
  __syncthreads();
  const bool is_there = row < call.memory.rows;
  const Element* hidden =
      static_cast<const Element*>(call.hidden) + (is_there ? row * call.hidden_stride : 0);
  double rho = 0.0, squares = 0.0;
  for (int group = warp; group < planes.groups; group += kWarps) {
    float values[4];
    bool has_nan = false, has_inf = false;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = group * kPlaneGroup + lane * 4 + e;
      const bool is_element = is_there && i < planes.dim;
      values[e] = is_element ? Widen<kHidden>(hidden[i]) : 0.0f;
      if (is_element) call.memory.hidden[int64_t{row} * planes.dim + i] = values[e];
      has_nan |= semantics::IsNan(values[e]);
      has_inf |= fabsf(values[e]) == INFINITY;
    }
    if (has_nan) memory.has_nan = 1;
    if (has_inf) memory.has_inf = 1;
    if (__any_sync(~0u, has_nan || has_inf)) {
      for (float& x : values) x = 0.0f;  // the row has another way
    }
    const EncodedGroup encoded = EncodeGroup(call, row, group, values);
    rho = fmax(rho, encoded.rho);
    squares += encoded.squares;
  }
  if (!is_there) return;
  int32_t allowed = 0;
  if (call.bitmask != nullptr) {
    const int words = (planes.vocab + 31) / 32;
    for (int w = static_cast<int>(threadIdx.x); w < words; w += kThreads) {
      uint32_t bits = static_cast<uint32_t>(call.bitmask[int64_t{row} * words + w]);
      if (w == words - 1 && planes.vocab % 32 != 0) bits &= (1u << planes.vocab % 32) - 1;
      allowed += __popc(bits);
    }
    allowed = SumOfWarp(allowed);
  }
  if (lane == 0) {
    memory.rho[warp] = rho;
    memory.squares[warp] = squares;
    memory.allowed[warp] = allowed;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  RowProgress progress;
  ReadQuestion(call, row, progress);
  squares = 0.0;
  allowed = 0;
  for (int w = 0; w < kWarps; ++w) {
    rho = fmax(rho, memory.rho[w]);
    squares += memory.squares[w];
    allowed += memory.allowed[w];
  }
  const double norm = call.kappa > 0.0 ? 0.0 : static_cast<double>(NormUp(squares));
  progress.bound = StepBoundOf(planes.dim, call.kappa, norm, rho);
  const bool is_few = call.bitmask != nullptr && allowed <= FewAllowed(planes.vocab);
  if (progress.way != RowProgress::Way::kAnswered) {
    if (call.bitmask != nullptr && allowed == 0) {
      progress.way = RowProgress::Way::kAnswered;
      progress.status = RowStatus::kEmptySupport;
    } else if (memory.has_nan != 0) {  // then so is every logit
      progress.way = RowProgress::Way::kAnswered;
      progress.status = RowStatus::kNanInput;
    } else if (is_few) {
      progress.way = RowProgress::Way::kAllowed;
      progress.reason = DenseReason::kNone;
    } else if (memory.has_inf != 0) {
      LeaveToDense(progress, DenseReason::kHidden);
    } else if (progress.k > call.memory.budget && progress.way == RowProgress::Way::kPlanes) {
      LeaveToDense(progress, DenseReason::kSurvivors);
    }
  }
  call.memory.progress[row] = progress;
  call.memory.sure[row] = {};
}

}  // namespace

void LaunchEncode(const CertifiedArgs& call, void* stream) {
  const void* kernel = call.hidden_dtype == DType::kF32
                           ? reinterpret_cast<const void*>(EncodeKernel<DType::kF32>)
                       : call.hidden_dtype == DType::kBf16
                           ? reinterpret_cast<const void*>(EncodeKernel<DType::kBf16>)
                           : reinterpret_cast<const void*>(EncodeKernel<DType::kF16>);
  const int quads = (call.memory.rows + kStatesOfQuad - 1) / kStatesOfQuad;
  CertifiedArgs argument = call;
  LaunchDependent(kernel,
                  {.blocks = static_cast<unsigned>(quads * kStatesOfQuad), .threads = kThreads},
                  &argument, stream);
}

}  // namespace sluice::cuda
