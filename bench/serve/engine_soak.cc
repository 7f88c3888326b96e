#include "bench/serve/engine_soak.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/script_runner.hpp"
#include "sluice/text_stream.hpp"

namespace sluice::bench {
namespace {

using std::chrono::milliseconds;

double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  double total = 0.0;
  double resident = 0.0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Memory against requests done.
class MemoryTrend {
 public:
  void Add(int64_t done) { points_.push_back({static_cast<double>(done), ResidentMib()}); }

  void Report(int64_t all, SoakResult& result) const {
    double n = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
    for (const auto& [done, mib] : points_) {
      if (done < static_cast<double>(all) / 4) continue;
      if (n == 0.0) result.rss_begin_mib = mib;
      result.rss_end_mib = mib;
      n += 1.0;
      x += done;
      y += mib;
      xx += done * done;
      xy += done * mib;
    }
    const double spread = n * xx - x * x;
    if (spread > 0.0) result.rss_slope_bytes = (n * xy - x * y) / spread * (1 << 20);
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

// What a request must come to, from the script alone.
struct Expected {
  std::string text;
  GenerationEnd end = GenerationEnd::kNone;
};

struct Live {
  Expected expected;
  std::string text;
  OutputMode mode = OutputMode::kDelta;
  int64_t abort_after = -1;  // outputs; -1: never
  int64_t outputs = 0;
  std::vector<int32_t> to_score;  // tokens of the prompt with log-probabilities to come
};

class Frontend {
 public:
  Frontend(const SoakOptions& options, int number, const Tokenizer& tokenizer,
           const std::vector<int32_t>& script, const std::string& endpoint)
      : options_(options),
        tokenizer_(tokenizer),
        script_(script),
        endpoint_(endpoint),
        stop_at_(number % 2 == 0 ? StopAt::kEngine : StopAt::kFrontend),
        random_(options.seed * 1000 + static_cast<uint64_t>(number)) {}

  void Run(int64_t requests, const std::function<void(int64_t)>& on_done) {
    Connect();
    int64_t since_connect = 0;
    for (int64_t sent = 0; sent < requests || !live_.empty();) {
      while (sent < requests && std::ssize(live_) < options_.concurrency) {
        Submit();
        ++sent;
        ++since_connect;
      }
      const int64_t before = result_.requests;
      for (const ClientOutput& output : client_->Poll(milliseconds(100))) Take(output);
      for (const RequestId id : to_abort_) client_->Abort(id);
      to_abort_.clear();
      on_done(result_.requests - before);
      if (since_connect < options_.reconnect || sent == requests) continue;
      Leave();
      on_done(std::exchange(left_now_, 0));
      Connect();
      since_connect = 0;
    }
    Leave();
  }

  const SoakResult& result() const { return result_; }

 private:
  void Connect() { client_ = ConnectClient({&endpoint_, 1}, tokenizer_, {.stop_at = stop_at_}); }

  // With whatever is live.
  void Leave() {
    const ClientCounters& counters = client_->counters();
    result_.unexpected_rows += counters.unknown_rows + counters.repeated_ends + counters.gaps +
                               counters.foreign_ids + counters.disagreements +
                               counters.repeated_frames + counters.malformed_frames +
                               counters.foreign_frames + counters.resets;
    left_now_ = std::ssize(live_);
    result_.left_behind += left_now_;
    result_.requests += left_now_;
    ++result_.reconnects;
    live_.clear();
    client_.reset();
  }

  int64_t Below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_);
  }

