// Names of what client.hpp lists.
#include <iterator>

#include "sluice/client.hpp"
#include "support/check.h"

namespace sluice {
namespace {

constexpr std::string_view kModeNames[] = {"delta", "cumulative", "final"};
constexpr std::string_view kHealthNames[] = {"connecting", "ready", "stalled", "dead"};

}  // namespace

std::string_view Name(OutputMode mode) { return kModeNames[static_cast<size_t>(mode)]; }
std::string_view Name(EngineHealth health) { return kHealthNames[static_cast<size_t>(health)]; }

OutputMode OutputModeByName(std::string_view name) {
  for (size_t i = 0; i < std::size(kModeNames); ++i) {
    if (kModeNames[i] == name) return static_cast<OutputMode>(i);
  }
  ThrowInvalid("mode", ToText(name), "delta, cumulative or final");
}

}  // namespace sluice
