// The parameters of a row, which every rank must have been given: their fingerprint, which travels
// with the row's first message, and, where fingerprints differ, the field that does.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "parallel/shard_rank.h"
#include "semantics/host_device.h"
#include "sluice/params.hpp"
#include "support/check.h"

namespace sluice {

// see(name, value) for every field.
template <typename See>
void ForEachField(const SelectParams& params, See see) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  see("params." #name, params.name);
#include "sluice/params.def"
  const Profile& profile = params.profile;
  see("params.profile.ties", profile.ties);
  see("params.profile.top_k_top_p", profile.top_k_top_p);
  see("params.profile.min_p_stage", profile.min_p_stage);
  see("params.profile.top_p_boundary", profile.top_p_boundary);
  see("params.profile.temperature_stage", profile.temperature_stage);
}

// Of ShardSampler::Sample.
struct SampleRequest {
  const SelectParams& params;
  const NoiseKey& key;
  Limits limits;
  DrawMethod method;
};

template <typename See>
void ForEachField(const SampleRequest& request, See see) {
  ForEachField(request.params, see);
  see("keys.seed", request.key.seed);
  see("keys.position", request.key.position);
  see("keys.choice", request.key.choice);
  see("keys.stream", request.key.stream);
  see("limits.max_temperature", request.limits.max_temperature);
  see("draw_method", request.method);
}

// Of ShardSampler::Logprobs. cut: in processed modes.
struct LogprobRequest {
  const SelectParams& params;
  LogprobMode mode;
  int32_t id;
  RowStatus status;
  Cut cut;
};

template <typename See>
void ForEachField(const LogprobRequest& request, See see) {
  ForEachField(request.params, see);
  see("mode", request.mode);
  see("results.id", request.id);
  see("results.status", request.status);
  see("results.cut.upper", request.cut.upper);
  see("results.cut.lower", request.cut.lower);
  see("results.cut.ties_dropped", request.cut.ties_dropped);
  see("results.cut.ties_kept", request.cut.ties_kept);
}

template <typename Value>
uint64_t FieldBits(Value value) {
  if constexpr (std::is_same_v<Value, float>) {
    return semantics::BitsOf(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

template <typename Value>
std::string FieldText(uint64_t bits) {
  if constexpr (std::is_same_v<Value, float>) {
    return ToText(static_cast<double>(semantics::FloatOf(static_cast<uint32_t>(bits))));
  } else if constexpr (std::is_signed_v<Value>) {
    return std::to_string(static_cast<int64_t>(bits));
  } else {
    return std::to_string(bits);
  }
}

// Requests that differ have the same one once in 2^64 times.
template <typename Request>
uint64_t Fingerprint(const Request& request) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  ForEachField(request, [&hash](const char*, auto value) {
    hash = (hash ^ FieldBits(value)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  });
  return hash;
}

// Ranks exchange the parameters that they were given, and all throw Error on the first field in
// which a rank differs from the first one.
template <typename Request>
void RequireSameFields(ShardRank& rank, const Request& own) {
  int64_t fields = 0;
  ForEachField(own, [&](const char*, auto) { ++fields; });
  uint64_t* bits = rank.Parts<uint64_t>(fields);
  ForEachField(own, [&](const char*, auto value) { *bits++ = FieldBits(value); });
  rank.Exchange();
  for (int32_t r = 1; r < rank.ranks(); ++r) {
    int64_t field = 0;
    ForEachField(own, [&](const char* name, auto value) {
      using Value = decltype(value);
      const uint64_t first = rank.PartOf<uint64_t>(0, field);
      const uint64_t other = rank.PartOf<uint64_t>(r, field);
      ++field;
      if (other == first) return;
      ThrowInvalid(name, FieldText<Value>(other) + " on rank " + std::to_string(r),
                   FieldText<Value>(first) + ", as on rank 0");
    });
  }
}

// Where ranks have other fingerprints of a row, all of them see it.
template <typename Request>
[[noreturn]] void ThrowOtherRequest(ShardRank& rank, const Request& own) {
  RequireSameFields(rank, own);
  ThrowInvalid("request", "another fingerprint of the same fields",
               "the same library on every rank");
}

// fingerprint_of(rank, row), request_of(row).
template <typename FingerprintOf, typename RequestOf>
void RequireSameRequests(ShardRank& rank, int64_t rows, FingerprintOf fingerprint_of,
                         RequestOf request_of) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int32_t r = 1; r < rank.ranks(); ++r) {
      if (fingerprint_of(r, row) != fingerprint_of(0, row)) {
        ThrowOtherRequest(rank, request_of(row));
      }
    }
  }
}

}  // namespace sluice
