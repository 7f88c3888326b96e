// Metrics under the names and labels that vLLM gives them, so that its dashboards and autoscalers
// read this server too.
#pragma once

#include <span>
#include <string_view>

#include "server/metrics/families.h"

namespace sluice::server {

void AddVllmNames(std::span<const LoopMetrics> loops, std::string_view model, Families& families);

}  // namespace sluice::server
