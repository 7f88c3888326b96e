#include "server/loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "server/completions.h"
#include "server/metrics/metrics.h"
#include "server/routes.h"

namespace sluice::server {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{1000};
constexpr milliseconds kDrainLook{5};     // between two looks whether the last connection is over
constexpr milliseconds kLastWrites{500};  // for the last events of streams that are ended
constexpr milliseconds kReportPatience{1000};
constexpr std::chrono::minutes kPauseNews{1};  // between two lines about connections that wait

// /metrics: requests a report of all loops, and responds when they have reported, or in time
// without those that have not.
class MetricsAnswer final : public Answer {
 public:
  MetricsAnswer(Exchange& exchange, const ServerState& state, asio::io_context& io,
                std::span<const std::unique_ptr<Loop>> loops)
      : exchange_(exchange),
        state_(state),
        link_(std::make_shared<Link>(Link{.answer = this, .left = loops.size()})),
        timer_(io, kReportPatience) {
    for (const auto& loop : loops) {
      loop->Report([link = link_, &io] { asio::post(io, [link] { Link::OneMore(*link); }); });
    }
    timer_.async_wait([link = link_](const boost::system::error_code&) {
      if (link->answer != nullptr) link->answer->Finish();
    });
  }
  ~MetricsAnswer() override { link_->answer = nullptr; }

 private:
  // Between the loops and an answer that may be gone; used on its loop.
  struct Link {
    static void OneMore(Link& link) {
      if (--link.left == 0 && link.answer != nullptr) link.answer->Finish();
    }

    MetricsAnswer* answer;
    size_t left;
  };

  void Finish() {
    link_->answer = nullptr;
    exchange_.Respond(
        {.content_type = std::string(kMetricsType),
         .body = MetricsText(state_.board.All(), state_.http, state_.options.max_requests,
                             state_.model_names.front())});
  }

  Exchange& exchange_;
  const ServerState& state_;
  std::shared_ptr<Link> link_;
  asio::steady_timer timer_;
};

std::vector<std::string> SpecialTexts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const auto text = tokenizer.Token(id);
    if (tokenizer.IsSpecial(id) && text.has_value() && !text->empty()) texts.emplace_back(*text);
  }
  return texts;
}

CompletionSettings SettingsOf(const ServerState& state) {
  RequestLimits limits{.refuses_unknown = state.options.refuses_unknown_fields};
  // An engine that was started for more lists them.
  limits.logprobs = std::max(limits.logprobs, state.info.max_logprobs);
  if (state.options.refuses_special_tokens) {
    limits.refused_texts = SpecialTexts(state.text.tokenizer());
  }
  std::vector<std::string> adapters;
  for (const LoraAdapter& adapter : state.options.adapters) adapters.push_back(adapter.name);
  return {.model_names = state.model_names,
          .adapters = std::move(adapters),
          .limits = std::move(limits),
          .formats = FormatsOf(state.text, state.options.tool_format,
                               state.options.reasoning_format, state.options.reasoning_budget),
          .max_requests = state.options.max_requests,
          .coalesce_bytes = state.options.http.coalesce_bytes,
          .unsent_bytes = state.options.http.unsent_bytes,
          .keep_alive = state.options.keep_alive};
}

}  // namespace

class Loop::Impl final : public LoopServices {
 public:
  Impl(ServerState& state, EncodePool& pool, size_t number, const ListenAddress& address,
       std::unique_ptr<Client> client, const Impl* first)
      : state_(state),
        pool_(pool),
        number_(number),
        io_(1),
        client_(std::move(client)),
        completions_(*client_, state.text, SettingsOf(state), pool, io_.get_executor()),
        routes_(state, *this),
        listener_(io_, address, state.options.http, routes_, state.http,
                  first == nullptr ? nullptr : &first->listener_, state.tls.get()),
        engine_(io_, client_->event_fd()),
        tick_(io_),
        drain_look_(io_) {}
  ~Impl() { engine_.release(); }  // the descriptor is the client's

  uint16_t port() const { return listener_.port(); }
  asio::io_context& io() { return io_; }

  void Run(std::span<const std::unique_ptr<Loop>> all) {
    all_ = all;
    std::exception_ptr failure;
    for (bool is_first = true;; is_first = false) {
      try {
        if (is_first) {
          listener_.Start();
          WatchEngine();
          Tick();
        }
        io_.run();
        break;
      } catch (...) {  // the loop goes on until its streams have their last event
        if (!failure) failure = std::current_exception();
        EndAfterFailure();
      }
    }
    Report();
    if (failure) std::rethrow_exception(failure);
  }

