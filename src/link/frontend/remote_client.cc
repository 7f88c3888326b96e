// The client of engines in other processes.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "link/event_set.h"
#include "link/frontend/engine_link.h"
#include "link/frontend/request_table.h"
#include "link/vllm/vllm_link.h"
#include "link/vllm/vllm_ports.h"
#include "sluice/client.hpp"
#include "support/check.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopSlice{50};   // so long a stop may take
constexpr std::chrono::milliseconds kAbortRetry{10};  // where there was no memory to send some
// The sockets of one engine, those that are closing included: one of vLLM has 9. ZeroMQ's own limit
// of 1023 is fewer than the most engines take.
constexpr int kSocketsOfEngine = 16;

class RemoteClient final : public Client {
 public:
  RemoteClient(std::span<const std::string> endpoints, Tokenizer tokenizer,
               const RemoteClientOptions& options);
  ~RemoteClient() override;
  RemoteClient(const RemoteClient&) = delete;
  RemoteClient& operator=(const RemoteClient&) = delete;

  const EngineInfo& info() const override { return table_.info(0); }
  const Tokenizer& tokenizer() const override { return table_.tokenizer(); }
  RequestId Submit(ClientRequest request) override;
  void Abort(RequestId request) override;
  uint64_t Seed(RequestId request) const override { return table_.Seed(request); }
  int64_t live_requests() const override { return table_.live_requests(); }
  std::span<const ClientOutput> Poll(std::chrono::nanoseconds timeout) override;
  int event_fd() const override { return events_.fd(); }
  EngineHealth health() const override;
  std::vector<EngineState> engines() const override;
  const ClientCounters& counters() const override { return table_.counters; }

 private:
  void AddVllm(const std::string& endpoint, const RemoteClientOptions& options);
  void AwaitEngines(const RemoteClientOptions& options);
  // The ready engine with the fewest requests that has a place for one more.
  link::EngineConnection& Choose(int32_t& engine);
  Clock::time_point Turn();
  void ReportEngines();
  void Wait(Clock::time_point until);
  void WakeForRest(Clock::time_point now);

  const pid_t owner_ = getpid();
  RequestObserver observer_;
  EngineObserver engine_observer_;
  zmq::context_t context_;
  std::shared_ptr<VllmPorts> vllm_ports_;
  link::EventSet events_;
  link::RequestTable table_;
  std::vector<std::unique_ptr<link::EngineConnection>> links_;
  std::vector<EngineState> reported_;  // to the observer
  std::vector<zmq_pollitem_t> poll_items_;
  bool has_more_ = false;  // that was not read yet
};

RemoteClient::RemoteClient(std::span<const std::string> endpoints, Tokenizer tokenizer,
                           const RemoteClientOptions& options)
    : observer_(options.observer),
      engine_observer_(options.engine_observer),
      vllm_ports_(options.vllm_ports),
      table_(std::move(tokenizer), options.stop_at) {
  const int most_sockets =
      kSocketsOfEngine * static_cast<int>(std::max<size_t>(endpoints.size(), 64));
  zmq_ctx_set(context_.handle(), ZMQ_MAX_SOCKETS, most_sockets);
  const uint64_t tokenizer_hash = TokenizerHash(table_.tokenizer());
  for (const std::string& endpoint : endpoints) {
    if (IsVllmEndpoint(endpoint)) {
      AddVllm(endpoint, options);
      continue;
    }
    links_.push_back(std::make_unique<link::EngineLink>(
        context_,
        link::EngineLinkOptions{.endpoint = endpoint,
                                .engine = table_.AddEngine(),
                                .credits = options.credits,
                                .hello_timeout = options.connect_timeout,
                                .stall_timeout = options.stall_timeout,
                                .tokenizer_hash = tokenizer_hash,
                                .epoll_fd = events_.fd()},
        table_));
  }
  reported_ = engines();
  AwaitEngines(options);
}

// A link for each rank.
void RemoteClient::AddVllm(const std::string& endpoint, const RemoteClientOptions& options) {
  if (vllm_ports_ == nullptr) vllm_ports_ = MakeVllmPorts(1);
  const link::VllmEndpoint read = link::ReadVllmEndpoint(endpoint);
  const auto port =
      vllm_ports_->Open(read, options.vllm_client, options.stall_timeout, events_.fd());
  for (int32_t rank = 0; rank < read.ranks; ++rank) {
    links_.push_back(std::make_unique<link::VllmLink>(
        link::VllmLinkOptions{.endpoint = read.NameOf(rank),
                              .port = port,
                              .rank = rank,
                              .client = options.vllm_client,
                              .engine = table_.AddEngine(),
                              .stall_timeout = options.stall_timeout,
                              .last_outputs = options.last_outputs,
                              .end_tokens = options.end_tokens,
                              .vocab = options.vocab,
                              .max_logprobs = read.max_logprobs,
                              .adapters = options.adapters,
                              .epoll_fd = events_.fd()},
        table_));
  }
}

