// The few places where engines mean different things by the same parameter, as switches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// Tokens equal to the boundary value of top-k or top-p.
enum class Ties : uint8_t {
  kLowestId,  // the lowest ids, so that top-k keeps exactly k
  kAll,       // all of them
};

// Top-k together with top-p.
enum class TopKTopP : uint8_t {
  kSequential,  // top-p is measured on the survivors of top-k
  kJoint,       // each is measured on the same tokens; the intersection is kept
};

enum class MinPStage : uint8_t {
  kBeforeTopK,
  kLast,  // on the kept set, against the same maximum
};

// A token that starts exactly at the target mass.
enum class TopPBoundary : uint8_t {
  kExclusive,  // is dropped
  kInclusive,  // is kept
};

// Which tokens frequency and presence penalties count.
enum class PenaltyScope : uint8_t { kOutput, kPromptAndOutput };

enum class TemperatureStage : uint8_t {
  kBeforeTruncation,
  kLast,  // filters see T = 1, only the draw sees T
};

struct Profile {
  Ties ties = Ties::kLowestId;
  TopKTopP top_k_top_p = TopKTopP::kSequential;
  MinPStage min_p_stage = MinPStage::kBeforeTopK;
  TopPBoundary top_p_boundary = TopPBoundary::kExclusive;
  PenaltyScope penalty_scope = PenaltyScope::kOutput;
  TemperatureStage temperature_stage = TemperatureStage::kBeforeTruncation;

  friend bool operator==(const Profile&, const Profile&) = default;
};

struct NamedProfile {
  std::string_view name;
  Profile profile;
};

inline constexpr NamedProfile kProfiles[] = {
    {"vllm", {}},
    {"hf", {.ties = Ties::kAll, .min_p_stage = MinPStage::kLast}},
    {"sglang",
     {.ties = Ties::kAll, .top_k_top_p = TopKTopP::kJoint, .min_p_stage = MinPStage::kLast}},
    {"llamacpp",
     {.min_p_stage = MinPStage::kLast,
      .penalty_scope = PenaltyScope::kPromptAndOutput,
      .temperature_stage = TemperatureStage::kLast}},
    {"tensorrt-llm",
     {.top_p_boundary = TopPBoundary::kInclusive, .penalty_scope = PenaltyScope::kPromptAndOutput}},
};

// The profile of that name; throws Error naming the known ones.
Profile ProfileByName(std::string_view name);

}  // namespace sluice
