#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

#include "bench/serve/http_load.h"
#include "bench/serve/serve_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/generate/model_source.h"
#include "cli/table.h"
#include "support/check.h"

namespace sluice::cli {
namespace {

using bench::LoadResult;
using bench::ServeFigure;

// "http://HOST:PORT" with an optional slash at its end.
bench::Endpoint EndpointOf(std::string_view url) {
  const auto refuse = [&] { ThrowInvalid("url", std::string(url), "http://HOST:PORT"); };
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) refuse();
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) refuse();
  bench::Endpoint endpoint{.host = std::string(rest.substr(0, colon))};
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']')) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  const std::string_view digits = rest.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (error != std::errc() || end != digits.data() + digits.size()) refuse();
  return endpoint;
}

// Ids, so that a prompt has as many tokens as requested: any model has the first thousand.
std::string PromptJson(int64_t tokens, std::mt19937_64& random) {
  std::string json = "[";
  for (int64_t i = 0; i < tokens; ++i) {
    if (i > 0) json += ',';
    json += Number(300 + random() % 700);
  }
  return json + "]";
}

std::string BodyOf(const BenchServeOptions& options, std::mt19937_64& random) {
  std::ostringstream out;
  JsonWriter json(out);
  json.Object([&] {
    if (!options.model.empty()) json.Key("model").Value(options.model);
    if (options.text.empty()) {
      json.Key("prompt").Raw(PromptJson(options.prompt_tokens, random));
    } else {
      json.Key("prompt").Value(options.text);
    }
    json.Key("max_tokens").Value(options.output_tokens);
    json.Key("stream").Value(true);
    json.Key("ignore_eos").Value(options.ignores_end);
    if (options.logprobs > 0) json.Key("logprobs").Value(options.logprobs);
    json.Key("stream_options").Object([&] { json.Key("include_usage").Value(true); });
  });
  return out.str();
}

// CPU time of a process, as the kernel counts it; nothing without one.
std::optional<double> CpuSeconds(int64_t pid) {
  std::ifstream file("/proc/" + Number(pid) + "/stat");
  std::string line;
  if (pid == 0 || !std::getline(file, line)) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

struct Times {
  const char* name;
  const char* key;
  const std::vector<float> LoadResult::* values;
};
constexpr Times kTimes[] = {
    {"time to first token (TTFT)", "ttft_ms", &LoadResult::first_token},
    {"time per output token (TPOT)", "tpot_ms", &LoadResult::time_per_token},
    {"inter-token latency (ITL)", "itl_ms", &LoadResult::between_events},
    {"end-to-end latency (E2EL)", "e2el_ms", &LoadResult::end_to_end},
};

struct Spread {
  double mean = 0, median = 0, p99 = 0;
};
Spread SpreadOf(std::vector<float> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  const auto at = [&](double share) {
    const auto i = static_cast<size_t>(share * static_cast<double>(values.size()));
    return static_cast<double>(values[std::min(i, values.size() - 1)]);
  };
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.99)};
}

