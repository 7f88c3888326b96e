#include <gtest/gtest.h>

#include "server/metrics/metrics.h"
#include "tests/server/exposition.h"

namespace sluice::test {
namespace {

using server::HttpCounters;
using server::LoopMetrics;
using server::MetricsText;
using server::Route;

TEST(Metrics, AreTheSumOfAllLoops) {
  std::vector<LoopMetrics> loops(2);
  loops[0].completions.generation_tokens = 100;
  loops[1].completions.generation_tokens = 23;
  loops[0].completions.choices_ended[static_cast<size_t>(GenerationEnd::kLength)] = 4;
  loops[1].completions.first_token.Add(0.003);
  loops[1].completions.first_token.Add(1000);
  loops[0].client.stale_tokens = 5;
  loops[0].client.waiting = 2;
  loops[1].client.waiting = 1;
  loops[0].completions.tokens_left = 10;
  loops[1].completions.tokens_failed = 20;
  loops[1].completions.slow_readers = 4;
  for (auto& loop : loops) {
    loop.client.stop_tokens = 3;
    loop.client.held_bytes = 7;
    loop.client.invalid_bytes = 9;
    loop.client.abort_steps.Add(0);
    loop.client.abort_steps.Add(2);
    loop.client.abort_steps.Add(1000);
    loop.client.round_trips.Add(150);  // microseconds
  }
  loops[0].routes[{Route::kHealth, 200}] = 6;
  loops[1].routes[{Route::kHealth, 200}] = 1;
  loops[1].routes[{Route::kNone, 404}] = 2;
  loops[0].engines = {{.endpoint = "tcp://a:1", .health = EngineHealth::kReady},
                      {.endpoint = "vllm+tcp://b:2", .health = EngineHealth::kReady}};
  HttpCounters http;
  http.bytes_out = int64_t{1} << 50;
  http.slow_readers = 1;

  Exposition read(MetricsText(loops, http, 77, "m"));
  EXPECT_EQ(read["sluice_generation_tokens_total"], 123);
  EXPECT_EQ(read["sluice_choices_total{end=\"length\"}"], 4);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_count"], 2);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"0.0025\"}"], 0);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"0.005\"}"], 1);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"120\"}"], 1);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"+Inf\"}"], 2);
  EXPECT_EQ(read["sluice_stale_tokens_total"], 5);
  EXPECT_EQ(read["sluice_requests_waiting"], 3);
  EXPECT_EQ(read["sluice_tokens_discarded_total{cause=\"stop\"}"], 6);
  EXPECT_EQ(read["sluice_tokens_discarded_total{cause=\"disconnect\"}"], 10);
  EXPECT_EQ(read["sluice_tokens_discarded_total{cause=\"error\"}"], 20);
  EXPECT_EQ(read["sluice_slow_client_aborts_total"], 5);
  EXPECT_EQ(read["sluice_stop_hold_bytes"], 14);
  EXPECT_EQ(read["sluice_detok_invalid_bytes_total"], 18);
  EXPECT_EQ(read["sluice_abort_latency_steps_count"], 6);
  EXPECT_EQ(read["sluice_abort_latency_steps_sum"], 2004);
  EXPECT_EQ(read["sluice_abort_latency_steps_bucket{le=\"1\"}"], 2);
  EXPECT_EQ(read["sluice_abort_latency_steps_bucket{le=\"2\"}"], 4);
  EXPECT_EQ(read["sluice_abort_latency_steps_bucket{le=\"256\"}"], 4);
  EXPECT_EQ(read["sluice_abort_latency_steps_bucket{le=\"+Inf\"}"], 6);
  EXPECT_EQ(read["sluice_link_rtt_seconds_count"], 2);
  EXPECT_NEAR(read["sluice_link_rtt_seconds_sum"], 300e-6, 1e-9);
  EXPECT_EQ(read["sluice_http_requests_total{code=\"200\",route=\"/health\"}"], 7);
  EXPECT_EQ(read["sluice_http_requests_total{code=\"404\",route=\"other\"}"], 2);
  EXPECT_EQ(read["sluice_write_bytes_total"], static_cast<double>(int64_t{1} << 50));
  EXPECT_EQ(read["sluice_requests_max"], 77);
  EXPECT_EQ(read["sluice_engine_up"], 0);  // one of the loops has none
  EXPECT_GT(read["process_cpu_seconds_total"], 0);
  EXPECT_GT(read["process_resident_memory_bytes"], 1e6);

  loops[0].engines[0].grammars = {.compiling = 2, .compiled = 3, .cached = 40, .masks = 500};
  loops[1].engines = {
      {.endpoint = "tcp://a:1",
       .health = EngineHealth::kReady,
       .grammars =
           {.compiled = 3, .cached = 41, .masks = 600, .mask_waits = 7, .mask_wait_ns = 8'000'000}},
      {.endpoint = "vllm+tcp://b:2", .health = EngineHealth::kConnecting}};
  Exposition more(MetricsText(loops, http, 77, "m"));
  EXPECT_EQ(more["sluice_engine_up"], 1);
  EXPECT_EQ(more["sluice_engine_ready{engine=\"tcp://a:1\"}"], 1);
  EXPECT_EQ(more["sluice_engine_ready{engine=\"vllm+tcp://b:2\"}"], 0);  // one loop waits for it
  // One engine's counters, as two loops have them.
  EXPECT_EQ(more["sluice_grammars_compiling{engine=\"tcp://a:1\"}"], 2);
  EXPECT_EQ(more["sluice_grammars_compiled_total{engine=\"tcp://a:1\"}"], 3);
  EXPECT_EQ(more["sluice_grammars_cached_total{engine=\"tcp://a:1\"}"], 41);
  EXPECT_EQ(more["sluice_masks_total{engine=\"tcp://a:1\"}"], 600);
  EXPECT_EQ(more["sluice_mask_waits_total{engine=\"tcp://a:1\"}"], 7);
  EXPECT_EQ(more["sluice_mask_wait_seconds_total{engine=\"tcp://a:1\"}"], 0.008);
}

