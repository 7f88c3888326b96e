// How an engine is found, lost and found again. The traffic in between: vllm_link_requests.
#include "link/vllm/vllm_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <new>
#include <utility>

#include "link/sockets.h"
#include "link/vllm/engine_core_request.h"
#include "link/vllm/handshake.h"
#include "link/vllm/messages.h"
#include "support/check.h"
#include "support/random_seed.h"

namespace sluice::link {
namespace {

using std::chrono::milliseconds;

constexpr int kReadsAtOnce = 64;
constexpr int kPingsBeforeStall = 4;
constexpr milliseconds kPingEvery{250};
constexpr int kAbortsLinger = 200;   // milliseconds
constexpr size_t kReserved = 16384;  // bytes of a message: of some hundred aborts
// vLLM keeps as many as come, in the order in which they did.
constexpr int32_t kMostRequests = 1 << 16;

// Empty where it is.
std::string WhyNotUsed(const vllm::EngineFacts& facts) {
  if (vllm::FitOf(facts.version) == vllm::VersionFit::kOther) {
    return "it is vLLM " + facts.version + ", and what is spoken here is vLLM " +
           std::string(vllm::kKnownVersions);
  }
  if (facts.data_parallel_size != 1) {
    return "it is one of " + ToText(facts.data_parallel_size) +
           " ranks that compute experts together, for which Sluice has no coordinator: start it "
           "with --data-parallel-size 1, and more GPUs with --tensor-parallel-size";
  }
  return {};
}

}  // namespace

VllmLink::VllmLink(VllmLinkOptions options, RequestTable& table)
    : options_(std::move(options)),
      table_(table),
      identity_(vllm::IdentityOf(options_.rank)),
      reason_("no vLLM engine has said hello there") {
  last_turn_ = Clock::now();
  out_.reserve(kReserved);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(options_.epoll_fd, EPOLL_CTL_ADD, news_fd(), &event);
}

VllmLink::~VllmLink() {
  if (health() != EngineHealth::kReady) return;
  try {
    life_->sockets.input.set(zmq::sockopt::linger, kAbortsLinger);
    table_.GiveUp(options_.engine, "the frontend ends");
    SendAborts();
  } catch (const std::exception&) {  // no memory: it computes them for no reader
  }
}

EngineHealth VllmLink::health() const {
  if (!IsIn(Phase::kReady)) return EngineHealth::kConnecting;
  return is_stalled_ ? EngineHealth::kStalled : EngineHealth::kReady;
}

bool VllmLink::Turn(Clock::time_point now) {
  // While this thread paused it received nothing, so a pause is not silence of the engine.
  if (now - last_turn_ > options_.stall_timeout / 2) {
    quiet_since_ = std::min(now, quiet_since_ + (now - last_turn_));
  }
  last_turn_ = now;
  const bool has_greetings = reads_port() && options_.port->Turn(now, table_.counters);
  TakeNews(now);
  ReadInput();
  ReadEvents(now);
  const bool has_outputs = ReadOutputs(now);
  // The monitor reports the end of a connection for outputs after the last of them.
  const bool has_said_all =
      IsIn(Phase::kEnding) && !has_outputs && !life_->sockets.output_watch.has_connection();
  if (has_said_all || (IsIn(Phase::kEnding) && now >= life_->ends_at)) EndConnection(now);
  CheckSilence(now);
  return has_greetings || has_outputs;
}

// What has become of the engine's processes.
void VllmLink::TakeNews(Clock::time_point now) {
  VllmPort::News news;
  if (!options_.port->Take(options_.rank, options_.client, news)) return;
  if (news.is_started) {
    // The one before may have sent its last tokens.
    for (int left = kReadsAtOnce; left > 0 && ReadOutputs(now); --left) {
    }
    EndLife("an engine has been started in its place");
  }
  if (news.is_refusal) remark_ = news.reason;
  if (news.is_refusal || news.is_started || IsIn(Phase::kLoading)) reason_ = news.reason;
  if (news.sockets == nullptr) return;
  translation_ = vllm::OutputTranslation(RandomSeed());
  life_.emplace(Life{.sockets = std::move(*news.sockets)});
  ForEachSocket([this](zmq::socket_t& socket) { Watch(options_.epoll_fd, socket, true); });
}

template <typename Visit>
void VllmLink::ForEachSocket(Visit visit) {
  VllmSockets& its = life_->sockets;
  for (zmq::socket_t* const socket :
       {&its.input, &its.input_watch.monitor(), &its.output, &its.output_watch.monitor()}) {
    visit(*socket);
  }
}

void VllmLink::EndLife(std::string_view reason) {
  if (!life_.has_value()) return;
  reason_.assign(reason);
  const std::string lost = "the engine " + options_.endpoint + ": " + reason_;
  // From here on nothing takes memory: no request may be forgotten.
  ForEachSocket([this](zmq::socket_t& socket) { Watch(options_.epoll_fd, socket, false); });
  life_.reset();
  has_message_ = is_stalled_ = false;
  left_there_.clear();
  orphans_.clear();
  ++table_.counters.resets;
  table_.Lose(options_.engine, lost);
}

void VllmLink::ReadEvents(Clock::time_point now) {
  if (!life_.has_value()) return;
  const bool has_input_changed = life_->sockets.input_watch.TakeChange() || life_->is_unreachable;
  const bool has_changed = life_->sockets.output_watch.TakeChange() || has_input_changed;
  life_->is_unreachable = false;
  if (!has_changed) return;
  if (IsIn(Phase::kReady)) BeginEnding(now);
  if (IsIn(Phase::kPinged)) {
    life_->pinged_from = pinged_;
    ping_at_ = now;
  }
}

void VllmLink::BeginEnding(Clock::time_point now) {
  reason_ = "the connection was lost";
  life_->phase = Phase::kEnding;
  life_->ends_at = now + options_.last_outputs;
  is_stalled_ = false;
}

// The engine's requests end, and it is to abort them where it is there all the same.
void VllmLink::EndConnection(Clock::time_point now) {
  life_->phase = Phase::kPinged;
  life_->pinged_from = pinged_;
  ping_at_ = now;
  ++table_.counters.resets;
  table_.GiveUp(options_.engine, "the engine " + options_.endpoint + ": " + reason_);
}

// The engine says one thing there, when it has loaded its model.
void VllmLink::ReadInput() {
  std::vector<zmq::message_t> parts;
  for (int left = kReadsAtOnce; left > 0; --left) {
    if (!life_.has_value() || !ReceiveAll(life_->sockets.input, parts)) return;
    const bool is_its = parts.size() == 2 && BytesOf(parts[0]) == identity_;
    if (!is_its || !IsIn(Phase::kLoading)) {
      ++table_.counters.foreign_frames;
      continue;
    }
    TakeFacts(parts[1]);
  }
}

void VllmLink::TakeFacts(zmq::message_t& frame) {
  vllm::EngineFacts facts;
  const std::string why = vllm::ReadEngineFacts(BytesOf(frame), facts);
  if (!why.empty()) {
    ++table_.counters.malformed_frames;
    return EndLife("what it says of itself cannot be read: " + why);
  }
  if (const std::string refusal = WhyNotUsed(facts); !refusal.empty()) return EndLife(refusal);
  const int64_t vocab = options_.vocab > 0 ? options_.vocab : table_.tokenizer().size();
  const int64_t logprobs = options_.max_logprobs < 0 ? vocab : options_.max_logprobs;
  table_.SetInfo(options_.engine, {.version = "vLLM " + facts.version,
                                   .vocab = vocab,
                                   .context = facts.context,
                                   .max_requests = facts.max_requests,
                                   .max_client_requests = kMostRequests,
                                   .max_logprobs = static_cast<int32_t>(std::min(logprobs, vocab)),
                                   .end_tokens = options_.end_tokens,
                                   .has_grammars = true,
                                   .has_extras = true,
                                   .max_frame_bytes = kMostMessageBytes});
  if (vllm::FitOf(facts.version) == vllm::VersionFit::kNewer) {
    remark_ = vllm::NewerThanKnown(facts);
  }
  has_adapters_ = facts.supports_lora;
  life_->sockets.input_watch.Use(ConnectionOf(frame));
  life_->phase = Phase::kPinged;
  life_->pinged_from = pinged_;
  ping_at_ = {};
  reason_ = "it has not answered yet";
}

void VllmLink::Hear(Clock::time_point now) {
  quiet_since_ = now;
  pings_ = 0;
  if (std::exchange(is_stalled_, false)) reason_ = remark_;
}

// Whether the engine owes something.
bool VllmLink::Waits() const {
  return IsIn(Phase::kReady) && (is_stalled_ || table_.taken_slots(options_.engine) > 0);
}

void VllmLink::CheckSilence(Clock::time_point now) {
  if (IsIn(Phase::kPinged) && now >= ping_at_) {
    ping_at_ = now + kPingEvery;
    Ping();
  }
  if (!Waits() || now < SilenceDeadline()) return;
  if (++pings_ >= kPingsBeforeStall && !is_stalled_) {
    is_stalled_ = true;
    reason_ = "it has said nothing for " + std::to_string(options_.stall_timeout.count()) + " ms";
    table_.GiveUp(options_.engine, "the engine " + options_.endpoint + ": " + reason_);
  }
  Ping();
}

void VllmLink::Ping() {
  vllm::WritePing(options_.client, ++pinged_, out_);
  Send(vllm::kUtilityFrame);
}

// The engine answers a ping that was sent over connections that are there still: over none it gets
// no answer.
void VllmLink::TakeAnswer() {
  if (!IsIn(Phase::kPinged) || !(outputs_.answered > life_->pinged_from)) return;
  if (!life_->sockets.output_watch.Use(ConnectionOf(frames_[0]))) return;
  life_->phase = Phase::kReady;
  reason_ = remark_;
}

EngineConnection::Clock::time_point VllmLink::SilenceDeadline() const {
  return quiet_since_ + options_.stall_timeout * (pings_ + 1) / kPingsBeforeStall;
}

EngineConnection::Clock::time_point VllmLink::Deadline() const {
  const Clock::time_point of_port =
      reads_port() ? options_.port->Deadline() : Clock::time_point::max();
  return std::min(of_port, LifeDeadline());
}

EngineConnection::Clock::time_point VllmLink::LifeDeadline() const {
  if (IsIn(Phase::kPinged)) return ping_at_;
  if (IsIn(Phase::kEnding)) return life_->ends_at;
  if (IsIn(Phase::kReady) && life_->is_unreachable) return last_turn_;
  return Waits() ? SilenceDeadline() : Clock::time_point::max();
}

bool VllmLink::HasInput() {
  // Each of them is read, whatever those before it say.
  bool has_input = (reads_port() && options_.port->HasInput()) || has_message_;
  if (!life_.has_value()) return has_input;
  ForEachSocket([&](zmq::socket_t& socket) { has_input = link::HasInput(socket) || has_input; });
  return has_input;
}

void VllmLink::AppendPollItems(std::vector<zmq_pollitem_t>& items) {
  if (reads_port()) options_.port->AppendPollItems(items);
  items.push_back({nullptr, news_fd(), ZMQ_POLLIN, 0});
  if (!life_.has_value()) return;
  ForEachSocket(
      [&](zmq::socket_t& socket) { items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0}); });
}

}  // namespace sluice::link