  void Submit() {
    ClientRequest request;
    request.prompt.resize(static_cast<size_t>(1 + Below(40)));
    for (int32_t& id : request.prompt) id = static_cast<int32_t>(Below(tokenizer_.size()));
    request.max_tokens = 1 + Below(24);
    request.ignores_end = true;
    request.mode = static_cast<OutputMode>(Below(3));
    request.stream_interval = 1 + Below(3);
    Live live;
    live.mode = request.mode;
    switch (Below(6)) {
      case 0:
      case 1:
        break;  // by length
      case 2:
        request.text.stops = {StopText(), "\x01never"};
        request.text.include_stop = Below(2) == 0;
        break;
      case 3:
        request.params.stop_token_ids = {script_[static_cast<size_t>(Below(std::ssize(script_)))]};
        break;
      case 4:
        live.abort_after = Below(8);
        request.max_tokens = 200;  // so that it is still running
        break;
      default:
        request.params.logprobs = static_cast<int32_t>(Below(4));
        request.prompt_logprobs = static_cast<int32_t>(Below(4));
        live.to_score.assign(request.prompt.begin() + 1, request.prompt.end());
        if (Below(4) == 0) request.max_tokens = 0;
    }
    live.expected = Expect(request);
    const RequestId id = client_->Submit(std::move(request));
    if (live.abort_after == 0) to_abort_.push_back(id);
    live_.emplace(id.value, std::move(live));
  }

  // Some letters out of the script, which may begin and end inside of tokens.
  std::string StopText() {
    const size_t begin = static_cast<size_t>(Below(std::ssize(script_)));
    std::string text;
    for (size_t i = 0; i < 4; ++i) {
      text += tokenizer_.Decode({&script_[(begin + i) % script_.size()], 1});
    }
    std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    if (text.size() < 3) return "the";
    return text.substr(1, static_cast<size_t>(1 + Below(std::ssize(text) - 1)));
  }

  Expected Expect(const ClientRequest& request) const {
    TextStreamOptions options;
    options.stops = std::make_shared<const StopList>(request.text.stops);
    options.stop.include_stop = request.text.include_stop;
    options.stop_token_ids = request.params.stop_token_ids;
    const std::vector<int32_t> spelled = tokenizer_.StopTokenIds(request.text.stops);
    options.stop_token_ids.insert(options.stop_token_ids.end(), spelled.begin(), spelled.end());
    TextStream stream(tokenizer_, options, request.prompt);
    Expected expected;
    size_t place = static_cast<size_t>(request.prompt[0]) % script_.size();
    FinishReason finish = FinishReason::kNone;
    for (int64_t i = 0; i < request.max_tokens && finish == FinishReason::kNone; ++i) {
      finish = stream.Step({&script_[place], 1}, expected.text).finish;
      place = (place + 1) % script_.size();
    }
    if (finish == FinishReason::kNone) finish = stream.Finish(expected.text).finish;
    expected.end = finish == FinishReason::kStopString  ? GenerationEnd::kStopString
                   : finish == FinishReason::kStopToken ? GenerationEnd::kStopToken
                                                        : GenerationEnd::kLength;
    return expected;
  }

  void Take(const ClientOutput& output) {
    const auto found = live_.find(output.request.value);
    if (found == live_.end()) {
      ++result_.unexpected_rows;
      return;
    }
    Live& live = found->second;
    if (live.mode == OutputMode::kDelta) {
      live.text.append(output.text);
    } else {
      live.text = output.text;
    }
    if (!output.prompt.IsEmpty()) TakePrompt(output.prompt, live);
    if (++live.outputs == live.abort_after) to_abort_.push_back(output.request);
    if (output.end == GenerationEnd::kNone) return;
    ++result_.requests;
    ++result_.ends[static_cast<size_t>(output.end)];
    result_.tokens += output.output_tokens;
    const bool is_aborted = output.end == GenerationEnd::kCancelled;
    const bool may_abort = live.abort_after >= 0;
    if (is_aborted ? !may_abort : output.end != live.expected.end) ++result_.wrong_ends;
    // What an abort lets out at its end may have a character replaced that was incomplete.
    const bool is_right =
        is_aborted ? IsBeginning(live.text, live.expected.text) : live.text == live.expected.text;
    const bool is_scored = is_aborted || live.to_score.empty();
    if (!is_right || !is_scored) ++result_.wrong_texts;
    live_.erase(found);
  }

