#include "bench/serve/engine_bench.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "bench/serve/engine_harness.h"
#include "bench/support/stopwatch.h"

namespace sluice::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPollTime(10);
constexpr nanoseconds kNoTime(0);
constexpr milliseconds kStepTime(1);  // of a small model

// Sorts. Of fewer than 100 there is no hundredth.
double HighOf(std::vector<double>& values) {
  if (values.size() < 100) return -1;
  std::sort(values.begin(), values.end());
  return values[values.size() - 1 - values.size() / 100];
}

EngineFigure Figure(std::string task, int64_t batch, int32_t steps_in_flight, std::string unit,
                    std::vector<double> values) {
  EngineFigure figure{.task = std::move(task),
                      .batch = batch,
                      .steps_in_flight = steps_in_flight,
                      .unit = std::move(unit),
                      .value = MedianOf(values)};
  figure.high = HighOf(values);
  return figure;
}

std::vector<int32_t> PromptOf(int64_t request) {
  std::vector<int32_t> prompt(16);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(request + static_cast<int64_t>(i));
  }
  return prompt;
}

TextOptions TextWith(const char* stop) {
  TextOptions text;
  if (stop != nullptr) text.stops = {stop};
  return text;
}

// Everything that an Engine does in a step but wait for its runner. `stop` never comes.
EngineFigure StepOverhead(const EngineBenchOptions& options, int64_t batch, int32_t steps_in_flight,
                          const char* stop) {
  ScriptRunner runner(Script(options.tokenizer, batch, kNoTime));
  Engine engine(runner, options.tokenizer, {.steps_in_flight = steps_in_flight});
  const ClientId client = engine.AddClient();
  for (int64_t i = 0; i < batch; ++i) {
    engine.Submit(client, {.address = {static_cast<int32_t>(i), 0},
                           .params = {.seed = 1},
                           .prompt = PromptOf(i),
                           .max_tokens = INT32_MAX,
                           .text = TextWith(stop)});
  }
  constexpr int64_t kFirstSteps = 100;
  std::vector<double> times;
  for (int64_t step = 0; step < kFirstSteps + options.steps; ++step) {
    const int64_t before = engine.counters().own_ns;
    engine.Step();
    if (step < kFirstSteps) continue;
    times.push_back(static_cast<double>(engine.counters().own_ns - before));
  }
  EngineFigure figure = Figure(stop == nullptr ? "step" : "step, with a stop", batch,
                               steps_in_flight, "ns", std::move(times));
  figure.target = 50e3;
  return figure;
}

void SubmitStreams(Client& client, int64_t streams, int64_t tokens) {
  for (int64_t i = 0; i < streams; ++i) {
    client.Submit({.params = {.seed = 1}, .prompt = PromptOf(i), .max_tokens = tokens});
  }
}

// Streams from one end to the other: what the link's thread worked, and how many come in a second.
void Streams(const EngineBenchOptions& options, nanoseconds step_time, int64_t tokens,
             const std::function<void(const EngineFigure&)>& on_figure) {
  const ServedEngine served(options.tokenizer, options.streams, 1, step_time);
  const auto client = served.Connect();
  const LinkCounters before = served.server().link_counters();
  const auto start = steady_clock::now();
  SubmitStreams(*client, options.streams, tokens);
  while (client->live_requests() > 0) client->Poll(kPollTime);
  const std::chrono::duration<double> wall = steady_clock::now() - start;
  served.WhenIdle(step_time);
  const LinkCounters after = served.server().link_counters();
  const double out = static_cast<double>(after.tokens_out - before.tokens_out);
  const std::string rate = step_time == kNoTime ? ", no step time" : ", steps of 1 ms";
  EngineFigure link = Figure("link thread, a token" + rate, options.streams, 1, "ns",
                             {static_cast<double>(after.own_ns - before.own_ns) / out});
  link.target = 50;
  on_figure(link);
  on_figure(Figure("end to end over ipc" + rate, options.streams, 1, "tokens_per_second",
                   {out / wall.count()}));
}

// Tokens that were computed after the one that ended a stop: one request after the other.
EngineFigure AfterStop(const EngineBenchOptions& options, StopAt stop_at, int32_t steps_in_flight) {
  const ServedEngine served(options.tokenizer, 1, steps_in_flight, kStepTime);
  const auto client = served.Connect(stop_at);
  std::vector<double> wasted;
  EngineCounters before = served.WhenIdle(kStepTime);
  for (int64_t i = 0; i < options.stops; ++i) {
    client->Submit({.params = {.seed = 1},
                    .prompt = PromptOf(i),
                    .max_tokens = 1000,
                    .text = TextWith(kScriptStop),
                    .mode = OutputMode::kFinal});
    int64_t seen = 0;
    while (client->live_requests() > 0) {
      for (const ClientOutput& output : client->Poll(kPollTime)) seen = output.output_tokens;
    }
    const EngineCounters after = served.WhenIdle(kStepTime);
    wasted.push_back(static_cast<double>(after.tokens - before.tokens - seen));
    before = after;
  }
  const bool is_engine = stop_at == StopAt::kEngine;
  EngineFigure figure = Figure(std::string("behind a stop, seen by the ").append(Name(stop_at)), 1,
                               steps_in_flight, "tokens", std::move(wasted));
  figure.target = is_engine ? steps_in_flight : 2;
  figure.is_of_high = figure.high >= 0;
  return figure;
}

