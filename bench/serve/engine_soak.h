// Many requests of every kind through an engine server and its frontends, in one process: texts are
// compared, and at the end nothing may be in use that was not at the beginning.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sluice/client.hpp"
#include "sluice/engine_server.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::bench {

struct SoakOptions {
  int64_t requests = 1'000'000;
  int frontends = 2;            // each with a thread; every second one looks for stops itself
  int64_t concurrency = 512;    // requests of each frontend
  int64_t reconnect = 100'000;  // a frontend leaves with live requests after this many
  int32_t steps_in_flight = 1;
  int64_t burst = 1;
  uint64_t seed = 1;
};

struct SoakResult {
  int64_t requests = 0;
  // By end, as the frontends saw them; the requests of a frontend that left saw none.
  int64_t ends[kGenerationEnds] = {};
  int64_t left_behind = 0;
  int64_t tokens = 0;  // that came to a frontend's texts
  int64_t reconnects = 0;

  // Each of these must be 0.
  int64_t wrong_texts = 0;      // not what the script says, or not its beginning for an abort
  int64_t wrong_ends = 0;       // another end than the text has
  int64_t unexpected_rows = 0;  // that clients counted as unknown, repeated, with gaps and so on
  int64_t running = 0;          // in the engine, at the end
  int64_t waiting = 0;
  int64_t lost_pages = 0;
  int64_t unbalanced_tokens = 0;  // drawn, but neither given nor discarded

  double seconds = 0.0;
  double rss_begin_mib = 0.0;  // when a quarter of the requests were through
  double rss_end_mib = 0.0;
  double rss_slope_bytes = 0.0;  // a request, by least squares over the last three quarters
  EngineCounters engine = {};
  LinkCounters link = {};

  bool IsClean() const {
    return wrong_texts + wrong_ends + unexpected_rows + running + waiting + lost_pages +
               unbalanced_tokens ==
           0;
  }
};

// script: the tokens that the engine gives, over and over.
SoakResult RunSoak(const SoakOptions& options, const Tokenizer& tokenizer,
                   const std::vector<int32_t>& script,
                   const std::function<void(int64_t done, int64_t all)>& on_progress);

}  // namespace sluice::bench