// In a forked process ZeroMQ's threads do not exist, and its descriptors are the owner's as well:
// links and context are left as they lie.
RemoteClient::~RemoteClient() {
  if (getpid() == owner_) return;
  for (auto& link : links_) static_cast<void>(link.release());
  static_cast<void>(new zmq::context_t(std::move(context_)));
  static_cast<void>(new std::shared_ptr<VllmPorts>(std::move(vllm_ports_)));
}

void RemoteClient::AwaitEngines(const RemoteClientOptions& options) {
  const Clock::time_point start = Clock::now();
  // One that was ready and is not, while others still come, is a lost engine as at any later time.
  std::vector<bool> was_ready(links_.size());
  const auto timeout_of = [&](const link::EngineConnection& link) {
    return IsVllmEndpoint(link.endpoint()) ? options.start_timeout : options.connect_timeout;
  };
  while (true) {
    const Clock::time_point now = Turn();
    Clock::time_point until = Clock::time_point::max();
    for (size_t i = 0; i < links_.size(); ++i) {
      const auto& link = links_[i];
      if (link->health() == EngineHealth::kReady) was_ready[i] = true;
      if (was_ready[i]) continue;
      const std::chrono::milliseconds timeout = timeout_of(*link);
      const bool is_over = options.stop.stop_requested() || now >= start + timeout;
      if (is_over || link->health() == EngineHealth::kDead) {
        throw Error(ErrorCode::kUnavailable, "endpoint", ToText(std::string_view(link->endpoint())),
                    "an engine that is ready within " + ToText(int64_t{timeout.count()}) + " ms; " +
                        link->reason());
      }
      until = std::min(until, start + timeout);
    }
    if (until == Clock::time_point::max()) return WakeForRest(now);
    Wait(options.stop.stop_possible() ? std::min(until, now + kStopSlice) : until);
  }
}

Clock::time_point RemoteClient::Turn() {
  const Clock::time_point now = Clock::now();
  events_.Clear();
  has_more_ = false;
  for (const auto& link : links_) {
    has_more_ = link->Turn(now) || has_more_;
    link->SendAborts();
  }
  if (engine_observer_) ReportEngines();
  return now;
}

void RemoteClient::ReportEngines() {
  for (size_t i = 0; i < links_.size(); ++i) {
    const link::EngineConnection& link = *links_[i];
    EngineState& reported = reported_[i];
    if (reported.health == link.health() && reported.reason == link.reason()) continue;
    reported.health = link.health();
    reported.reason = link.reason();
    engine_observer_(reported);
  }
}

void RemoteClient::Wait(Clock::time_point until) {
  if (has_more_) return;
  poll_items_.clear();
  for (const auto& link : links_) {
    link->AppendPollItems(poll_items_);
    until = std::min(until, link->Deadline());
  }
  // Rounded up, so that the time has come afterwards.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  const int64_t timeout = std::clamp<int64_t>(left.count(), 0, 1'000'000);
  zmq_poll(poll_items_.data(), static_cast<int>(poll_items_.size()), static_cast<long>(timeout));
}

// After everything that has read a socket.
void RemoteClient::WakeForRest(Clock::time_point now) {
  bool is_due = has_more_ || table_.HasOutputs();
  Clock::time_point deadline = Clock::time_point::max();
  for (size_t i = 0; i < links_.size(); ++i) {
    is_due = links_[i]->HasInput() || is_due;
    deadline = std::min(deadline, links_[i]->Deadline());
    if (table_.HasAborts(static_cast<int32_t>(i))) deadline = std::min(deadline, now + kAbortRetry);
  }
  events_.WakeAt(is_due ? now : deadline, now);
}

std::span<const ClientOutput> RemoteClient::Poll(std::chrono::nanoseconds timeout) {
  table_.Release();
  // No sum may overflow.
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
  const Clock::time_point deadline = Clock::now() + std::min(timeout, kLongest);
  Clock::time_point now = Turn();
  while (!table_.HasOutputs() && now < deadline) {
    Wait(deadline);
    now = Turn();
  }
  const std::span<const ClientOutput> outputs = table_.Outputs();
  WakeForRest(now);
  return outputs;
}