  // All of them, once.
  void TakePrompt(const PromptLogprobs& prompt, Live& live) {
    bool is_right = live.outputs == 0 && prompt.logprobs.size() == live.to_score.size();
    for (size_t i = 0; is_right && i < live.to_score.size(); ++i) {
      is_right = prompt.logprobs[i] == ScriptLogprob(live.to_score[i]);
    }
    if (!is_right) ++result_.wrong_texts;
    live.to_score.clear();
  }

  static bool IsBeginning(std::string_view text, std::string_view whole) {
    constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
    if (whole.starts_with(text)) return true;
    while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
    return whole.starts_with(text);
  }

  const SoakOptions& options_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& script_;
  std::string endpoint_;
  StopAt stop_at_;
  std::mt19937_64 random_;
  std::unique_ptr<Client> client_;
  std::map<uint64_t, Live> live_;
  std::vector<RequestId> to_abort_;
  int64_t left_now_ = 0;
  SoakResult result_;
};

void Add(const SoakResult& part, SoakResult& sum) {
  sum.requests += part.requests;
  for (int i = 0; i < kGenerationEnds; ++i) sum.ends[i] += part.ends[i];
  sum.left_behind += part.left_behind;
  sum.tokens += part.tokens;
  sum.reconnects += part.reconnects;
  sum.wrong_texts += part.wrong_texts;
  sum.wrong_ends += part.wrong_ends;
  sum.unexpected_rows += part.unexpected_rows;
}

}  // namespace

SoakResult RunSoak(const SoakOptions& options, const Tokenizer& tokenizer,
                   const std::vector<int32_t>& script,
                   const std::function<void(int64_t done, int64_t all)>& on_progress) {
  ScriptOptions scripted;
  scripted.vocab = tokenizer.size();
  scripted.tokens = script;
  scripted.burst = options.burst;
  scripted.pages = 96;  // too few for all that runs, so that some are preempted
  ScriptRunner runner(scripted);
  Engine engine(runner, tokenizer, {.steps_in_flight = options.steps_in_flight});
  EngineServer server(engine, {.model = "script"},
                      {.listen = "ipc://@sluice-soak-" + std::to_string(getpid())});

  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&](const auto& body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  SoakResult result;
  {
    std::jthread serving(
        [&](std::stop_token stop) { guarded([&] { server.Run(std::move(stop)); }); });
    MemoryTrend trend;
    int64_t done = 0;
    const int64_t step = std::max<int64_t>(options.requests / 200, 1);
    const auto on_done = [&](int64_t more) {
      const std::lock_guard lock(mutex);
      const int64_t before = done;
      done += more;
      if (done / step == before / step) return;
      trend.Add(done);
      on_progress(done, options.requests);
    };
    std::vector<std::unique_ptr<Frontend>> frontends;
    {
      for (int i = 0; i < options.frontends; ++i) {
        frontends.push_back(
            std::make_unique<Frontend>(options, i, tokenizer, script, server.endpoint()));
      }
      std::vector<std::jthread> threads;
      for (int i = 0; i < options.frontends; ++i) {
        const int64_t share = options.requests / options.frontends +
                              (i < options.requests % options.frontends ? 1 : 0);
        threads.emplace_back([&, i, share] {
          guarded([&] { frontends[static_cast<size_t>(i)]->Run(share, on_done); });
        });
      }
    }
    for (const auto& frontend : frontends) Add(frontend->result(), result);
    trend.Report(options.requests, result);
    // The engine hears of closed frontends at its next steps.
    for (int i = 0; i < 1000; ++i) {
      result.engine = server.engine_counters();
      if (result.engine.running + result.engine.waiting == 0) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    result.link = server.link_counters();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  result.running = result.engine.running;
  result.waiting = result.engine.waiting;
  result.lost_pages = scripted.pages - result.engine.free_pages;
  result.unbalanced_tokens = result.engine.tokens - result.engine.tokens_given -
                             result.engine.tokens_discarded_stop -
                             result.engine.tokens_discarded_abort;
  return result;
}

}  // namespace sluice::bench
