// How an engine is found, lost and found again. The traffic in between: vllm_link_requests.
#include "link/vllm/vllm_link.h"

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

constexpr std::string_view kScheme = "vllm+tcp://";
constexpr int64_t kMostMessageBytes = int64_t{1} << 30;  // more end the connection
// The most bytes of greetings and facts, which have some hundred.
constexpr int64_t kMostSmallBytes = int64_t{64} << 10;
constexpr int kMostSmallMessages = 64;  // of a connection, that wait to be read
constexpr int kGreetingsAtOnce = 64;
constexpr int kPingsBeforeStall = 4;
constexpr milliseconds kPingEvery{250};
constexpr milliseconds kGreetAgainEvery{250};
constexpr int kAbortsLinger = 200;   // milliseconds
constexpr size_t kReserved = 16384;  // bytes of a message: of some hundred aborts
// vLLM keeps as many as come, in the order in which they did.
constexpr int32_t kMostRequests = 1 << 16;
// What vLLM's own frontend allows by default; an engine does not report it.
constexpr int32_t kMostLogprobs = 20;

[[noreturn]] void ThrowEndpoint(const std::string& endpoint, const std::string& why) {
  ThrowInvalid("endpoint", ToText(std::string_view(endpoint)),
               "vllm+tcp://ADDRESS:PORT, an address of this machine that the engine reaches, as a "
               "number: " +
                   why);
}

// "tcp://ADDRESS" of the endpoint.
std::string HostOf(const std::string& endpoint) {
  const std::string_view rest = std::string_view(endpoint).substr(kScheme.size());
  const size_t colon = rest.rfind(':');
  const std::string_view host = rest.substr(0, std::min(colon, rest.size()));
  if (colon == std::string_view::npos || host.empty()) ThrowEndpoint(endpoint, "it has no port");
  if (host == "*" || host == "0.0.0.0" || host == "[::]") {
    ThrowEndpoint(endpoint, "the engine connects to this one, so it cannot be all of them");
  }
  return "tcp://" + std::string(host);
}

// Empty where it is.
std::string WhyNotUsed(const vllm::EngineFacts& facts) {
  if (!vllm::IsKnownVersion(facts.version)) {
    return "it is vLLM " + facts.version + ", and what is spoken here is vLLM " +
           std::string(vllm::kKnownVersions);
  }
  if (facts.data_parallel_size != 1) {
    return "it is one of " + ToText(facts.data_parallel_size) +
           " that share requests: start it with --data-parallel-size 1, and each with an --engine "
           "of its own";
  }
  return {};
}

}  // namespace

VllmLink::VllmLink(zmq::context_t& context, VllmLinkOptions options, RequestTable& table)
    : context_(context),
      options_(std::move(options)),
      table_(table),
      host_(HostOf(options_.endpoint)),
      reason_("no vLLM engine has said hello there") {
  last_turn_ = Clock::now();
  out_.reserve(kReserved);
  Listen();
}

VllmLink::~VllmLink() {
  if (health() != EngineHealth::kReady) return;
  try {
    life_->input.set(zmq::sockopt::linger, kAbortsLinger);
    table_.GiveUp(options_.engine, "the frontend ends");
    SendAborts();
  } catch (const std::exception&) {  // no memory: it computes them for no reader
  }
}

EngineHealth VllmLink::health() const {
  if (!IsIn(Phase::kReady)) return EngineHealth::kConnecting;
  return is_stalled_ ? EngineHealth::kStalled : EngineHealth::kReady;
}

zmq::socket_t VllmLink::Bind(SocketKind kind, const std::string& address) const {
  zmq::socket_t socket(context_, kind.type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, kind.is_small ? kMostSmallMessages : 0);
  socket.set(zmq::sockopt::maxmsgsize, kind.is_small ? kMostSmallBytes : kMostMessageBytes);
  socket.set(zmq::sockopt::ipv6, host_.find('[') != std::string::npos);
  if (kind.type == zmq::socket_type::router) {
    // An engine that is started again has the identity of the one before.
    socket.set(zmq::sockopt::router_handover, true);
    // A message for a peer that is gone is refused in place of dropped.
    socket.set(zmq::sockopt::router_mandatory, true);
  }
  // For machines that vanish. A process that is stopped has the time that a stall has.
  const auto stall = static_cast<int>(options_.stall_timeout.count());
  socket.set(zmq::sockopt::heartbeat_ivl, std::max(stall / 4, 1));
  socket.set(zmq::sockopt::heartbeat_timeout, 2 * stall);
  socket.bind(address);
  return socket;
}

