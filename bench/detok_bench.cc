#include "bench/detok_bench.h"

#include <algorithm>
#include <memory>

#include "bench/decode_stream.h"
#include "bench/stopwatch.h"
#include "sluice/detokenizer.hpp"
#include "sluice/stop.hpp"

namespace sluice::bench {
namespace {

// The median of calls, one unit of `units`.
template <typename Call>
double Median(double budget_ms, int64_t units, const Call& call) {
  std::vector<double> times;
  double used = 0.0;
  while (times.size() < 3 || used < budget_ms * 1e6) {
    times.push_back(TimeOf(call));
    used += times.back();
  }
  return MedianOf(times) / static_cast<double>(units);
}

std::vector<int32_t> Repeated(const std::vector<int32_t>& ids, int64_t count) {
  std::vector<int32_t> made;
  for (size_t i = 0; static_cast<int64_t>(made.size()) < count; ++i) {
    made.push_back(ids[i % ids.size()]);
  }
  return made;
}

}  // namespace

void RunDetokBench(const std::string& json, const std::string& text, const DetokOptions& options,
                   const std::function<void(const DetokTiming&)>& on_timing) {
  const auto measure = [&](const std::string& task, int64_t n, const auto& call) {
    return DetokTiming{.task = task, .n = n, .ns = Median(options.budget_ms, n, call)};
  };
  const auto bytes = static_cast<int64_t>(json.size());
  on_timing(measure("load", bytes, [&] { Tokenizer::FromJson(json); }));
  const Tokenizer tokenizer = Tokenizer::FromJson(json);
  std::vector<int32_t> ids;
  on_timing(measure("encode", static_cast<int64_t>(text.size()),
                    [&] { ids = tokenizer.Encode(text, {.add_special_tokens = false}); }));

  std::string out;
  // As many tokens for every length, in streams one after the other: a stream that is decoded again
  // and again is learnt by the processor.
  const int64_t total =
      *std::max_element(options.stream_lengths.begin(), options.stream_lengths.end());
  const std::vector<int32_t> tokens = Repeated(ids, total);
  for (const int64_t length : options.stream_lengths) {
    const auto for_streams = [&](const auto& make) {
      return Median(options.budget_ms, total, [&] {
        for (int64_t at = 0; at < total; at += length) {
          auto stream = make();
          out.clear();
          for (int64_t i = at; i < std::min(at + length, total); ++i) {
            stream(tokens[static_cast<size_t>(i)]);
          }
        }
      });
    };
    DetokTiming timing{.task = "detokenise", .n = length};
    timing.ns = for_streams([&] {
      return [&out, detokenizer = Detokenizer(tokenizer)](int32_t id) mutable {
        detokenizer.Step({&id, 1}, out);
      };
    });
    timing.peer_ns = for_streams([&] {
      return [&out, peer = DecodeStream(tokenizer)](int32_t id) mutable { peer.Step(id, out); };
    });
    on_timing(timing);
  }
  const std::vector<int32_t> some = Repeated(ids, 10000);
  for (const int64_t length : options.prompt_lengths) {
    const std::vector<int32_t> prompt = Repeated(ids, length);
    on_timing(measure("detokenise, prompt of " + std::to_string(length), 10000, [&] {
      Detokenizer detokenizer(tokenizer, {}, prompt);
      out.clear();
      for (const int32_t id : some) detokenizer.Step({&id, 1}, out);
    }));
  }
  std::vector<size_t> ends(some.size());
  on_timing(measure("detokenise, one step", 10000, [&] {
    Detokenizer detokenizer(tokenizer);
    out.clear();
    detokenizer.Step(some, out, ends);
  }));

  const std::vector<std::string> stops = {"\n\nUser:", "</answer>", "<|end|>", "END OF IT"};
  for (const bool has_stops : {true, false}) {
    const auto list = std::make_shared<const StopList>(
        has_stops ? std::span<const std::string>(stops) : std::span<const std::string>());
    std::string released;
    double held = 0.0;
    DetokTiming timing = measure(has_stops ? "4 stops" : "no stops", 10000, [&] {
      StopScanner scanner(list);
      released.clear();
      size_t begin = 0;
      for (const size_t end : ends) {
        const size_t size = end - begin;
        scanner.Step(std::string_view(out).substr(begin, size), {&size, 1}, released);
        begin = end;
      }
    });
    StopScanner scanner(list);
    size_t begin = 0;
    for (const size_t end : ends) {
      const size_t size = end - begin;
      scanner.Step(std::string_view(out).substr(begin, size), {&size, 1}, released);
      held += static_cast<double>(scanner.held_bytes());
      begin = end;
    }
    timing.held_bytes = held / static_cast<double>(ends.size());
    on_timing(timing);
  }
}

}  // namespace sluice::bench