TEST(Metrics, HaveVllmsNamesToo) {
  std::vector<LoopMetrics> loops(2);
  const auto set = [&](size_t loop, GenerationEnd end, int64_t count) {
    loops[loop].completions.choices_ended[static_cast<size_t>(end)] = count;
  };
  set(0, GenerationEnd::kStopString, 1);
  set(1, GenerationEnd::kStopToken, 2);
  set(0, GenerationEnd::kLength, 4);
  set(1, GenerationEnd::kContext, 8);
  set(0, GenerationEnd::kCancelled, 16);
  set(0, GenerationEnd::kStatus, 32);
  set(1, GenerationEnd::kRejected, 64);
  set(1, GenerationEnd::kEngineLost, 128);
  loops[0].completions.choices_running = 5;
  loops[1].client.waiting = 3;
  loops[0].completions.prompt_tokens = 70;
  loops[1].completions.generation_tokens = 9;
  loops[0].completions.first_token.Add(0.003);
  loops[1].completions.between_tokens.Add(0.003);
  loops[1].completions.end_to_end.Add(0.5);
  const Exposition read(MetricsText(loops, {}, 77, "a \"model\""));
  const auto at = [&](const std::string& name, const std::string& more = "") {
    return read["vllm:" + name + "{engine=\"0\"," + more + "model_name=\"a \\\"model\\\"\"}"];
  };
  EXPECT_EQ(at("num_requests_running"), 2);
  EXPECT_EQ(at("num_requests_waiting"), 3);
  EXPECT_EQ(at("prompt_tokens_total"), 70);
  EXPECT_EQ(at("generation_tokens_total"), 9);
  EXPECT_EQ(at("request_success_total", "finished_reason=\"stop\","), 3);
  EXPECT_EQ(at("request_success_total", "finished_reason=\"length\","), 12);
  EXPECT_EQ(at("request_success_total", "finished_reason=\"abort\","), 16);
  EXPECT_EQ(at("request_success_total", "finished_reason=\"error\","), 224);
  for (const char* name : {"time_to_first_token", "inter_token_latency", "e2e_request_latency"}) {
    EXPECT_EQ(at(std::string(name) + "_seconds_count"), 1) << name;
  }
  EXPECT_NEAR(at("e2e_request_latency_seconds_sum"), 0.5, 1e-9);

  loops[1].client.waiting = 9;  // counted at another moment than the choices
  EXPECT_EQ((Exposition(MetricsText(
                loops, {}, 77, "m"))["vllm:num_requests_running{engine=\"0\",model_name=\"m\"}"]),
            0);
}

}  // namespace
}  // namespace sluice::test