void VllmLink::Listen() {
  const std::string address = "tcp://" + options_.endpoint.substr(kScheme.size());
  try {
    handshake_ = Bind({.type = zmq::socket_type::router, .is_small = true}, address);
  } catch (const zmq::error_t& error) {
    ThrowEndpoint(options_.endpoint, error.what());
  }
  handshake_watch_.emplace(context_, handshake_, "inproc://vllm-" + std::to_string(options_.engine),
                           PeerWatch::Peers::kMany);
  Watch(options_.epoll_fd, handshake_, true);
  Watch(options_.epoll_fd, handshake_watch_->monitor(), true);
}

bool VllmLink::Turn(Clock::time_point now) {
  // While this thread paused it received nothing, so a pause is not silence of the engine.
  if (now - last_turn_ > options_.stall_timeout / 2) {
    quiet_since_ = std::min(now, quiet_since_ + (now - last_turn_));
  }
  last_turn_ = now;
  const bool has_greetings = ReadGreetings(now);
  if (is_greeted_ && now >= greeted_again_at_) BeginLife(now);
  ReadInput();
  ReadEvents(now);
  const bool has_outputs = ReadOutputs(now);
  // The monitor reports the end of a connection for outputs after the last of them.
  const bool has_said_all =
      IsIn(Phase::kEnding) && !has_outputs && !life_->output_watch.has_connection();
  if (has_said_all || (IsIn(Phase::kEnding) && now >= life_->ends_at)) EndConnection(now);
  CheckSilence(now);
  return has_greetings || has_outputs;
}

bool VllmLink::ReadGreetings(Clock::time_point now) {
  std::vector<zmq::message_t> parts;
  for (int left = kGreetingsAtOnce; left > 0; --left) {
    if (!ReceiveAll(handshake_, parts)) return false;
    TakeGreeting(parts, now);
  }
  return true;
}

void VllmLink::TakeGreeting(std::vector<zmq::message_t>& parts, Clock::time_point now) {
  vllm::Greeting greeting;
  if (parts.size() != 2 || !vllm::ReadGreeting(BytesOf(parts[1]), greeting).empty()) {
    ++table_.counters.malformed_frames;
    return;
  }
  const std::string_view identity = BytesOf(parts[0]);
  if (identity != vllm::kIdentity || !greeting.is_headless) {
    ++table_.counters.foreign_frames;
    if (greeting.is_hello) RefuseHello(identity, greeting.is_headless);
    return;
  }
  if (!greeting.is_hello) return;
  // The one before may have sent its last tokens.
  for (int left = kGreetingsAtOnce; left > 0 && ReadOutputs(now); --left) {
  }
  EndLife("an engine has been started in its place");
  handshake_watch_->Use(ConnectionOf(parts[1]));
  is_greeted_ = true;
  BeginLife(now);
}

// The process that started it waits for an answer, and does not get one: it is said here.
void VllmLink::RefuseHello(std::string_view identity, bool is_headless) {
  if (!is_headless) {
    reason_ = refused_ =
        "an engine that said hello there is not headless: start it with --headless";
    return;
  }
  const bool is_rank = identity.size() == vllm::kIdentity.size();
  const auto byte = [&](size_t i) { return int64_t{static_cast<uint8_t>(identity[i])}; };
  reason_ = "an engine that said hello there is " +
            (is_rank ? "of rank " + ToText(byte(0) + 256 * byte(1)) : "of no rank that is known") +
            ": each has a --data-parallel-size of 1, and an --engine of its own";
  refused_ = reason_;
}

// An engine says hello once, so where this fails it is tried again.
void VllmLink::BeginLife(Clock::time_point now) {
  greeted_again_at_ = now + kGreetAgainEvery;
  try {
    OpenLife();
  } catch (const zmq::error_t& error) {  // no file descriptor left, say
    reason_ = "an engine has said hello, and there are no sockets for it: ";
    reason_ += error.what();
    return;
  }
  is_greeted_ = false;
  reason_ = "it loads its model";
}