// Steps from aborts of all requests, before one step, until every slot is free.
EngineFigure Aborts(const EngineBenchOptions& options, int32_t steps_in_flight) {
  ScriptRunner runner(Script(options.tokenizer, options.aborts, kNoTime));
  Engine engine(runner, options.tokenizer, {.steps_in_flight = steps_in_flight});
  const ClientId client = engine.AddClient();
  std::vector<double> steps;
  for (int64_t round = 0; round < options.abort_rounds; ++round) {
    const auto address = [round](int64_t i) {
      return RequestAddress{static_cast<int32_t>(i), static_cast<uint32_t>(round)};
    };
    for (int64_t i = 0; i < options.aborts; ++i) {
      engine.Submit(client, {.address = address(i),
                             .params = {.seed = 1},
                             .prompt = PromptOf(i),
                             .max_tokens = INT32_MAX});
    }
    for (int step = 0; step < 20; ++step) engine.Step();
    for (int64_t i = 0; i < options.aborts; ++i) engine.Abort(client, address(i));
    const int64_t before = engine.counters().steps;
    int64_t calls = 0;
    for (; engine.HasWork(); ++calls) engine.Step();
    steps.push_back(static_cast<double>(std::max(calls, engine.counters().steps - before)));
  }
  EngineFigure figure =
      Figure("until aborted slots are free", options.aborts, steps_in_flight, "steps", steps);
  figure.target = 2;
  return figure;
}

// Aborts over ipc, in time: from the first abort that a frontend sends.
EngineFigure AbortsOverIpc(const EngineBenchOptions& options) {
  const ServedEngine served(options.tokenizer, options.aborts, 1, kStepTime);
  const auto client = served.Connect();
  std::vector<double> times;
  for (int64_t round = 0; round < options.abort_rounds; ++round) {
    std::vector<RequestId> ids;
    for (int64_t i = 0; i < options.aborts; ++i) {
      ids.push_back(client->Submit(
          {.params = {.seed = 1}, .prompt = PromptOf(i), .max_tokens = INT32_MAX / 2}));
    }
    while (served.server().engine_counters().running < options.aborts) client->Poll(kPollTime);
    times.push_back(TimeOf([&] {
      for (const RequestId id : ids) client->Abort(id);
      while (client->live_requests() > 0) client->Poll(kPollTime);
      while (served.server().engine_counters().running > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }));
  }
  EngineFigure figure =
      Figure("until aborted slots are free, over ipc", options.aborts, 1, "ns", std::move(times));
  figure.target = 52e6;  // two steps of 1 ms, and 50 ms
  return figure;
}

// How much slower steps come while another frontend is stopped, in turns with when it is not.
EngineFigure StoppedFrontend(const EngineBenchOptions& options) {
  constexpr int64_t kStreams = 64;
  constexpr int kRounds = 3;
  const ServedEngine served(options.tokenizer, 2 * kStreams, 1, kStepTime);
  const auto client = served.Connect();
  SubmitStreams(*client, kStreams, INT32_MAX / 2);
  const Process frontend(options.frontend(served.server().endpoint()));
  while (served.server().engine_counters().running < 2 * kStreams) client->Poll(kPollTime);
  const auto steps_a_second = [&] {
    const int64_t before = served.server().engine_counters().steps;
    const auto start = steady_clock::now();
    std::chrono::duration<double> time{0};
    while (time.count() < options.stopped_seconds / (2 * kRounds)) {
      client->Poll(kPollTime);
      time = steady_clock::now() - start;
    }
    return static_cast<double>(served.server().engine_counters().steps - before) / time.count();
  };
  std::vector<double> shares;
  for (int round = 0; round < kRounds; ++round) {
    const double running = steps_a_second();
    frontend.Send(SIGSTOP);
    const double stopped = steps_a_second();
    frontend.Send(SIGCONT);
    shares.push_back(1 - stopped / running);
  }
  EngineFigure figure =
      Figure("slower beside a stopped frontend", 2 * kStreams, 1, "share", std::move(shares));
  figure.target = 0.01;
  return figure;
}

}  // namespace

void RunEngineBench(const EngineBenchOptions& options,
                    const std::function<void(const EngineFigure&)>& on_figure,
                    const std::function<void(const std::string&)>& on_progress) {
  for (const char* stop : {static_cast<const char*>(nullptr), "no such stop"}) {
    for (const int64_t batch : options.batches) {
      on_progress("steps of " + std::to_string(batch));
      on_figure(StepOverhead(options, batch, 0, stop));
    }
  }
  on_progress("streams");
  Streams(options, kStepTime, options.stream_tokens, on_figure);
  Streams(options, kNoTime, options.stream_tokens, on_figure);
  for (const StopAt stop_at : {StopAt::kEngine, StopAt::kFrontend}) {
    for (const int32_t steps_in_flight : {0, 1}) {
      on_progress("stops");
      on_figure(AfterStop(options, stop_at, steps_in_flight));
    }
  }
  for (const int32_t steps_in_flight : {0, 1}) {
    on_progress("aborts");
    on_figure(Aborts(options, steps_in_flight));
  }
  on_figure(AbortsOverIpc(options));
  on_progress("a stopped frontend");
  on_figure(StoppedFrontend(options));
}

}  // namespace sluice::bench
