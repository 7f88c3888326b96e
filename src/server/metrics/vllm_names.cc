#include "server/metrics/vllm_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sluice/generation_end.hpp"

namespace sluice::server {
namespace {

struct Reason {
  GenerationEnd end;
  std::string_view name;
};
constexpr std::array<Reason, kGenerationEnds - 1> kReasons = {
    {{GenerationEnd::kStopString, "stop"},
     {GenerationEnd::kStopToken, "stop"},
     {GenerationEnd::kLength, "length"},
     {GenerationEnd::kContext, "length"},
     {GenerationEnd::kCancelled, "abort"},
     {GenerationEnd::kStatus, "error"},
     {GenerationEnd::kRejected, "error"},
     {GenerationEnd::kEngineLost, "error"}}};

}  // namespace

void AddVllmNames(std::span<const LoopMetrics> loops, std::string_view model, Families& families) {
  using Counters = CompletionCounters;
  // The server's engines count as one.
  const Families::Labels labels = {{"engine", "0"}, {"model_name", std::string(model)}};
  // vLLM has a request for each choice.
  const int64_t waiting = SumClients(loops, &ClientCounters::waiting);
  const int64_t choices = SumCompletions(loops, &Counters::choices_running);
  families.Gauge("vllm:num_requests_running", "Choices with an output of their engine.");
  families.Value(std::max<int64_t>(choices - waiting, 0), labels);
  families.Gauge("vllm:num_requests_waiting", "Choices without an output of their engine yet.");
  families.Value(waiting, labels);
  families.Counter("vllm:prompt_tokens_total", "Tokens of prompts, as usages say.");
  families.Value(SumCompletions(loops, &Counters::prompt_tokens), labels);
  families.Counter("vllm:generation_tokens_total", "Tokens of outputs, as usages say.");
  families.Value(SumCompletions(loops, &Counters::generation_tokens), labels);
  families.Counter("vllm:request_success_total", "Choices that ended, and how.");
  for (const std::string_view name : {"stop", "length", "abort", "error"}) {
    int64_t ended = 0;
    for (const Reason& reason : kReasons) {
      if (reason.name != name) continue;
      ended += Sum(loops, [&](const LoopMetrics& loop) {
        return loop.completions.choices_ended[static_cast<size_t>(reason.end)];
      });
    }
    Families::Labels of_reason = labels;
    of_reason.insert(of_reason.begin() + 1, {"finished_reason", std::string(name)});
    families.Value(ended, std::move(of_reason));
  }
  families.Distribution("vllm:time_to_first_token_seconds",
                        "From a request's arrival to its first token.",
                        SumHistograms(loops, &Counters::first_token), labels);
  families.Distribution("vllm:inter_token_latency_seconds", "From output to output of one choice.",
                        SumHistograms(loops, &Counters::between_tokens), labels);
  families.Distribution("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.",
                        SumHistograms(loops, &Counters::end_to_end), labels);
}

}  // namespace sluice::server