void RunLoadOn(const BenchServeOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::RaiseDescriptorLimit();
  std::mt19937_64 random(options.seed);
  JsonFile file(options.json_path);
  const Progress progress;
  const std::optional<double> cpu_before = CpuSeconds(options.pid);
  const LoadResult load = bench::RunLoad(
      {.server = EndpointOf(options.url),
       .api_key = options.api_key,
       .requests = options.requests,
       .rate = options.rate,
       .concurrency = options.concurrency,
       .seed = options.seed,
       .body = [&](int64_t) { return BodyOf(options, random); },
       .on_progress =
           [&](int64_t done) {
             if (done % std::max<int64_t>(options.requests / 100, 1) == 0) {
               progress.Show(Number(done) + " of " + Number(options.requests) + " requests");
             }
           }});
  progress.Clear();
  const std::optional<double> cpu_after = CpuSeconds(options.pid);

  const auto a_second = [&](int64_t count) { return static_cast<double>(count) / load.seconds; };
  std::vector<std::pair<std::string, double>> totals = {
      {"successful requests", static_cast<double>(load.completed)},
      {"failed requests", static_cast<double>(load.failed)},
      {"benchmark duration (s)", load.seconds},
      {"total input tokens", static_cast<double>(load.prompt_tokens)},
      {"total generated tokens", static_cast<double>(load.output_tokens)},
      {"request throughput (req/s)", a_second(load.completed)},
      {"output token throughput (tok/s)", a_second(load.output_tokens)},
      {"total token throughput (tok/s)", a_second(load.output_tokens + load.prompt_tokens)},
  };
  if (cpu_before && cpu_after) {
    totals.emplace_back("output tokens per CPU-second of the server",
                        static_cast<double>(load.output_tokens) / (*cpu_after - *cpu_before));
  }
  Table table("lr");
  for (const auto& [name, value] : totals) table.Add({name, Short(value)});
  table.Print(out, terminal);
  Table times("lrrr");
  times.Add({"ms", "mean", "median", "p99"}, Style::kHeading);
  for (const Times& t : kTimes) {
    const Spread spread = SpreadOf(load.*t.values);
    times.Add({t.name, Short(spread.mean), Short(spread.median), Short(spread.p99)});
  }
  times.Print(out, terminal);
  file.Write([&](JsonWriter& json) {
    file.NewLine();
    json.Object([&] {
      json.Key("bench").Value("serve");
      json.Key("task").Value("load");
      json.Key("requests").Value(options.requests);
      json.Key("rate").Value(options.rate);
      json.Key("concurrency").Value(options.concurrency);
      if (options.logprobs > 0) json.Key("logprobs").Value(options.logprobs);
      for (const auto& [name, value] : totals) json.Key(name).Value(value);
      for (const Times& t : kTimes) {
        const Spread spread = SpreadOf(load.*t.values);
        json.Key(t.key).Object([&] {
          json.Key("mean").Value(spread.mean);
          json.Key("median").Value(spread.median);
          json.Key("p99").Value(spread.p99);
        });
      }
    });
  });
  if (load.failed == 0) return;
  std::string why = Number(load.failed) + " of " + Number(options.requests) + " requests failed:";
  for (const auto& [what, count] : load.failures) why += "\n  " + Number(count) + " x " + what;
  throw std::runtime_error(why);
}

void RunOwn(const BenchServeOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::ServeBenchOptions run{.text = OpenModelText({})};
  if (options.is_quick) {
    run.write_streams = 16;
    run.write_tokens = 50;
    run.many_streams = 32;
    run.many_tokens = 4;
    run.idle_connections = 100;
    run.disconnects = 20;
    run.rounds = 1;
    run.lost_streams = 8;
    run.send_seconds = 0.05;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   "A server with a scripted engine, over loopback. The server has a processor "
                   "of its own; its CPU time is\nthat of its process. high: p99, or the worst of "
                   "all rounds.",
                   options.is_quick);
  const Progress progress;
  std::vector<ServeFigure> figures;
  bench::RunServeBench(
      run, [&](const ServeFigure& figure) { figures.push_back(figure); },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  Table table("lrrrrll");
  table.Add({"task", "streams", "value", "high", "target", "unit", ""}, Style::kHeading);
  for (const ServeFigure& f : figures) {
    table.Add({f.task, Number(f.streams), Short(f.value), f.high >= 0 ? Short(f.high) : "",
               f.target >= 0 ? Short(f.target) : "", f.unit, f.IsMet() ? "" : "missed"});
  }
  if (!options.shows_targets) table.Hide({4, 6});
  table.Print(out, terminal);
  file.Write([&](JsonWriter& json) {
    for (const ServeFigure& f : figures) {
      file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("serve");
        json.Key("task").Value(f.task);
        json.Key("streams").Value(f.streams);
        json.Key(f.unit).Value(f.value);
        if (f.high >= 0) json.Key("high").Value(f.high);
        if (f.target < 0) return;
        json.Key("target").Value(f.target);
        json.Key("is_met").Value(f.IsMet());
      });
    }
  });
}

}  // namespace

void RunBenchServe(const BenchServeOptions& options, std::ostream& out, const Terminal& terminal) {
  if (options.url.empty()) {
    RunOwn(options, out, terminal);
  } else {
    RunLoadOn(options, out, terminal);
  }
}

}  // namespace sluice::cli
