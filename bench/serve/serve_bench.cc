#include "bench/serve/serve_bench.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/serve/http_load.h"
#include "bench/serve/http_stream.h"
#include "bench/serve/send_ceiling.h"
#include "bench/serve/served_mock.h"
#include "bench/support/stopwatch.h"

namespace sluice::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kStepTime(1);
constexpr int64_t kGiveUpNs = 20'000'000'000;

// A prompt with a first id that identifies the request.
std::string Body(int64_t request, int64_t tokens, bool counts_tokens = false) {
  return R"({"prompt":[)" + std::to_string(request) + R"(,1,2,3],"max_tokens":)" +
         std::to_string(tokens) +
         R"(,"seed":1,"stream":true,"ignore_eos":true,"stream_options":{"include_usage":true)" +
         (counts_tokens ? R"(,"continuous_usage_stats":true}})" : "}}");
}

double Percentile(std::vector<float>& values, double share) {
  if (values.empty()) return -1;
  const size_t at =
      std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return static_cast<double>(values[at]);
}

void RequireComplete(const LoadResult& result) {
  if (result.failed == 0) return;
  throw std::runtime_error(std::to_string(result.failed) + " streams failed, the first one with " +
                           result.failures.begin()->first);
}

// Streams that this thread holds and reads as it likes.
class OpenStreams {
 public:
  OpenStreams(const Endpoint& server, int64_t streams) {
    for (int64_t i = 0; i < streams; ++i) {
      Stream& stream = streams_.emplace_back();
      stream.fd = Connect(server);
      if (stream.fd < 0) throw std::runtime_error(std::strerror(errno));
      pollfd file{stream.fd, POLLOUT, 0};
      if (poll(&file, 1, 10'000) != 1) throw std::runtime_error("no connection");
      const std::string body = Body(i, 1'000'000);
      const std::string request =
          "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body;
      if (send(stream.fd, request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request)) {
        throw std::runtime_error(std::strerror(errno));
      }
    }
    ReadUntil([](const Stream& stream) { return stream.events > 0; });
  }
  ~OpenStreams() { CloseAll(); }
  OpenStreams(const OpenStreams&) = delete;
  OpenStreams& operator=(const OpenStreams&) = delete;

  void CloseAll() {
    for (Stream& stream : streams_) {
      if (stream.fd >= 0) close(stream.fd);
      stream.fd = -1;
    }
  }
  // Until every stream has said [DONE]; how many of them had an error event.
  int64_t ReadToEnd() {
    ReadUntil([](const Stream& stream) { return stream.is_done; });
    return std::ranges::count_if(streams_, [](const Stream& stream) { return stream.has_error; });
  }

 private:
  struct Stream {
    int fd = -1;
    HttpStream http;
    int64_t events = 0;
    bool has_error = false;
    bool is_done = false;
    bool is_closed = false;
  };

  template <typename Holds>
  void ReadUntil(const Holds& holds) {
    const int64_t give_up = MonotonicNs() + kGiveUpNs;
    std::vector<pollfd> files;
    std::vector<Stream*> open;
    for (;;) {
      files.clear();
      open.clear();
      for (Stream& stream : streams_) {
        if (holds(stream)) continue;
        if (stream.is_closed) throw std::runtime_error("a stream was cut off");
        files.push_back({stream.fd, POLLIN, 0});
        open.push_back(&stream);
      }
      if (files.empty()) return;
      if (MonotonicNs() > give_up) throw std::runtime_error("a stream does not go on");
      poll(files.data(), files.size(), 100);
      for (size_t i = 0; i < files.size(); ++i) {
        if (files[i].revents != 0) Read(*open[i]);
      }
    }
  }

  static void Read(Stream& stream) {
    char buffer[1 << 14];
    const ssize_t size = recv(stream.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    stream.is_closed = size <= 0;
    if (size <= 0) return;
    stream.http.Read(std::string_view(buffer, static_cast<size_t>(size)),
                     [&](std::string_view data) {
                       ++stream.events;
                       stream.has_error |= data.starts_with(R"({"error")");
                       stream.is_done |= data == "[DONE]";
                     });
  }

  std::vector<Stream> streams_;
};

int Health(const Endpoint& server) { return GetStatus(server, "/health"); }

// The number that /metrics gives for this name.
double Metric(const Endpoint& server, const std::string& name) {
  const std::string text = GetBody(server, "/metrics");
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) throw std::runtime_error("/metrics has no " + name);
  return std::stod(text.substr(at + name.size() + 2));
}

// Milliseconds until `holds`, looked at every half of one.
template <typename Holds>
double MillisecondsUntil(int64_t start, const Holds& holds) {
  while (!holds()) {
    if (MonotonicNs() - start > kGiveUpNs) throw std::runtime_error("waited for too long");
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return static_cast<double>(MonotonicNs() - start) * 1e-6;
}

ServeFigure WorstOf(std::string task, int64_t streams, std::vector<double> rounds, double target) {
  ServeFigure figure{.task = std::move(task), .streams = streams, .unit = "ms"};
  figure.high = *std::ranges::max_element(rounds);
  figure.value = MedianOf(rounds);
  figure.target = target;
  figure.is_of_high = true;
  return figure;
}

class Bench {
 public:
  Bench(const ServeBenchOptions& options, const std::function<void(const ServeFigure&)>& on_figure,
        const std::function<void(const std::string&)>& on_progress)
      : options_(options), on_figure_(on_figure), on_progress_(on_progress) {}

  void Run() {
    const ScopedPin pin(kClientProcessor);
    on_progress_("tokens a CPU-second");
    // Six microseconds for a token: the server has time left, and so each token is a write.
    Tokens(nanoseconds(12'000) * options_.write_streams, true);
    Tokens(nanoseconds(0), false);
    on_progress_("many streams");
    Many(options_.many_engines);
    Many(1);
    on_progress_("idle connections");
    Idle();
    on_progress_("disconnects");
    Disconnects();
    on_progress_("engines that are killed");
    LostEngine();
  }

 private:
  void Tokens(nanoseconds step_time, bool is_one_a_write) {
    const ServedMock mock({.text = options_.text,
                           .requests = static_cast<int32_t>(options_.write_streams),
                           .step_time = step_time});
    const double writes_before = Metric(mock.endpoint(), "sluice_writes_total");
    const double before = mock.ServerCpuSeconds();
    const LoadResult load = RunLoad(
        {.server = mock.endpoint(), .requests = options_.write_streams, .body = [&](int64_t i) {
           return Body(i, options_.write_tokens);
         }});
    RequireComplete(load);
    const double cpu = mock.ServerCpuSeconds() - before;
    const double writes = Metric(mock.endpoint(), "sluice_writes_total") - writes_before;
    const auto tokens = static_cast<double>(load.output_tokens);
    const std::string how = is_one_a_write ? "one a write" : "as fast as they come";
    on_figure_({.task = "tokens, " + how,
                .streams = options_.write_streams,
                .unit = "tokens_per_cpu_second",
                .value = tokens / cpu});
    on_figure_({.task = "tokens, " + how,
                .streams = options_.write_streams,
                .unit = "tokens_per_second",
                .value = tokens / load.seconds});
    on_figure_({.task = "tokens, " + how,
                .streams = options_.write_streams,
                .unit = "tokens_per_write",
                .value = tokens / writes});
    if (!is_one_a_write) return;
    const int64_t bytes = load.bytes / std::max<int64_t>(load.events, 1);
    const SendCeiling ceiling =
        MeasureSends(options_.write_streams, bytes, step_time, options_.send_seconds);
    on_figure_({.task = "send() of " + std::to_string(bytes) + " bytes alone",
                .streams = options_.write_streams,
                .unit = "tokens_per_cpu_second",
                .value = 1e9 / ceiling.ns_a_send});
    on_figure_({.task = "share of that",
                .streams = options_.write_streams,
                .unit = "share",
                .value = tokens / cpu * ceiling.ns_a_send * 1e-9,
                .target = 0.6,
                .is_at_least = true});
  }

  // The tokens of an engine's step come together, and the last of them waits for the writes of all
  // others: of one engine, for those of all streams.
  void Many(int64_t engines) {
    const ServedMock mock({.text = options_.text,
                           .engines = static_cast<int32_t>(engines),
                           .requests = static_cast<int32_t>(options_.many_streams / engines),
                           .step_time = milliseconds(50)});
    const int64_t resident = mock.ServerResidentBytes();
    std::vector<float> added;
    int64_t most_resident = 0;
    const LoadResult load = RunLoad(
        {.server = mock.endpoint(),
         .requests = options_.many_streams,
         .rate = static_cast<double>(options_.many_streams) / 2,  // all of them within two seconds
         .body = [&](int64_t i) { return Body(i, options_.many_tokens, true); },
         .on_text =
             [&](int64_t request, int64_t tokens, int64_t ns) {
               const int64_t given = mock.TokenNs(request, tokens - 1);
               if (given > 0) added.push_back(static_cast<float>(ns - given) * 1e-6f);
               if (request == 0) {
                 most_resident = std::max(most_resident, mock.ServerResidentBytes());
               }
             }});
    RequireComplete(load);
    ServeFigure figure{.task = "from the step to the reader, 20 tokens a second, engines: " +
                               std::to_string(engines),
                       .streams = options_.many_streams,
                       .unit = "ms",
                       .value = Percentile(added, 0.5),
                       .high = Percentile(added, 0.99),
                       .target = 20,
                       .is_of_high = true};
    on_figure_(figure);
    if (engines > 1) return;
    on_figure_({.task = "memory of a stream",
                .streams = options_.many_streams,
                .unit = "bytes",
                .value = static_cast<double>(most_resident - resident) /
                         static_cast<double>(options_.many_streams),
                .target = 24 << 10});
  }

  void Idle() {
    const int64_t allowed = RaiseDescriptorLimit() - 100;
    const int64_t connections = std::min(options_.idle_connections, allowed);
    const ServedMock mock({.text = options_.text, .requests = 64, .step_time = kStepTime});
    const int64_t before = mock.ServerResidentBytes();
    std::vector<pollfd> files;
    for (int64_t i = 0; i < connections; ++i) {
      const int fd = Connect(mock.endpoint());
      if (fd < 0) throw std::runtime_error(std::strerror(errno));
      files.push_back({fd, POLLOUT, 0});
      if (i % 64 == 63) Health(mock.endpoint());  // no more than its queue takes
    }
    if (Health(mock.endpoint()) != 200) throw std::runtime_error("no answer beside idle ones");
    std::this_thread::sleep_for(milliseconds(200));
    const int64_t after = mock.ServerResidentBytes();
    for (pollfd& file : files) file.events = POLLIN;  // readable: it was closed
    const int closed = poll(files.data(), files.size(), 0);
    for (const pollfd& file : files) close(file.fd);
    if (closed != 0) throw std::runtime_error(std::to_string(closed) + " idle ones were closed");
    on_figure_({.task = "memory of an idle connection",
                .streams = connections,
                .unit = "bytes",
                .value = static_cast<double>(after - before) / static_cast<double>(connections)});
  }

  void Disconnects() {
    const ServedMock mock({.text = options_.text,
                           .requests = static_cast<int32_t>(options_.disconnects),
                           .step_time = kStepTime});
    std::vector<double> times;
    for (int64_t round = 0; round < options_.rounds; ++round) {
      OpenStreams streams(mock.endpoint(), options_.disconnects);
      const int64_t start = MonotonicNs();
      streams.CloseAll();
      times.push_back(MillisecondsUntil(start, [&] { return mock.running() == 0; }));
    }
    on_figure_(WorstOf("from disconnects until slots are free", options_.disconnects,
                       std::move(times), 52));  // two steps of 1 ms, and 50 ms
  }

  void LostEngine() {
    ServedMock mock({.text = options_.text,
                     .requests = static_cast<int32_t>(options_.lost_streams),
                     .step_time = kStepTime});
    std::vector<double> failed_after, unhealthy, back;
    for (int64_t round = 0; round < options_.rounds; ++round) {
      OpenStreams streams(mock.endpoint(), options_.lost_streams);
      int64_t start = MonotonicNs();
      mock.KillEngines();
      unhealthy.push_back(MillisecondsUntil(start, [&] { return Health(mock.endpoint()) == 503; }));
      if (streams.ReadToEnd() != options_.lost_streams) {
        throw std::runtime_error("a stream ended without an error");
      }
      failed_after.push_back(static_cast<double>(MonotonicNs() - start) * 1e-6);
      start = MonotonicNs();
      mock.StartEngines();
      back.push_back(MillisecondsUntil(start, [&] { return Health(mock.endpoint()) == 200; }));
    }
    on_figure_(WorstOf("from kill -9 of the engine until /health is 503", options_.lost_streams,
                       std::move(unhealthy), 50));
    on_figure_(WorstOf("... until every stream has its error and [DONE]", options_.lost_streams,
                       std::move(failed_after), 1000));
    on_figure_(WorstOf("... from another engine's start until /health is 200",
                       options_.lost_streams, std::move(back), -1));
  }

  const ServeBenchOptions& options_;
  const std::function<void(const ServeFigure&)>& on_figure_;
  const std::function<void(const std::string&)>& on_progress_;
};

}  // namespace

void RunServeBench(const ServeBenchOptions& options,
                   const std::function<void(const ServeFigure&)>& on_figure,
                   const std::function<void(const std::string&)>& on_progress) {
  RaiseDescriptorLimit();
  Bench(options, on_figure, on_progress).Run();
}

}  // namespace sluice::bench
