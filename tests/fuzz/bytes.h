// Arguments out of a fuzzer's bytes. Behind their end everything is 0.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "sluice/cut.hpp"
#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : bytes_(data, size) {}

  bool IsEmpty() const { return bytes_.empty(); }

  template <typename T>
  T Raw() {
    T value{};
    const size_t size = bytes_.size() < sizeof value ? bytes_.size() : sizeof value;
    if (size > 0) std::memcpy(&value, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Raw<uint8_t>()) % (high - low + 1);
  }
  bool Coin() { return Raw<uint8_t>() & 1u; }

 private:
  std::span<const uint8_t> bytes_;
};

// Ends the run. A plain if, because assert goes away with NDEBUG.
inline void Check(bool holds) {
  if (!holds) std::abort();
}

// Equality of bits, so that NaN equals the same NaN. (GoogleTest is not linked here.)
inline bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool SameBits(const TokenResult& a, const TokenResult& b) {
  return a.id == b.id && a.status == b.status && SameBits(a.logprob, b.logprob) &&
         a.rank == b.rank && a.cut == b.cut;
}
template <typename T>
bool SameBits(const T& a, const T& b) {
  return a == b;
}
template <typename A, typename B>
bool SameSequence(const A& a, const B& b) {
  if (std::size(a) != std::size(b)) return false;
  for (size_t i = 0; i < std::size(a); ++i) {
    if (!SameBits(a[i], b[i])) return false;
  }
  return true;
}

// Values that a caller may mean, the ends of ranges, and now and then any bits at all.
inline float Parameter(Bytes& bytes) {
  constexpr float kValues[] = {0.0f, 1.0f,  0.5f,  0.9f, 0.1f,  1e-12f, 0.99999994f,
                               2.0f, 0.01f, 1e-6f, 0.3f, 0.05f, 1.5f,   16.0f};
  const uint8_t choice = bytes.Raw<uint8_t>();
  return choice < 240 ? kValues[choice % std::size(kValues)] : bytes.Raw<float>();
}

inline Profile AnyProfile(Bytes& bytes) {
  const uint8_t bits = bytes.Raw<uint8_t>();
  Profile profile;
  profile.ties = static_cast<Ties>(bits & 1u);
  profile.top_k_top_p = static_cast<TopKTopP>(bits >> 1 & 1u);
  profile.min_p_stage = static_cast<MinPStage>(bits >> 2 & 1u);
  profile.top_p_boundary = static_cast<TopPBoundary>(bits >> 3 & 1u);
  profile.penalty_scope = static_cast<PenaltyScope>(bits >> 4 & 1u);
  profile.temperature_stage = static_cast<TemperatureStage>(bits >> 5 & 1u);
  return profile;
}

// Each filter is left off half of the time.
template <typename Params>
void ReadSelectParams(Bytes& bytes, Params* params) {
  const uint8_t on = bytes.Raw<uint8_t>();
  if (on & 1u) params->temperature = Parameter(bytes);
  if (on & 2u) params->top_k = bytes.Raw<int8_t>();
  if (on & 4u) params->top_p = Parameter(bytes);
  if (on & 8u) params->min_p = Parameter(bytes);
  if (on & 16u) params->top_n_sigma = Parameter(bytes);
  if (on & 32u) params->typical_p = Parameter(bytes);
  if (on & 64u) params->xtc_probability = Parameter(bytes);
  if (on & 64u) params->xtc_threshold = Parameter(bytes);
  if (on & 128u) params->profile = AnyProfile(bytes);
}

// A row of any bits, or one of few distinct values, which has ties everywhere.
inline void FillRow(Bytes& bytes, DType dtype, int64_t size, void* row) {
  const bool any_bits = bytes.Coin();
  for (int64_t i = 0; i < size; ++i) {
    if (dtype == DType::kF32) {
      static_cast<float*>(row)[i] =
          any_bits ? bytes.Raw<float>() : static_cast<float>(bytes.Raw<int8_t>()) * 0.125f;
    } else {
      // bf16: steps of an eighth around 1 and its negative; fp16 the same, finer.
      const uint8_t byte = bytes.Raw<uint8_t>();
      const uint16_t base = dtype == DType::kBf16 ? 0x3f80u : 0x3c00u;
      const uint16_t few = static_cast<uint16_t>((byte & 0x80u) << 8 | (base + 16 * (byte & 31u)));
      static_cast<uint16_t*>(row)[i] = any_bits ? bytes.Raw<uint16_t>() : few;
    }
  }
}

}  // namespace sluice::fuzz
