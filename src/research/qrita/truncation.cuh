// Sigma truncation, the guess of Qrita (2026): the mean and the deviation of a sample of the row, a
// threshold as if the row were Gaussian, and what reaches it, gathered in the caller's memory.
//
// The table learns where the nuclei of a model's rows end, in the same deviations.
#pragma once

#include "cuda/token_list.cuh"
#include "cuda/vector_slice.cuh"
#include "research/qrita/qrita.h"
#include "semantics/select.h"
#include "sluice/research/qrita.hpp"

namespace sluice::research {

using namespace cuda;

inline constexpr int kMostOutliers = 8192;

// What certifies that the outliers hold the Cut.
enum class Certificate {
  kNone,   // nothing does: a rule looks at the whole row
  kCount,  // there are as many as the rules look at
  kMass,   // they have the mass that top-p needs of the whole row
};

struct Truncation {
  Certificate certificate;
  int32_t needed;  // by count
};

// The rules that outliers may decide.
inline constexpr semantics::RuleSet kTruncatedRules = semantics::Rules(
    semantics::Filter::kGreedy, semantics::Filter::kMinP, semantics::Filter::kTopK,
    semantics::Filter::kTopP, semantics::Filter::kMinPLast, semantics::Filter::kXtc);

__device__ inline Truncation TruncationOf(const SelectParams& params, int vocab) {
  using semantics::Filter;
  const semantics::RuleSet rules = semantics::RulesOf(params, vocab);
  if (Has(rules, Filter::kGreedy)) return {Certificate::kCount, 1};
  if (!IsWithin(rules, kTruncatedRules)) return {Certificate::kNone, 0};
  if (Has(rules, Filter::kTopK) && !IsJoint(rules, params.profile)) {
    return {Certificate::kCount, params.top_k};
  }
  const bool by_mass = Has(rules, Filter::kTopP) && !Has(rules, Filter::kMinP);
  return {by_mass ? Certificate::kMass : Certificate::kNone, 0};
}

// The finite values of a sample.
struct Body {
  float mean;
  float deviation;     // 0: nothing is known
  float finite_share;  // of the row

  __device__ float ThresholdAt(float sigma) const {
    const float x = mean + sigma * deviation;
    return x >= semantics::kLowestValue ? x : semantics::kLowestValue;  // NaN too
  }
  __device__ float SigmaOf(float x) const { return (x - mean) / deviation; }
};

// Beyond a short row the first vectors have -inf.
template <DType kDType>
__device__ Body BodyOf(const Team& team, const VectorSlice<kDType>& slice,
                       const FirstVectors& loaded) {
  float sum = 0.0f, squares = 0.0f;
  uint64_t finite = 0;
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce; ++i) {
    const Vector<kDType> vector(loaded[i]);
#pragma unroll
    for (int e = 0; e < Vector<kDType>::kElements; ++e) {
      if (!(fabsf(vector.x[e]) < INFINITY)) continue;
      ++finite;
      sum += vector.x[e];
      squares += vector.x[e] * vector.x[e];
    }
  }
  auto sum_of = [&](float value) {
    const double total = __longlong_as_double(static_cast<long long>(
        team.Reduce(static_cast<uint64_t>(__double_as_longlong(static_cast<double>(value))),
                    [](uint64_t a, uint64_t b) {
                      return static_cast<uint64_t>(
                          __double_as_longlong(__longlong_as_double(static_cast<long long>(a)) +
                                               __longlong_as_double(static_cast<long long>(b))));
                    })));
    return static_cast<float>(total);
  };
  const float n = static_cast<float>(team.Sum(finite));
  Body body;
  body.mean = sum_of(sum) / n;
  const float variance = sum_of(squares) / n - body.mean * body.mean;
  const bool is_known = n >= 32.0f && variance > 0.0f && variance < 1e30f;
  body.deviation = is_known ? sqrtf(variance) : 0.0f;
  body.finite_share = fminf(n / (slice.SampledShare() * static_cast<float>(slice.vocab())), 1.0f);
  return body;
}

// The value that a Gaussian exceeds with this probability, in deviations (Abramowitz and Stegun
// 26.2.23).
__device__ inline float UpperQuantile(float probability) {
  const float p = fminf(fmaxf(probability, 1e-7f), 1.0f - 1e-7f);
  const float t = sqrtf(-2.0f * logf(fminf(p, 1.0f - p)));
  const float z = t - (2.515517f + t * (0.802853f + t * 0.010328f)) /
                          (1.0f + t * (1.432788f + t * (0.189269f + t * 0.001308f)));
  return p < 0.5f ? z : -z;
}

// The entry of a table for the parameters.
__device__ inline float* EntryOf(TruncationTable& table, const SelectParams& params) {
  const float temperature = semantics::EffectiveTemperature(params.temperature);
  const int row = temperature < 0.6f ? 0 : temperature < 0.9f ? 1 : temperature < 1.1f ? 2 : 3;
  const float rest = fmaxf(1.0f - params.top_p, 1e-6f);
  const int column = static_cast<int>(-2.0f * log2f(rest));
  return &table.sigma[row][min(max(column, 0), TruncationTable::kShares - 1)];
}

