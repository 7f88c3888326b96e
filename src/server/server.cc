#include "sluice/server.hpp"

#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "server/admission/encode_pool.h"
#include "server/loop.h"
#include "server/server_options.h"
#include "server/server_state.h"
#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice {
namespace {

using server::Loop;

// Where an engine does not say what its model is called.
constexpr std::string_view kModelWithoutName = "default";

std::string UrlOf(const ServerOptions& options, uint16_t port) {
  if (!options.unix_socket.empty()) return "unix:" + options.unix_socket;
  const bool is_version_6 = options.host.find(':') != std::string::npos;
  return (options.tls_cert.empty() ? "http://" : "https://") +
         (is_version_6 ? "[" + options.host + "]" : options.host) + ":" + std::to_string(port);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ModelText& text, const ServerOptions& options)
      : state_(text, Checked(options)), pool_(std::in_place, options.encode_threads) {
    if (std::ranges::any_of(options.engines, IsVllmEndpoint)) {
      vllm_ports_ = MakeVllmPorts(options.threads);
    }
    std::vector<std::unique_ptr<Client>> clients;
    for (int32_t i = 0; i < options.threads; ++i) clients.push_back(Connect(text, i));
    state_.info = clients[0]->info();
    state_.model_names = options.model_names;
    if (state_.model_names.empty()) {
      const std::string& name = state_.info.model;
      const bool has_name = !name.empty() && text::IsUtf8(name);
      state_.model_names.push_back(has_name ? name : std::string(kModelWithoutName));
    }
    for (const LoraAdapter& adapter : options.adapters) {
      state_.model_names.push_back(adapter.name);
    }
    state_.created = std::time(nullptr);
    if (!options.tls_cert.empty()) {
      state_.tls = std::make_unique<server::TlsContext>(options.tls_cert, options.tls_key);
    }
    const server::ListenAddress address = {
        .host = options.host, .port = options.port, .unix_socket = options.unix_socket};
    for (auto& client : clients) {
      const Loop* const first = loops_.empty() ? nullptr : loops_[0].get();
      loops_.push_back(
          std::make_unique<Loop>(state_, *pool_, loops_.size(), address, std::move(client), first));
    }
    url_ = UrlOf(options, port());
  }
  // Work for the loops ends before them.
  ~Impl() { pool_.reset(); }

  uint16_t port() const { return loops_[0]->port(); }
  const std::string& url() const { return url_; }
  const EngineInfo& info() const { return state_.info; }

  void SetApiKeys(std::vector<std::string> keys) {
    server::CheckApiKeys(keys, state_.access.needs_key());
    state_.access.SetKeys(std::move(keys));
  }
  void SetTls(std::string_view cert, std::string_view key) {
    if (state_.tls == nullptr)
      ThrowInvalid("tls_cert", "a certificate", "none: this server has no TLS");
    state_.tls->Replace(cert, key);
  }
  void Run(const std::stop_token& drain, const std::stop_token& now);

 private:
  static const ServerOptions& Checked(const ServerOptions& options) {
    server::CheckServerOptions(options);
    return options;
  }
  // One of the clients is enough to report what becomes of the engines.
  std::unique_ptr<Client> Connect(const ModelText& text, int32_t thread) {
    const ServerOptions& options = state_.options;
    EngineObserver observer;
    if (thread == 0) observer = [this](const EngineState& state) { SayState(state); };
    return ConnectClient(options.engines, text.tokenizer(),
                         {.stop_at = options.stop_at,
                          .connect_timeout = options.connect_timeout,
                          .start_timeout = options.start_timeout,
                          .stall_timeout = options.stall_timeout,
                          .stop = options.stop,
                          .end_tokens = {text.end_tokens().begin(), text.end_tokens().end()},
                          .vocab = text.vocab(),
                          .engine_observer = std::move(observer),
                          .vllm_ports = vllm_ports_,
                          .vllm_client = thread,
                          .adapters = options.adapters});
  }
  // Logs changes of an engine's health, except the wait for its first connection and that
  // connection. A vLLM engine that gives a reason is always logged, because it may take minutes to
  // start or have another version.
  void SayState(const EngineState& state) {
    if (state_.options.engine_observer) state_.options.engine_observer(state);
    const bool has_cause = IsVllmEndpoint(state.endpoint) && !state.reason.empty();
    const bool is_news = has_cause || known_.contains(state.endpoint);
    if (is_news || state.health == EngineHealth::kReady) known_.insert(state.endpoint);
    if (!is_news) return;
    std::string line = "the engine " + state.endpoint + " is " + std::string(Name(state.health));
    if (!state.reason.empty()) line.append(": ").append(state.reason);
    state_.log.Say(line);
  }
  void RunLoop(Loop& loop);
  void EndAll(const std::string& why) {
    state_.is_draining = true;
    for (const auto& loop : loops_) loop->EndAll(why);
  }

  server::ServerState state_;
  std::shared_ptr<VllmPorts> vllm_ports_;
  std::set<std::string> known_;  // endpoints of engines that were ready or spoken of
  std::optional<server::EncodePool> pool_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::string url_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t running_ = 0;         // loops
  std::exception_ptr failure_;  // of the first that failed
};

void Server::Impl::RunLoop(Loop& loop) {
  std::exception_ptr failure;
  try {
    loop.Run(loops_);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --running_;
  if (failure_ == nullptr) failure_ = failure;
  changed_.notify_all();
}

void Server::Impl::Run(const std::stop_token& drain, const std::stop_token& now) {
  const auto wake = [this] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  };
  const std::stop_callback on_drain(drain, wake);
  const std::stop_callback on_now(now, wake);

  std::vector<std::jthread> threads;
  running_ = static_cast<int32_t>(loops_.size());
  try {
    for (const auto& loop : loops_) threads.emplace_back([this, &its = *loop] { RunLoop(its); });
  } catch (...) {
    EndAll("the server cannot start");
    throw;
  }

  const auto must_end = [&] { return now.stop_requested() || failure_ != nullptr; };
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return drain.stop_requested() || must_end(); });
  }
  state_.is_draining = true;
  state_.log.Say("the server ends; requests in flight: " +
                 std::to_string(state_.admission.in_flight()));
  for (const auto& loop : loops_) loop->Drain();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, state_.options.drain_timeout,
                      [&] { return running_ == 0 || must_end(); });
  }
  EndAll("the server ends");
  for (std::jthread& thread : threads) thread.join();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

Server::Server(const ModelText& text, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(text, options)) {}
Server::~Server() = default;

uint16_t Server::port() const { return impl_->port(); }
const std::string& Server::url() const { return impl_->url(); }
const EngineInfo& Server::info() const { return impl_->info(); }
void Server::SetApiKeys(std::vector<std::string> keys) { impl_->SetApiKeys(std::move(keys)); }
void Server::SetTls(std::string_view cert, std::string_view key) { impl_->SetTls(cert, key); }
void Server::Run(std::stop_token drain, std::stop_token now) { impl_->Run(drain, now); }

}  // namespace sluice
