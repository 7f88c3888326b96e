// What every rank must have been asked of a row: its fingerprint, which travels with the row's
// first message, and, where fingerprints differ, the field that does.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "semantics/host_device.h"
#include "sluice/params.hpp"
#include "support/check.h"

namespace sluice {

struct RowRequest {
  SelectParams params;
  NoiseKey key;
  Limits limits;
  DrawMethod method;
};

// visit(name, value) for every field.
template <typename Visit>
void ForEachField(const RowRequest& request, Visit see) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  see("params." #name, request.params.name);
#include "sluice/params.def"
  const Profile& profile = request.params.profile;
  see("params.profile.ties", profile.ties);
  see("params.profile.top_k_top_p", profile.top_k_top_p);
  see("params.profile.min_p_stage", profile.min_p_stage);
  see("params.profile.top_p_boundary", profile.top_p_boundary);
  see("params.profile.temperature_stage", profile.temperature_stage);
  see("keys.seed", request.key.seed);
  see("keys.position", request.key.position);
  see("keys.choice", request.key.choice);
  see("keys.stream", request.key.stream);
  see("limits.max_temperature", request.limits.max_temperature);
  see("draw_method", request.method);
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
std::string FieldText(Value value) {
  if constexpr (std::is_same_v<Value, float>) {
    return ToText(static_cast<double>(value));
  } else {
    return std::to_string(static_cast<uint64_t>(value));
  }
}

// Requests that differ have the same one once in 2^64 times.
inline uint64_t Fingerprint(const RowRequest& request) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  ForEachField(request, [&hash](const char*, auto value) {
    hash = (hash ^ FieldBits(value)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  });
  return hash;
}

// Throws Error on the first field in which that rank's request differs from the first rank's.
inline void RequireSameRequest(const RowRequest& first, const RowRequest& other, int32_t rank) {
  std::vector<uint64_t> bits;
  std::vector<std::string> texts;
  ForEachField(first, [&](const char*, auto value) {
    bits.push_back(FieldBits(value));
    texts.push_back(FieldText(value));
  });
  size_t field = 0;
  ForEachField(other, [&](const char* name, auto value) {
    const size_t i = field++;
    if (FieldBits(value) == bits[i]) return;
    ThrowInvalid(name, FieldText(value) + " on rank " + std::to_string(rank),
                 texts[i] + ", as on rank 0");
  });
}

}  // namespace sluice