link::EngineConnection& RemoteClient::Choose(int32_t& engine) {
  link::EngineConnection* chosen = nullptr;
  bool has_ready = false;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]->health() != EngineHealth::kReady) continue;
    has_ready = true;
    const auto number = static_cast<int32_t>(i);
    if (!table_.HasFreeSlot(number)) continue;
    if (chosen != nullptr && table_.taken_slots(number) >= table_.taken_slots(engine)) continue;
    chosen = links_[i].get();
    engine = number;
  }
  if (chosen != nullptr) return *chosen;
  if (has_ready) {
    throw Error(ErrorCode::kExhausted, "requests", ToText(live_requests()),
                "no more than the engines have places for; an aborted one has its until the "
                "engine has ended it");
  }
  throw Error(ErrorCode::kUnavailable, "engine", ToText(Name(health())),
              "one that is ready; " + links_[0]->endpoint() + ": " + links_[0]->reason());
}

RequestId RemoteClient::Submit(ClientRequest request) {
  table_.Release();
  int32_t engine = 0;
  link::EngineConnection& link = Choose(engine);
  const RequestId id = table_.Add(engine, std::move(request));
  const Clock::time_point now = Clock::now();
  try {
    if (observer_) observer_(id, table_.request(id));
    link.SendRequest(table_.request(id), now);
  } catch (...) {
    table_.Withdraw(id);
    throw;
  }
  table_.TakeRequest(id);
  WakeForRest(now);
  return id;
}

void RemoteClient::Abort(RequestId request) {
  if (!table_.Abort(request)) return;
  for (const auto& link : links_) link->SendAborts();
  WakeForRest(Clock::now());
}

std::vector<EngineState> RemoteClient::engines() const {
  std::vector<EngineState> states;
  for (const auto& link : links_) {
    states.push_back({.endpoint = link->endpoint(),
                      .health = link->health(),
                      .reason = link->reason(),
                      .grammars = link->grammars()});
  }
  return states;
}

EngineHealth RemoteClient::health() const {
  constexpr EngineHealth kBestFirst[] = {EngineHealth::kReady, EngineHealth::kStalled,
                                         EngineHealth::kConnecting};
  for (const EngineHealth health : kBestFirst) {
    for (const auto& link : links_) {
      if (link->health() == health) return health;
    }
  }
  return EngineHealth::kDead;
}

}  // namespace

std::shared_ptr<VllmPorts> MakeVllmPorts(int32_t clients) {
  CheckInRange("clients", clients, 1, 1024);
  return std::make_shared<VllmPorts>(clients);
}

bool IsVllmEndpoint(std::string_view endpoint) { return endpoint.starts_with("vllm+tcp://"); }

std::unique_ptr<Client> ConnectClient(std::span<const std::string> endpoints, Tokenizer tokenizer,
                                      const RemoteClientOptions& options) {
  int64_t engines = 0;
  for (const std::string& endpoint : endpoints) {
    engines += IsVllmEndpoint(endpoint) ? link::ReadVllmEndpoint(endpoint).ranks : 1;
  }
  CheckInRange("endpoints", engines, 1, link::RequestTable::kMostEngines);
  CheckInRange("credits", options.credits, 1, link::kMostCredits);
  CheckInRange("connect_timeout", options.connect_timeout.count(), 0, INT32_MAX / 4);
  CheckInRange("start_timeout", options.start_timeout.count(), 0, INT32_MAX / 4);
  CheckInRange("vocab", options.vocab, 0, INT32_MAX);
  CheckInRange("stall_timeout", options.stall_timeout.count(), 1, INT32_MAX / 4);
  CheckInRange("last_outputs", options.last_outputs.count(), 0, INT32_MAX / 4);
  if (std::ranges::any_of(endpoints, IsVllmEndpoint)) {
    const int64_t vocab = options.vocab > 0 ? options.vocab : tokenizer.size();
    for (const int32_t id : options.end_tokens) CheckInRange("end_tokens", id, 0, vocab - 1);
  }
  try {
    return std::make_unique<RemoteClient>(endpoints, std::move(tokenizer), options);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kUnavailable, "context", error.what(), "a ZeroMQ context and sockets");
  }
}

}  // namespace sluice
