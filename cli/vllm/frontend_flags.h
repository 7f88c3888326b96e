// Every flag of vLLM's own server: what becomes of it before its engine alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::cli {

enum class FlagFate : uint8_t {
  kServer,    // the command has it
  kRefused,   // answers would be others without a word
  kNoEffect,  // said once: answers are the same
  kEngine,    // means something to the engine
};

struct FrontendFlag {
  std::string_view name;
  FlagFate fate;
  std::string_view note = {};   // what to do instead, or why it has no effect
  std::string_view usual = {};  // the value that is taken although others are refused
};

std::span<const FrontendFlag> FrontendFlags();
// Null for all others, which are the engine's.
const FrontendFlag* FindFrontendFlag(std::string_view name);

}  // namespace sluice::cli