inline constexpr float kLeastSigma = -8.0f;
inline constexpr float kMostSigma = 64.0f;

__device__ inline bool IsLearned(float sigma) {
  return sigma != 0.0f && sigma >= kLeastSigma && sigma <= kMostSigma;
}

// By one thread. boundary: the last kept value of the row, in its deviations. The threshold moves
// below the nuclei that it has missed, and up where too many reach it. Rows that are looked at
// together aim from what all of them were given, so they do not add up; an update that another row
// overtakes is lost.
__device__ inline void Learn(float* entry, const RowNote& note, int room, float boundary) {
  const float way = boundary - note.sigma;
  const uint32_t most = static_cast<uint32_t>(room);
  float aim = note.sigma, rate = 0.1f;
  if (way < 0) {
    aim = boundary + 0.25f * way;
    rate = 0.5f;
  } else if (note.gathered > most) {
    aim += 0.75f * way;
    rate = 0.5f;
  } else if (note.gathered > most / 2) {
    aim += 0.02f * way;
  } else if (note.gathered < most / 8) {
    aim -= 0.05f * way;
  }
  if (!(aim >= kLeastSigma && aim <= kMostSigma)) return;
  const float old = *static_cast<volatile float*>(entry);
  const float next = IsLearned(old) ? old + rate * (aim - old) : aim;
  atomicCAS(reinterpret_cast<unsigned int*>(entry), __float_as_uint(old), __float_as_uint(next));
}

// Of the threshold, equal in all threads. learned: of the table, else 0. For k it is the
// quantile of k / V less 15 %. For p it is a formula of this project, not the table of Qrita: 1 and
// the quantile of the mass of N(0, 1), less 25 %. It goes lower than the table in vLLM's Qrita (p =
// 0.9: -0.35 for 0.85 deviations) and so gathers more. room: how many fit.
__device__ inline float SigmaOf(const Truncation& truncation, const SelectParams& params,
                                const Body& body, int vocab, int room, float learned) {
  const float elements = static_cast<float>(vocab) * body.finite_share;
  const float least = UpperQuantile(0.6f * static_cast<float>(room) / elements);
  float sigma = learned;
  if (truncation.certificate == Certificate::kCount) {
    sigma = UpperQuantile(static_cast<float>(truncation.needed) / elements);
    sigma = fmaxf(sigma - 0.15f * fabsf(sigma), least);
  } else if (!IsLearned(learned)) {
    sigma = 1.0f + UpperQuantile(params.top_p);
    sigma = fmaxf(sigma - 0.25f * fabsf(sigma), least);
  }
  return sigma;
}

// In shared memory of the first block.
struct GatherMemory {
  uint32_t gathered;
  uint32_t is_spoilt;
};

struct Gathered {
  uint32_t count;  // more than there is room for: not all of them
  bool is_spoilt;  // NaN or +inf was seen
};

// Everything from the threshold on, in no order. The memory was cleared before the last Sync.
template <DType kDType>
__device__ Gathered GatherOutliers(const Team& team, const VectorSlice<kDType>& slice,
                                   FirstVectors& loaded, GatherMemory& memory, float threshold,
                                   float* values, uint32_t room) {
  GatherMemory& first = *team.Of(0, &memory);
  auto put = [&](float x, uint32_t lanes) {  // by the lanes that have one
    if (!(x < INFINITY)) atomicOr(&first.is_spoilt, 1u);
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    uint32_t place = 0;
    if (team.lane() == leader) {
      place = atomicAdd(&first.gathered, static_cast<uint32_t>(__popc(lanes)));
    }
    place = __shfl_sync(lanes, place, leader) +
            static_cast<uint32_t>(__popc(lanes & ((1u << team.lane()) - 1)));
    if (place < room) values[place] = x;
  };
  slice.Stream(loaded, [&](const Eight<kDType>& eight) {
    bool all_below = true;  // false for a NaN
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) all_below &= eight.x[e] < threshold;
    if (__all_sync(~0u, all_below)) return;
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) {
      const uint32_t lanes = __ballot_sync(~0u, !(eight.x[e] < threshold));
      if (!(eight.x[e] < threshold)) put(eight.x[e], lanes);
    }
  });
  team.Sync();
  const Gathered gathered{first.gathered, first.is_spoilt != 0};
  team.Sync();  // the first block may leave before others have read
  return gathered;
}

// Values in a list, as a slice of a row that RowRules takes.
struct ListedValues {
  const float* values;
  int size;
  int first;  // of this thread
  int step;

  template <class TeamOfRow>
  __device__ ListedValues(const TeamOfRow& team, const float* list, int count)
      : values(list),
        size(count),
        first(team.rank() * team.threads() + team.thread()),
        step(team.threads() * team.blocks()) {}

  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll 1
    for (int i = first; i < size; i += step) visit(values[i], i);
  }
};

}  // namespace sluice::research
