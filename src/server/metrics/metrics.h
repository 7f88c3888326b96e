// Prometheus' text of what the loops counted, format 0.0.4.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/http/listener.h"
#include "server/metrics/metrics_board.h"

namespace sluice::server {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// `model` is the label model_name of the metrics with vLLM's names.
std::string MetricsText(std::span<const LoopMetrics> loops, const HttpCounters& http,
                        int64_t max_requests, std::string_view model);

}  // namespace sluice::server
