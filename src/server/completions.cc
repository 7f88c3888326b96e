#include "server/completions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/completions/live_exchange.h"
#include "server/completions/loop_state.h"
#include "server/error_response.h"
#include "support/check.h"

namespace sluice::server {

void CompletionCounters::Histogram::Add(double seconds) {
  const double* const bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), seconds);
  ++buckets[bound - std::begin(kBounds)];
  ++count;
  sum += seconds;
}

class Completions::Impl {
 public:
  using Clock = std::chrono::steady_clock;

  Impl(Client& client, const ModelText& text, const CompletionSettings& settings, EncodePool& pool,
       boost::asio::any_io_executor loop)
      : state_(std::make_shared<LoopState>(
            LoopState{.client = client,
                      .settings = settings,
                      .preparation = std::make_shared<const PreparationSettings>(
                          PreparationSettings{.text = text,
                                              .model_names = settings.model_names,
                                              .adapters = settings.adapters,
                                              .limits = settings.limits,
                                              .formats = settings.formats})})),
        pool_(pool),
        loop_(std::move(loop)) {
    CheckInRange("model_names", std::ssize(settings.model_names), 1, INT32_MAX);
  }
  ~Impl() {
    while (!state_->exchanges.empty()) state_->exchanges.back()->Drop();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<Answer> Begin(Exchange& exchange, Api api);
  void Poll();
  void Tick(Clock::time_point now);
  void EndAll(std::string_view why);
  const LoopState& state() const { return *state_; }

 private:
  void PrepareElsewhere(LiveExchange& live, Exchange& exchange, Api api);

  std::shared_ptr<LoopState> state_;
  EncodePool& pool_;
  boost::asio::any_io_executor loop_;
};

std::unique_ptr<Answer> Completions::Impl::Begin(Exchange& exchange, Api api) {
  ++state_->counters.requests;
  if (state_->ended.has_value()) {
    exchange.Respond(ErrorResponse(Unavailable(*state_->ended)));
    return nullptr;
  }
  if (state_->counters.running >= state_->settings.max_requests) {
    exchange.Respond(ErrorResponse(Unavailable("as many requests are in flight as there may be")));
    return nullptr;
  }
  state_->now = Clock::now();
  auto live = std::make_unique<LiveExchange>(state_, exchange, api);
  const std::string& body = exchange.request().body;
  if (body.size() > state_->settings.encode_inline_bytes) {
    PrepareElsewhere(*live, exchange, api);
    return live;
  }
  const HttpBody its = exchange.TakeBody();
  live->Start(Prepare(api, its.text, state_->client.info().context, *state_->preparation));
  if (live->is_over()) return nullptr;
  return live;
}

// The job owns all that it reads: the exchange may be gone before it is done.
void Completions::Impl::PrepareElsewhere(LiveExchange& live, Exchange& exchange, Api api) {
  struct Job {
    HttpBody body;
    std::optional<Preparation> result;
  };
  auto job = std::make_shared<Job>();
  job->body = exchange.TakeBody();
  const size_t bytes = job->body.text.size();
  const auto handle = live.MakeHandle();
  pool_.Run(
      [job, handle, api, context = state_->client.info().context, settings = state_->preparation] {
        const auto is_gone = [&handle] { return handle.expired(); };
        if (!is_gone()) job->result = Prepare(api, job->body.text, context, *settings, is_gone);
        job->body = {};
      },
      loop_,
      [job, handle, state = state_] {
        const auto its = handle.lock();
        if (its == nullptr) return;  // no request waits any more
        state->now = Clock::now();
        if (job->result.has_value()) {
          (*its)->Start(std::move(*job->result));
        } else {
          (*its)->EndWith(Unavailable("there is no memory for this request"));
        }
      },
      bytes, exchange.group());
}

void Completions::Impl::Poll() {
  LoopState& state = *state_;
  const auto outputs = state.client.Poll(std::chrono::nanoseconds(0));
  if (outputs.empty()) return;
  state.now = Clock::now();
  for (const ClientOutput& output : outputs) {
    Choice* const choice = state.choices.Find(output.request);
    if (choice != nullptr) choice->exchange->Take(*choice, output);
  }
  for (LiveExchange* const exchange : state.with_news) exchange->Write();
  state.with_news.clear();
}

void Completions::Impl::Tick(Clock::time_point now) {
  state_->now = now;
  for (size_t i = state_->exchanges.size(); i > 0; --i) state_->exchanges[i - 1]->Tick();
}

void Completions::Impl::EndAll(std::string_view why) {
  state_->now = Clock::now();
  state_->ended = why;
  const ApiError error = Unavailable(why);
  while (!state_->exchanges.empty()) state_->exchanges.back()->EndWith(error);
}

Completions::Completions(Client& client, const ModelText& text, const CompletionSettings& settings,
                         EncodePool& pool, boost::asio::any_io_executor loop)
    : impl_(std::make_unique<Impl>(client, text, settings, pool, std::move(loop))) {}
Completions::~Completions() = default;

std::unique_ptr<Answer> Completions::Begin(Exchange& exchange, Api api) {
  return impl_->Begin(exchange, api);
}
void Completions::Poll() { impl_->Poll(); }
void Completions::Tick(std::chrono::steady_clock::time_point now) { impl_->Tick(now); }
void Completions::EndAll(std::string_view why) { impl_->EndAll(why); }
int64_t Completions::live() const { return impl_->state().counters.running; }
const CompletionCounters& Completions::counters() const { return impl_->state().counters; }

}  // namespace sluice::server