  void Drain() {
    if (std::exchange(is_draining_, true)) return;
    listener_.StopAccepting();
    LookWhetherDrained();
  }
  void EndWith(std::string_view why) {
    completions_.EndAll(why);
    close_at_ = Clock::now() + kLastWrites;
    Drain();
  }
  void EndAfterFailure() {
    try {
      EndWith("the server has failed");
    } catch (...) {
      listener_.CloseAll();
      io_.stop();
    }
  }
  void Report() {
    state_.board.Put(number_, {.completions = completions_.counters(),
                               .client = client_->counters(),
                               .routes = routes_.counts(),
                               .engines = client_->engines()});
  }

  EngineHealth engine_health() const override { return client_->health(); }
  std::vector<EngineState> engines() const override { return client_->engines(); }
  std::unique_ptr<Answer> Complete(Exchange& exchange, Api api) override {
    return completions_.Begin(exchange, api);
  }
  std::unique_ptr<Answer> Measure(Exchange& exchange) override {
    return std::make_unique<MetricsAnswer>(exchange, state_, io_, all_);
  }
  void Encode(std::function<void()> work, std::function<void()> then, size_t bytes,
              uint64_t group) override {
    pool_.Run(std::move(work), io_.get_executor(), std::move(then), bytes, group);
  }

 private:
  void WatchEngine() {
    engine_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (error) return;
                         completions_.Poll();
                         WatchEngine();
                       });
  }
  void Tick() {
    completions_.Tick(Clock::now());
    if (number_ == 0) {
      state_.log.Tick();
      LogPauses(Clock::now());
    }
    tick_.expires_after(kTick);
    tick_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Tick();
    });
  }
  // Clients see a connection without a response, and no reason.
  void LogPauses(Clock::time_point now) {
    const int64_t pauses = state_.http.accept_pauses.load(std::memory_order_relaxed);
    if (pauses == logged_pauses_ || (logged_pauses_ > 0 && now - pauses_logged_at_ < kPauseNews))
      return;
    logged_pauses_ = pauses;
    pauses_logged_at_ = now;
    state_.log.Say(
        "new connections wait: no file descriptor or memory is left for them; ulimit -n, or "
        "LimitNOFILE of systemd, allows more descriptors");
  }
  void LookWhetherDrained() {
    if (close_at_.has_value() && Clock::now() >= *close_at_) listener_.CloseAll();
    if (listener_.connections() == 0) return io_.stop();
    drain_look_.expires_after(kDrainLook);
    drain_look_.async_wait([this](const boost::system::error_code& error) {
      if (!error) LookWhetherDrained();
    });
  }

  ServerState& state_;
  EncodePool& pool_;
  const size_t number_;
  std::span<const std::unique_ptr<Loop>> all_;

  asio::io_context io_;
  std::unique_ptr<Client> client_;
  Completions completions_;
  Routes routes_;
  HttpListener listener_;
  asio::posix::stream_descriptor engine_;
  asio::steady_timer tick_;
  asio::steady_timer drain_look_;
  bool is_draining_ = false;
  int64_t logged_pauses_ = 0;  // of loop 0
  Clock::time_point pauses_logged_at_ = {};
  std::optional<Clock::time_point> close_at_;
};

Loop::Loop(ServerState& state, EncodePool& pool, size_t number, const ListenAddress& address,
           std::unique_ptr<Client> client, const Loop* first)
    : impl_(std::make_unique<Impl>(state, pool, number, address, std::move(client),
                                   first == nullptr ? nullptr : first->impl_.get())) {}
Loop::~Loop() = default;

uint16_t Loop::port() const { return impl_->port(); }
void Loop::Run(std::span<const std::unique_ptr<Loop>> all) { impl_->Run(all); }

void Loop::Drain() {
  asio::post(impl_->io(), [impl = impl_.get()] { impl->Drain(); });
}
void Loop::EndAll(std::string why) {
  asio::post(impl_->io(), [impl = impl_.get(), why = std::move(why)] { impl->EndWith(why); });
}
void Loop::Report(std::function<void()> then) {
  asio::post(impl_->io(), [impl = impl_.get(), then = std::move(then)] {
    impl->Report();
    then();
  });
}

}  // namespace sluice::server