void VllmLink::OpenLife() {
  zmq::socket_t input = Bind({.type = zmq::socket_type::router, .is_small = true}, host_ + ":*");
  zmq::socket_t output = Bind({.type = zmq::socket_type::pull}, host_ + ":*");
  const std::string name =
      "inproc://vllm-" + std::to_string(options_.engine) + "-" + std::to_string(++lives_);
  PeerWatch input_watch(context_, input, name + "-input", PeerWatch::Peers::kOne);
  PeerWatch output_watch(context_, output, name + "-output", PeerWatch::Peers::kOne);
  vllm::WriteAddresses(input.get(zmq::sockopt::last_endpoint),
                       output.get(zmq::sockopt::last_endpoint), out_);
  translation_ = vllm::OutputTranslation(RandomSeed());
  life_.emplace(Life{.input = std::move(input),
                     .output = std::move(output),
                     .input_watch = std::move(input_watch),
                     .output_watch = std::move(output_watch)});
  ForEachSocket([this](zmq::socket_t& socket) { Watch(options_.epoll_fd, socket, true); });
  const bool is_there = link::Send(handshake_, vllm::kIdentity, ZMQ_SNDMORE);
  if (is_there) link::Send(handshake_, out_);
}

template <typename Visit>
void VllmLink::ForEachSocket(Visit visit) {
  for (zmq::socket_t* const socket : {&life_->input, &life_->input_watch.monitor(), &life_->output,
                                      &life_->output_watch.monitor()}) {
    visit(*socket);
  }
}

void VllmLink::EndLife(std::string_view reason) {
  is_greeted_ = false;
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
  handshake_watch_->TakeChange();
  if (!life_.has_value()) return;
  const bool has_input_changed = life_->input_watch.TakeChange() || life_->is_unreachable;
  const bool has_changed = life_->output_watch.TakeChange() || has_input_changed;
  life_->is_unreachable = false;
  if (IsIn(Phase::kLoading) && !handshake_watch_->has_connection()) {
    reason_ = "its connection ended while it loaded its model: its log says why";
  }
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
  for (int left = kGreetingsAtOnce; left > 0; --left) {
    if (!life_.has_value() || !ReceiveAll(life_->input, parts)) return;
    const bool is_its = parts.size() == 2 && BytesOf(parts[0]) == vllm::kIdentity;
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
  table_.SetInfo(options_.engine,
                 {.version = "vLLM " + facts.version,
                  .vocab = options_.vocab > 0 ? options_.vocab : table_.tokenizer().size(),
                  .context = facts.context,
                  .max_requests = facts.max_requests,
                  .max_client_requests = kMostRequests,
                  .max_logprobs = kMostLogprobs,
                  .end_tokens = options_.end_tokens,
                  .has_grammars = true,
                  .max_frame_bytes = kMostMessageBytes});
  life_->input_watch.Use(ConnectionOf(frame));
  life_->phase = Phase::kPinged;
  life_->pinged_from = pinged_;
  ping_at_ = {};
  reason_ = "it has not answered yet";
}

void VllmLink::Hear(Clock::time_point now) {
  quiet_since_ = now;
  pings_ = 0;
  if (std::exchange(is_stalled_, false)) reason_ = refused_;
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
  vllm::WritePing(++pinged_, out_);
  Send(vllm::kUtilityFrame);
}

// The engine answers a ping that was sent over connections that are there still: over none it gets
// no answer.
void VllmLink::TakeAnswer() {
  if (!IsIn(Phase::kPinged) || !(outputs_.answered > life_->pinged_from)) return;
  if (!life_->output_watch.Use(ConnectionOf(frames_[0]))) return;
  life_->phase = Phase::kReady;
  reason_ = refused_;
}

EngineConnection::Clock::time_point VllmLink::SilenceDeadline() const {
  return quiet_since_ + options_.stall_timeout * (pings_ + 1) / kPingsBeforeStall;
}

EngineConnection::Clock::time_point VllmLink::Deadline() const {
  if (is_greeted_) return greeted_again_at_;
  if (IsIn(Phase::kPinged)) return ping_at_;
  if (IsIn(Phase::kEnding)) return life_->ends_at;
  if (IsIn(Phase::kReady) && life_->is_unreachable) return last_turn_;
  return Waits() ? SilenceDeadline() : Clock::time_point::max();
}

bool VllmLink::HasInput() {
  bool has_input = link::HasInput(handshake_) || has_message_;
  // Each of them is read, whatever those before it say.
  has_input = link::HasInput(handshake_watch_->monitor()) || has_input;
  if (!life_.has_value()) return has_input;
  ForEachSocket([&](zmq::socket_t& socket) { has_input = link::HasInput(socket) || has_input; });
  return has_input;
}

void VllmLink::AppendPollItems(std::vector<zmq_pollitem_t>& items) {
  items.push_back({handshake_.handle(), 0, ZMQ_POLLIN, 0});
  items.push_back({handshake_watch_->monitor().handle(), 0, ZMQ_POLLIN, 0});
  if (!life_.has_value()) return;
  ForEachSocket(
      [&](zmq::socket_t& socket) { items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0}); });
}

}  // namespace sluice::link
