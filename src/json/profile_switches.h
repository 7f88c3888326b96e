// The switches of a Profile by name, for profiles that have none of their own.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "sluice/profile.hpp"

namespace sluice {

struct ProfileSwitch {
  std::string_view name;
  std::array<std::string_view, 2> values;
  bool (*get)(const Profile& profile);
  void (*set)(Profile& profile, bool value);
};

// Every switch has two positions; the first is that of vllm.
#define SLUICE_SWITCH(field, type, first, second)                  \
  {#field,                                                         \
   {first, second},                                                \
   [](const Profile& profile) { return profile.field != type{}; }, \
   [](Profile& profile, bool value) { profile.field = static_cast<type>(value); }}
inline constexpr ProfileSwitch kProfileSwitches[] = {
    SLUICE_SWITCH(ties, Ties, "lowest_id", "all"),
    SLUICE_SWITCH(top_k_top_p, TopKTopP, "sequential", "joint"),
    SLUICE_SWITCH(min_p_stage, MinPStage, "before_top_k", "last"),
    SLUICE_SWITCH(top_p_boundary, TopPBoundary, "exclusive", "inclusive"),
    SLUICE_SWITCH(penalty_scope, PenaltyScope, "output", "prompt_and_output"),
    SLUICE_SWITCH(temperature_stage, TemperatureStage, "before_truncation", "last"),
};
#undef SLUICE_SWITCH

}  // namespace sluice
