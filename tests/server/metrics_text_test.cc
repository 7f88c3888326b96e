#include <gtest/gtest.h>

#include "server/metrics.h"
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
  loops[0].routes[{Route::kHealth, 200}] = 6;
  loops[1].routes[{Route::kHealth, 200}] = 1;
  loops[1].routes[{Route::kNone, 404}] = 2;
  loops[0].has_engine = true;
  HttpCounters http;
  http.bytes_out = int64_t{1} << 50;

  Exposition read(MetricsText(loops, http, 77));
  EXPECT_EQ(read["sluice_generation_tokens_total"], 123);
  EXPECT_EQ(read["sluice_choices_total{end=\"length\"}"], 4);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_count"], 2);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"0.0025\"}"], 0);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"0.005\"}"], 1);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"120\"}"], 1);
  EXPECT_EQ(read["sluice_time_to_first_token_seconds_bucket{le=\"+Inf\"}"], 2);
  EXPECT_EQ(read["sluice_stale_tokens_total"], 5);
  EXPECT_EQ(read["sluice_http_requests_total{code=\"200\",route=\"/health\"}"], 7);
  EXPECT_EQ(read["sluice_http_requests_total{code=\"404\",route=\"other\"}"], 2);
  EXPECT_EQ(read["sluice_write_bytes_total"], static_cast<double>(int64_t{1} << 50));
  EXPECT_EQ(read["sluice_requests_max"], 77);
  EXPECT_EQ(read["sluice_engine_up"], 0);  // one of the loops has none
  EXPECT_GT(read["process_cpu_seconds_total"], 0);
  EXPECT_GT(read["process_resident_memory_bytes"], 1e6);

  loops[1].has_engine = true;
  EXPECT_EQ(Exposition(MetricsText(loops, http, 77))["sluice_engine_up"], 1);
}

}  // namespace
}  // namespace sluice::test
