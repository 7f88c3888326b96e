// The completions of one loop's Client: from a parsed request to the engine, and from outputs to
// the exchanges that wait for them. All on the loop's thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/admission/encode_pool.h"
#include "server/api/api_error.h"
#include "server/api/request/completion_request.h"
#include "server/completions/model_formats.h"
#include "server/http/exchange.h"
#include "sluice/client.hpp"
#include "sluice/model_text.hpp"

namespace sluice::server {

// Counts of completions, and how long they took, for /metrics. Each loop has its own: written on
// its thread, read by it.
struct CompletionCounters {
  // Bucket i counts what took at most kBounds[i] seconds; the last one the rest.
  struct Histogram {
    static constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1,      2.5,   5,    10,    30,   60,  120};
    int64_t buckets[std::size(kBounds) + 1] = {};
    int64_t count = 0;
    double sum = 0;
    void Add(double seconds);
  };

  int64_t requests = 0;         // exchanges that began
  int64_t running = 0;          // now
  int64_t choices_running = 0;  // now, in the engine
  int64_t choices_ended[kGenerationEnds] = {};
  int64_t prompt_tokens = 0;
  int64_t generation_tokens = 0;  // what usages say
  // Tokens of these that no client got: because it went away, or got an error instead.
  int64_t tokens_left = 0;
  int64_t tokens_failed = 0;
  int64_t unknown_fields = 0;
  int64_t events = 0;        // of streams
  int64_t coalesced = 0;     // deltas that waited for a reader
  int64_t slow_readers = 0;  // streams that were ended because too much waited
  Histogram first_token;     // from the request's arrival
  Histogram between_tokens;  // from output to output of one choice
  Histogram end_to_end;
};

struct CompletionSettings {
  std::vector<std::string> model_names;    // answers have the first one; requests may give each
  std::vector<std::string> adapters = {};  // of these names
  RequestLimits limits = {};
  ModelFormats formats = {};
  int32_t max_requests = 4096;               // of this loop
  size_t coalesce_bytes = size_t{64} << 10;  // as HttpLimits has it
  size_t unsent_bytes = size_t{1} << 20;     // of what waits beyond coalesce_bytes
  std::chrono::milliseconds keep_alive{15'000};
  size_t encode_inline_bytes = size_t{16} << 10;  // bodies up to this are read on the loop
};

class Completions {
 public:
  // `client` and its tokenizer outlive it; `pool` is there as long as Begin is called.
  Completions(Client& client, const ModelText& text, const CompletionSettings& settings,
              EncodePool& pool, boost::asio::any_io_executor loop);
  ~Completions();

  // Answers the exchange or takes it on; see Handler::Handle. Validation, the engine's refusal and
  // overload get a status of their own: a 200 goes out only when the engine has taken all choices;
  // of a stream also when it has kept silent for keep_alive (completions/live_exchange.h).
  // A larger max_tokens is reduced to the tokens that the context leaves.
  std::unique_ptr<Answer> Begin(Exchange& exchange, Api api);

  void Poll();  // when client.event_fd() is readable, and after Begin
  void Tick(
      std::chrono::steady_clock::time_point now);  // about every second: comments, nothing else
  // Ends all of them: an error event and [DONE], or a 503.
  void EndAll(std::string_view why);

  int64_t live() const;  // exchanges
  const CompletionCounters& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::server
