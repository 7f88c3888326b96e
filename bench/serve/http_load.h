// Load for a server of completions: requests that arrive when they arrive, whatever the answers do.
// One thread, one epoll; every request is streamed, and the time of every event is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::bench {

struct Endpoint {
  std::string host = "127.0.0.1";
  uint16_t port = 0;
};

struct LoadOptions {
  Endpoint server = {};
  std::string path = "/v1/completions";
  std::string api_key = {};
  int64_t requests = 256;
  double rate = 0;          // arrivals a second, as a Poisson process; 0: all at once
  int64_t concurrency = 0;  // at most this many at once, others wait; 0: no limit
  uint64_t seed = 1;        // of the arrivals
  double timeout_seconds = 600;
  // The JSON of request number i.
  std::function<std::string(int64_t i)> body = {};
  std::function<void(int64_t done)> on_progress = {};
  // Called with each event that has text: the request, how many tokens it has given by now (where
  // events have usages, else how many events), and the time.
  std::function<void(int64_t request, int64_t tokens, int64_t ns)> on_text = {};
};

// Times in milliseconds, in the words of vLLM.
struct LoadResult {
  int64_t completed = 0;
  int64_t failed = 0;
  std::map<std::string, int64_t> failures = {};  // what was wrong, and how often
  double seconds = 0;
  int64_t prompt_tokens = 0;  // as usages say; without them 0
  int64_t output_tokens = 0;  // as usages say; without them the events that have text
  int64_t events = 0;
  int64_t bytes = 0;
  std::vector<float> first_token = {};     // TTFT
  std::vector<float> time_per_token = {};  // TPOT: after the first one, a request's mean
  std::vector<float> between_events = {};  // ITL
  std::vector<float> end_to_end = {};
};

// Throws std::runtime_error when the server cannot be reached at all.
LoadResult RunLoad(const LoadOptions& options);

// The body of GET path; throws std::runtime_error when its status is not 200.
std::string GetBody(const Endpoint& server, const std::string& path);
int GetStatus(const Endpoint& server, const std::string& path);  // -1: there was no answer

int64_t MonotonicNs();
// As many descriptors as this process may have. What it may.
int64_t RaiseDescriptorLimit();
// A connection, in non-blocking mode; -1 with errno.
int Connect(const Endpoint& server);

}  // namespace sluice::bench
