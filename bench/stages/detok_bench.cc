#include "bench/stages/detok_bench.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "bench/cuda/decode_stream.h"
#include "bench/support/stopwatch.h"
#include "sluice/text_stream.hpp"

namespace sluice::bench {
namespace {

using Call = std::function<void()>;

// Times of one unit.
struct Times {
  std::vector<double> of;

  void SetIn(DetokTiming& timing) const {
    std::vector<double> sorted = of;
    timing.ns = MedianOf(sorted);
    timing.low = sorted[sorted.size() / 4];
    timing.high = sorted[sorted.size() * 3 / 4];
  }
  double Median() const {
    std::vector<double> sorted = of;
    return MedianOf(sorted);
  }
  template <typename F>
  Times With(const Times& other, const F& f) const {
    Times made;
    for (size_t i = 0; i < of.size(); ++i) made.of.push_back(f(of[i], other.of[i]));
    return made;
  }
};

Times TimesOf(double budget_ms, int64_t units, const Call& call) {
  Times times;
  double used = 0.0;
  while (times.of.size() < 3 || used < budget_ms * 1e6) {
    const double ns = TimeOf(call);
    times.of.push_back(ns / static_cast<double>(units));
    used += ns;
  }
  return times;
}

std::vector<Times> TimesInTurns(const std::vector<Call>& calls, int64_t turns, int64_t units) {
  std::vector<Times> times(calls.size());
  std::vector<size_t> order(calls.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random;
  for (int64_t turn = -1; turn < turns; ++turn) {
    // What a call finds in the caches is what the one before left there: in each turn another one.
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      const double ns = TimeOf(calls[i]) / static_cast<double>(units);
      if (turn >= 0) times[i].of.push_back(ns);
    }
  }
  return times;
}

std::vector<int32_t> Repeated(const std::vector<int32_t>& ids, int64_t count) {
  std::vector<int32_t> made;
  for (size_t i = 0; static_cast<int64_t>(made.size()) < count; ++i) {
    made.push_back(ids[i % ids.size()]);
  }
  return made;
}

const std::vector<std::string> kStops = {
    "\n\nUser:",     "</answer>", "<|end|>",      "END OF IT", "\n\nHuman:", "\n\nAssistant:",
    "<|im_end|>",    "</s>",      "Observation:", "\n```\n",   "###",        "[/INST]",
    "<|endoftext|>", "---\n",     "Question:",    "\n\n\n\n\n"};

// Everything that a token costs. Streams follow each other through the same tokens: one that is
// decoded again and again is learnt by the processor.
class TokenBench {
 public:
  TokenBench(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, int64_t count)
      : tokenizer_(tokenizer), tokens_(Repeated(ids, count)) {
    Detokenizer detokenizer(tokenizer_);
    for (const int32_t id : tokens_) {
      const size_t before = out_.size();
      detokenizer.Step({&id, 1}, out_);
      pieces_.emplace_back(before, out_.size() - before);
    }
    out_.append(kCopied, ' ');
    text_ = out_;
  }

  // make() gives what takes the tokens of a stream, by their place.
  template <typename Make>
  Call InStreams(int64_t length, Make make) {
    return [this, length, make] {
      const int64_t total = count();
      for (int64_t at = 0; at < total; at += length) {
        auto stream = make();
        out_.clear();
        for (int64_t i = at; i < std::min(at + length, total); ++i) {
          stream(static_cast<size_t>(i));
        }
      }
    };
  }
  Call Detokenise(int64_t length, const std::vector<int32_t>& prompt = {}) {
    return InStreams(length, [this, prompt] {
      return [this, detokenizer = Detokenizer(tokenizer_, {}, prompt)](size_t i) mutable {
        detokenizer.Step({&tokens_[i], 1}, out_);
      };
    });
  }
  Call Peer(int64_t length) {
    return InStreams(length, [this] {
      return [this, peer = DecodeStream(tokenizer_)](size_t i) mutable {
        peer.Step(tokens_[i], out_);
      };
    });
  }
  Call Stream(int64_t length, const std::shared_ptr<const StopList>& stops) {
    return InStreams(length, [this, stops] {
      return [this, stream = TextStream(tokenizer_, {.stops = stops})](size_t i) mutable {
        stream.Step({&tokens_[i], 1}, out_);
      };
    });
  }
  // As a program that keeps the parts apart: the scanner copies what it lets out.
  Call Scan(int64_t length, const std::shared_ptr<const StopList>& stops) {
    return InStreams(length, [this, stops] {
      return [this, scanner = StopScanner(stops)](size_t i) mutable {
        const auto [begin, size] = pieces_[i];
        const TokenEnd end = {.text = size};
        scanner.Step(std::string_view(text_).substr(begin, size), {&end, 1}, out_);
      };
    });
  }
  Call Floor(int64_t length) {
    return InStreams(length, [this] {
      return [this](size_t i) {
        const auto [begin, size] = pieces_[i];
        const size_t before = out_.size();
        out_.append(text_.data() + begin, kCopied);
        out_.resize(before + size);
      };
    });
  }
  Call InOneStep(int64_t length) {
    return [this, length] {
      for (int64_t at = 0; at < count(); at += length) {
        const auto size = static_cast<size_t>(std::min(length, count() - at));
        ends_.resize(size);
        Detokenizer detokenizer(tokenizer_);
        out_.clear();
        detokenizer.Step(std::span(tokens_).subspan(static_cast<size_t>(at), size), out_, ends_);
      }
    };
  }

