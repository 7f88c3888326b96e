#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>

#include "server/metrics/families.h"
#include "server/metrics/vllm_names.h"
#include "sluice/generation_end.hpp"
#include "sluice/version.hpp"

namespace sluice::server {
namespace {

void AddEngines(std::span<const LoopMetrics> loops, Families& families) {
  std::map<std::string, bool> are_ready;
  for (const LoopMetrics& loop : loops) {
    for (const EngineState& engine : loop.engines) {
      bool& is_ready = are_ready.try_emplace(engine.endpoint, true).first->second;
      is_ready = is_ready && engine.health == EngineHealth::kReady;
    }
  }
  families.Gauge("sluice_engine_ready", "Whether every thread has this engine, and it is ready.");
  for (const auto& [endpoint, is_ready] : are_ready) {
    families.Value(int64_t{is_ready}, {{"engine", endpoint}});
  }
}

// Every loop has been given the counters of the engine itself, each at another time.
void AddGrammars(std::span<const LoopMetrics> loops, Families& families) {
  std::map<std::string, GrammarCounters> engines;
  for (const LoopMetrics& loop : loops) {
    for (const EngineState& engine : loop.engines) {
      if (IsVllmEndpoint(engine.endpoint)) continue;
      GrammarCounters& latest = engines[engine.endpoint];
      for (const auto count : {&GrammarCounters::compiling, &GrammarCounters::compiled,
                               &GrammarCounters::cached, &GrammarCounters::masks,
                               &GrammarCounters::mask_waits, &GrammarCounters::mask_wait_ns}) {
        latest.*count = std::max(latest.*count, engine.grammars.*count);
      }
    }
  }
  const auto value = [&](auto value_of) {
    for (const auto& [endpoint, counters] : engines) {
      families.Value(value_of(counters), {{"engine", endpoint}});
    }
  };
  const auto count = [&](int64_t GrammarCounters::* member) {
    value([member](const GrammarCounters& counters) { return counters.*member; });
  };
  families.Gauge("sluice_grammars_compiling", "Choices that wait for their grammar.");
  count(&GrammarCounters::compiling);
  families.Counter("sluice_grammars_compiled_total", "Choices that waited for their grammar.");
  count(&GrammarCounters::compiled);
  families.Counter("sluice_grammars_cached_total", "Choices with a grammar from the cache.");
  count(&GrammarCounters::cached);
  families.Counter("sluice_masks_total", "Draws with the mask of a grammar.");
  count(&GrammarCounters::masks);
  families.Counter("sluice_mask_waits_total",
                   "Draws of these that came before their mask was filled.");
  count(&GrammarCounters::mask_waits);
  families.Counter("sluice_mask_wait_seconds_total", "Time that steps spent on these masks.");
  value([](const GrammarCounters& counters) {
    return static_cast<double>(counters.mask_wait_ns) * 1e-9;
  });
}

void AddServer(std::span<const LoopMetrics> loops, int64_t max_requests, Families& families) {
  families.Gauge("sluice_build_info", "The version that runs; always 1.");
  families.Value(int64_t{1}, {{"version", std::string(kVersionString)}});
  bool is_up = !loops.empty();
  for (const LoopMetrics& loop : loops) is_up = is_up && loop.has_engine();
  families.Gauge("sluice_engine_up", "Whether every thread has an engine that is ready.",
                 int64_t{is_up});
  AddEngines(loops, families);
  families.Gauge("sluice_requests_max", "Choices that may be in flight.", max_requests);

  RouteCounts routes;
  for (const LoopMetrics& loop : loops) {
    for (const auto& [key, count] : loop.routes) routes[key] += count;
  }
  families.Counter("sluice_http_requests_total",
                   "Responses that began; 499: the client went away before.");
  for (const auto& [key, count] : routes) {
    families.Value(count, {{"code", std::to_string(key.second)},
                           {"route", std::string(RowOf(key.first).name)}});
  }
}

void AddCompletions(std::span<const LoopMetrics> loops, Families& families) {
  using Counters = CompletionCounters;
  families.Gauge("sluice_requests_running", "Completions in flight.",
                 SumCompletions(loops, &Counters::running));
  families.Gauge("sluice_requests_waiting", "Choices without an output of their engine yet.",
                 SumClients(loops, &ClientCounters::waiting));
  families.Gauge("sluice_choices_running", "Choices of these that the engines have.",
                 SumCompletions(loops, &Counters::choices_running));
  families.Counter("sluice_requests_total", "Completions that began.",
                   SumCompletions(loops, &Counters::requests));
  families.Counter("sluice_choices_total", "Choices that ended, and how.");
  for (int end = 1; end < kGenerationEnds; ++end) {
    families.Value(
        Sum(loops, [&](const LoopMetrics& loop) { return loop.completions.choices_ended[end]; }),
        {{"end", std::string(Name(static_cast<GenerationEnd>(end)))}});
  }
  families.Counter("sluice_prompt_tokens_total", "Tokens of prompts, as usages say.",
                   SumCompletions(loops, &Counters::prompt_tokens));
  families.Counter("sluice_generation_tokens_total", "Tokens of outputs, as usages say.",
                   SumCompletions(loops, &Counters::generation_tokens));
  families.Counter("sluice_tokens_discarded_total",
                   "Tokens that came and no client was given, and why.");
  families.Value(SumClients(loops, &ClientCounters::stop_tokens), {{"cause", "stop"}});
  families.Value(SumCompletions(loops, &Counters::tokens_left), {{"cause", "disconnect"}});
  families.Value(SumCompletions(loops, &Counters::tokens_failed), {{"cause", "error"}});
  families.Counter("sluice_unknown_fields_total", "Fields of bodies that were ignored.",
                   SumCompletions(loops, &Counters::unknown_fields));
  families.Counter("sluice_sse_frames_total", "Events of streams.",
                   SumCompletions(loops, &Counters::events));
  families.Counter("sluice_coalesced_deltas_total", "Deltas that waited for a slow reader.",
                   SumCompletions(loops, &Counters::coalesced));
  families.Distribution("sluice_time_to_first_token_seconds",
                        "From a request's arrival to its first token.",
                        SumHistograms(loops, &Counters::first_token));
  families.Distribution("sluice_inter_token_latency_seconds",
                        "From output to output of one choice.",
                        SumHistograms(loops, &Counters::between_tokens));
  families.Distribution("sluice_e2e_request_latency_seconds",
                        "From a request's arrival to its end.",
                        SumHistograms(loops, &Counters::end_to_end));
}

void AddHttp(std::span<const LoopMetrics> loops, const HttpCounters& http, Families& families) {
  const auto counter = [&](const char* name, const char* help, const std::atomic<int64_t>& value) {
    families.Counter(name, help, value.load(std::memory_order_relaxed));
  };
  families.Gauge("sluice_connections", "Connections now.",
                 http.connections.load(std::memory_order_relaxed));
  families.Gauge("sluice_http_inflight_bytes",
                 "Bytes of bodies that are read or wait to be encoded.", http.inflight_bytes.all());
  counter("sluice_connections_total", "Connections that were taken.", http.connections_seen);
  counter("sluice_connections_refused_total", "Connections beyond a limit.",
          http.refused_connections);
  counter("sluice_accept_pauses_total", "Times that no descriptor was left for a connection.",
          http.accept_pauses);
  counter("sluice_http_malformed_total", "Requests that were no HTTP, or beyond a limit.",
          http.malformed_requests);
  counter("sluice_http_timeouts_total", "Requests that came too slowly.", http.timeouts);
  counter("sluice_disconnects_total", "Clients that went away before their answer was complete.",
          http.disconnects);
  families.Counter("sluice_slow_client_aborts_total", "Clients that did not take their answer.",
                   http.slow_readers.load(std::memory_order_relaxed) +
                       SumCompletions(loops, &CompletionCounters::slow_readers));
  counter("sluice_read_bytes_total", "Bytes that were received.", http.bytes_in);
  counter("sluice_write_bytes_total", "Bytes that were sent.", http.bytes_out);
  counter("sluice_writes_total", "Calls that sent them.", http.writes);
}

void AddLink(std::span<const LoopMetrics> loops, Families& families) {
  using Counters = ClientCounters;
  families.Counter("sluice_link_tokens_total", "Tokens that came from engines.",
                   SumClients(loops, &Counters::tokens));
  families.Counter("sluice_link_aborts_total", "Aborts that were sent to engines.",
                   SumClients(loops, &Counters::aborts));
  families.Counter("sluice_stale_rows_total", "Rows that came after the end of their request.",
                   SumClients(loops, &Counters::stale_rows));
  families.Counter("sluice_stale_tokens_total", "Tokens in these rows, and after a stop.",
                   SumClients(loops, &Counters::stale_tokens));
  families.Distribution("sluice_abort_latency_steps",
                        "Steps of the engine from an abort to the end of its request.",
                        SumPowers(loops, &Counters::abort_steps), 1);
  families.Distribution("sluice_link_rtt_seconds",
                        "From a PING to the engine's step loop to its PONG.",
                        SumPowers(loops, &Counters::round_trips), 1e-6);
  families.Gauge("sluice_stop_hold_bytes", "Text that waits: it may be the beginning of a stop.",
                 SumClients(loops, &Counters::held_bytes));
  families.Counter("sluice_detok_invalid_bytes_total", "Bytes of tokens that were no UTF-8.",
                   SumClients(loops, &Counters::invalid_bytes));
  families.Counter("sluice_link_resets_total", "Links to engines that began again.",
                   SumClients(loops, &Counters::resets));
  families.Counter("sluice_link_faults_total", "What came from an engine that must not have.");
  constexpr std::pair<const char*, int64_t Counters::*> kFaults[] = {
      {"unknown_row", &Counters::unknown_rows},
      {"repeated_end", &Counters::repeated_ends},
      {"gap", &Counters::gaps},
      {"foreign_id", &Counters::foreign_ids},
      {"disagreement", &Counters::disagreements},
      {"repeated_frame", &Counters::repeated_frames},
      {"malformed_frame", &Counters::malformed_frames},
      {"foreign_frame", &Counters::foreign_frames},
  };
  for (const auto& [kind, counter] : kFaults) {
    families.Value(SumClients(loops, counter), {{"kind", kind}});
  }
}

int64_t ResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long all = 0;
  long long resident = 0;
  const int read = std::fscanf(file, "%lld %lld", &all, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

void AddProcess(Families& families) {
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  families.Counter("process_cpu_seconds_total", "CPU time of this process.");
  families.Value(static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9);
  families.Gauge("process_resident_memory_bytes", "Memory of this process.", ResidentBytes());
}

}  // namespace

std::string MetricsText(std::span<const LoopMetrics> loops, const HttpCounters& http,
                        int64_t max_requests, std::string_view model) {
  Families families;
  AddServer(loops, max_requests, families);
  AddCompletions(loops, families);
  AddHttp(loops, http, families);
  AddLink(loops, families);
  AddGrammars(loops, families);
  AddProcess(families);
  AddVllmNames(loops, model, families);
  return prometheus::TextSerializer().Serialize(families.Take());
}

}  // namespace sluice::server