  double HeldBytes(const std::shared_ptr<const StopList>& stops) {
    TextStream stream(tokenizer_, {.stops = stops});
    double held = 0.0;
    for (const int32_t id : tokens_) {
      stream.Step({&id, 1}, out_);
      held += static_cast<double>(stream.held_bytes());
    }
    return held / static_cast<double>(count());
  }

  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  static constexpr size_t kCopied = 16;
  Tokenizer tokenizer_;
  std::vector<int32_t> tokens_;
  std::vector<std::pair<size_t, size_t>> pieces_;  // where each token's text is, and its size
  std::string text_;
  std::string out_;
  std::vector<TokenEnd> ends_;
};

}  // namespace

void RunDetokBench(const std::string& json, const std::string& text, const DetokOptions& options,
                   const std::function<void(const DetokTiming&)>& on_timing) {
  const auto tell = [&](DetokTiming timing, const Times& times) {
    times.SetIn(timing);
    on_timing(timing);
  };
  const auto bytes = static_cast<int64_t>(json.size());
  tell({.task = "load", .n = bytes},
       TimesOf(options.budget_ms, bytes, [&] { Tokenizer::FromJson(json); }));
  const Tokenizer tokenizer = Tokenizer::FromJson(json);
  std::vector<int32_t> ids;
  const auto characters = static_cast<int64_t>(text.size());
  tell({.task = "encode", .n = characters}, TimesOf(options.budget_ms, characters, [&] {
         ids = tokenizer.Encode(text, {.add_special_tokens = false});
       }));

  const std::vector<int64_t>& lengths = options.stream_lengths;
  TokenBench bench(tokenizer, ids, *std::max_element(lengths.begin(), lengths.end()));
  const int64_t length = std::min<int64_t>(10000, bench.count());
  std::vector<Call> calls;
  const auto add = [&](Call call) {
    calls.push_back(std::move(call));
    return calls.size() - 1;
  };
  struct Length {
    int64_t n;
    size_t ours, peer, floor;
  };
  std::vector<Length> streams;
  for (const int64_t n : lengths) {
    streams.push_back({n, add(bench.Detokenise(n)), add(bench.Peer(n)), add(bench.Floor(n))});
  }
  const size_t again = add(bench.Detokenise(length));
  std::vector<std::pair<int64_t, size_t>> prompts;
  for (const int64_t n : options.prompt_lengths) {
    prompts.emplace_back(n, add(bench.Detokenise(length, Repeated(ids, n))));
  }
  const size_t one_step = add(bench.InOneStep(length));
  struct Stops {
    std::string task;
    std::shared_ptr<const StopList> list;
    size_t stream, scan;
  };
  std::vector<Stops> stops;
  for (const size_t count : {size_t{0}, size_t{4}, size_t{16}}) {
    const auto list = std::make_shared<const StopList>(std::span(kStops).first(count));
    const std::string task = count == 0 ? "no stops" : std::to_string(count) + " stops";
    stops.push_back({task, list, add(bench.Stream(length, list)), add(bench.Scan(length, list))});
  }

  const std::vector<Times> times = TimesInTurns(calls, options.turns, bench.count());
  for (const Length& stream : streams) {
    const Times ratio = times[stream.peer].With(
        times[stream.ours], [](double peer, double ours) { return peer / ours; });
    tell({.task = "detokenise",
          .n = stream.n,
          .peer_ns = times[stream.peer].Median(),
          .ratio = ratio.Median(),
          .floor_ns = times[stream.floor].Median()},
         times[stream.ours]);
  }
  tell({.task = "detokenise, again", .n = length}, times[again]);
  for (const auto& [n, call] : prompts) {
    tell({.task = "detokenise, prompt of " + std::to_string(n), .n = length}, times[call]);
  }
  tell({.task = "detokenise, one step", .n = length}, times[one_step]);
  for (const Stops& with : stops) {
    const auto minus = [](double a, double b) { return a - b; };
    tell({.task = with.task,
          .n = length,
          .is_difference = true,
          .detokenise_ns = times[again].Median(),
          .held_bytes = bench.HeldBytes(with.list)},
         times[with.stream].With(times[again], minus));
    tell({.task = with.task + ", scanner alone", .n = length}, times[with.scan]);
  }
}

}  // namespace sluice::bench
