#include "link/vllm/vllm_link.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "link/sockets.h"
#include "link/vllm/engine_core_request.h"
#include "link/vllm/handshake.h"
#include "support/check.h"

namespace sluice::link {
namespace {

constexpr std::string_view kScheme = "vllm+tcp://";
constexpr int64_t kMostMessageBytes = int64_t{1} << 30;  // more end the connection
constexpr size_t kMostFrames = 1 << 16;
constexpr int kMessagesAtOnce = 256;
constexpr int kPingsBeforeStall = 4;
constexpr std::chrono::milliseconds kPingLostEvery{250};
constexpr int kAbortsLinger = 200;  // milliseconds
constexpr size_t kAbortsAtOnce = 256;
constexpr size_t kSmallFrame = 16384;  // of so many aborts
// vLLM keeps as many as come, in the order in which they did.
constexpr int32_t kMostRequests = 1 << 16;
// What vLLM's own frontend allows, unless it is told otherwise; an engine does not tell.
constexpr int32_t kMostLogprobs = 20;

std::string_view BytesOf(const zmq::message_t& message) {
  return {static_cast<const char*>(message.data()), message.size()};
}

// A whole message, of which at most so many parts are kept. False: there is none.
bool ReceiveAll(zmq::socket_t& socket, std::vector<zmq::message_t>& frames) {
  frames.clear();
  zmq::message_t frame;
  if (!Receive(socket, frame)) return false;
  while (true) {
    const bool has_more = frame.more();
    if (frames.size() <= kMostFrames) frames.push_back(std::move(frame));
    if (!has_more) return true;
    frame.rebuild();
    if (!Receive(socket, frame)) return true;
  }
}

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
    ThrowEndpoint(endpoint, "the engine is told this one, so it cannot be all of them");
  }
  return "tcp://" + std::string(host);
}

}  // namespace

VllmLink::VllmLink(zmq::context_t& context, VllmLinkOptions options, RequestTable& table)
    : context_(context),
      options_(std::move(options)),
      table_(table),
      host_(HostOf(options_.endpoint)),
      reason_("no vLLM engine has said hello there") {
  last_turn_ = Clock::now();
  out_.reserve(kSmallFrame);
  Listen();
}

VllmLink::~VllmLink() {
  // Its reader goes first, and an event without one would keep the context from ending.
  if (life_.has_value()) zmq_socket_monitor(life_->input.handle(), nullptr, 0);
  if (health() != EngineHealth::kReady) return;
  try {
    life_->input.set(zmq::sockopt::linger, kAbortsLinger);
    table_.GiveUp(options_.engine, "the frontend ends");
    SendAborts();
  } catch (const std::exception&) {  // no memory: it computes them for nobody
  }
}

EngineHealth VllmLink::health() const {
  if (!IsIn(Phase::kReady)) return EngineHealth::kConnecting;
  return is_stalled_ ? EngineHealth::kStalled : EngineHealth::kReady;
}

zmq::socket_t VllmLink::Bind(zmq::socket_type type, const std::string& address) const {
  zmq::socket_t socket(context_, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::maxmsgsize, kMostMessageBytes);
  socket.set(zmq::sockopt::ipv6, host_.find('[') != std::string::npos);
  // An engine that is started again has the identity of the one before.
  if (type == zmq::socket_type::router) socket.set(zmq::sockopt::router_handover, true);
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
    handshake_ = Bind(zmq::socket_type::router, address);
  } catch (const zmq::error_t& error) {
    ThrowEndpoint(options_.endpoint, error.what());
  }
  Watch(options_.epoll_fd, handshake_, true);
}

bool VllmLink::Turn(Clock::time_point now) {
  // Behind a pause nothing can have been heard, so it says nothing of the engine.
  if (now - last_turn_ > options_.stall_timeout / 2) {
    quiet_since_ = std::min(now, quiet_since_ + (now - last_turn_));
  }
  last_turn_ = now;
  ReadGreetings(now);
  ReadEvents(now);
  const bool has_more = ReadOutputs(now);
  CheckSilence(now);
  return has_more && life_.has_value();
}

void VllmLink::ReadGreetings(Clock::time_point now) {
  std::vector<zmq::message_t> parts;
  while (ReceiveAll(handshake_, parts)) {
    vllm::Greeting greeting;
    const bool is_good =
        parts.size() == 2 && vllm::ReadGreeting(BytesOf(parts[1]), greeting).empty();
    if (!is_good) {
      ++table_.counters.malformed_frames;
    } else if (BytesOf(parts[0]) != vllm::kIdentity || !greeting.is_headless) {
      ++table_.counters.foreign_frames;
      if (!life_.has_value()) {
        reason_ = "an engine said hello that is not headless, or one of several of another rank";
      }
    } else if (greeting.is_hello) {
      if (life_.has_value()) {
        while (ReadOutputs(now)) {
        }
        EndLife("an engine has been started in its place");
      }
      BeginLife();
    }
  }
}

void VllmLink::BeginLife() {
  try {
    zmq::socket_t input = Bind(zmq::socket_type::router, host_ + ":*");
    zmq::socket_t monitor = OpenMonitor(
        context_, input,
        "inproc://vllm-" + std::to_string(options_.engine) + "-" + std::to_string(++lives_),
        ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
    zmq::socket_t output = Bind(zmq::socket_type::pull, host_ + ":*");
    vllm::WriteAddresses(input.get(zmq::sockopt::last_endpoint),
                         output.get(zmq::sockopt::last_endpoint), out_);
    for (zmq::socket_t* const socket : {&input, &monitor, &output}) {
      Watch(options_.epoll_fd, *socket, true);
    }
    life_ = Life{std::move(input), std::move(monitor), std::move(output)};
  } catch (const zmq::error_t& error) {  // no file descriptor left, say
    reason_ = error.what();
    return;
  }
  link::Send(handshake_, vllm::kIdentity, ZMQ_SNDMORE);
  link::Send(handshake_, out_);
  reason_ = "it loads its model";
}

void VllmLink::EndLife(std::string_view reason) {
  if (!life_.has_value()) return;
  reason_.assign(reason);
  const std::string lost = "the engine " + options_.endpoint + ": " + reason_;
  // From here on nothing takes memory: nobody may be forgotten.
  for (zmq::socket_t* const socket : {&life_->input, &life_->monitor, &life_->output}) {
    Watch(options_.epoll_fd, *socket, false);
  }
  zmq_socket_monitor(life_->input.handle(), nullptr, 0);
  life_.reset();
  has_message_ = is_stalled_ = false;
  left_there_.clear();
  translation_ = {};
  table_.Lose(options_.engine, lost);
}

// The engine's requests end, and it is to abort them where it is there all the same.
void VllmLink::LoseConnection(Clock::time_point now) {
  reason_ = "the connection was lost";
  table_.GiveUp(options_.engine, "the engine " + options_.endpoint + ": " + reason_);
  life_->is_gone = false;
  life_->phase = Phase::kLost;
  life_->lost_at = pinged_;
  ping_at_ = now;
  is_stalled_ = false;
}

// Of all that may connect to the input it is the engine that counts.
void VllmLink::ReadEvents(Clock::time_point now) {
  if (!life_.has_value()) return;
  std::vector<int32_t> gone;
  ReadMonitor(life_->monitor, [&](uint16_t event, int32_t connection) {
    std::erase(gone, connection);
    if (event == ZMQ_EVENT_ACCEPTED) {
      life_->accepted = connection;
    } else {
      gone.push_back(connection);
    }
  });
  ReadInput(now);  // what it said before that
  if (!IsIn(Phase::kReady)) return;
  life_->is_gone = life_->is_gone || std::ranges::find(gone, life_->connection) != gone.end();
  if (!life_->is_gone) return;
  // What an engine said before its end is read before its end is noticed.
  while (ReadOutputs(now)) {
  }
  if (IsIn(Phase::kReady)) LoseConnection(now);
}

// The engine says one thing there, when it has loaded its model.
void VllmLink::ReadInput(Clock::time_point now) {
  std::vector<zmq::message_t> parts;
  while (life_.has_value() && ReceiveAll(life_->input, parts)) {
    const bool is_its = parts.size() == 2 && BytesOf(parts[0]) == vllm::kIdentity;
    if (!is_its || !IsIn(Phase::kLoading)) {
      ++table_.counters.foreign_frames;
      continue;
    }
    life_->connection = zmq_msg_get(parts[1].handle(), ZMQ_SRCFD);
    TakeFacts(BytesOf(parts[1]), now);
  }
}

void VllmLink::TakeFacts(std::string_view bytes, Clock::time_point now) {
  vllm::EngineFacts facts;
  const std::string why = vllm::ReadEngineFacts(bytes, facts);
  if (!why.empty()) {
    ++table_.counters.malformed_frames;
    return EndLife("what it says of itself cannot be read: " + why);
  }
  if (!vllm::IsKnownVersion(facts.version)) {
    return EndLife("it is vLLM " + facts.version + ", and what is spoken here is vLLM 0.33");
  }
  if (facts.data_parallel_size != 1) {
    return EndLife("it is one of " + ToText(facts.data_parallel_size) +
                   " that share requests: start it with --data-parallel-size 1");
  }
  const int64_t vocab = table_.tokenizer().size();
  table_.SetInfo(options_.engine, {.version = "vLLM " + facts.version,
                                   .vocab = vocab,
                                   .context = facts.context,
                                   .max_requests = facts.max_requests,
                                   .max_client_requests = kMostRequests,
                                   .max_logprobs = kMostLogprobs,
                                   .end_tokens = options_.end_tokens,
                                   .max_frame_bytes = kMostMessageBytes});
  life_->phase = Phase::kReady;
  reason_.clear();
  Hear(now);
}

bool VllmLink::ReadOutputs(Clock::time_point now) {
  for (int left = kMessagesAtOnce; left > 0; --left) {
    if (!life_.has_value()) return false;
    if (!has_message_ && !ReceiveAll(life_->output, frames_)) return false;
    if (!has_message_) taken_outputs_ = 0;
    has_message_ = true;  // and is read again where there is no memory for what it says
    TakeMessage(now);
    has_message_ = false;
  }
  return true;
}

void VllmLink::TakeMessage(Clock::time_point now) {
  std::vector<std::string_view> views;
  for (const zmq::message_t& frame : frames_) views.push_back(BytesOf(frame));
  if (views.size() == 1 && views[0] == vllm::kDead) {
    return EndLife("it has failed; its log says why");
  }
  const std::string why =
      views.size() > kMostFrames ? "too many frames" : vllm::ReadOutputs(views, outputs_);
  if (!why.empty()) {  // nobody knows whose tokens they were
    ++table_.counters.malformed_frames;
    table_.GiveUp(options_.engine,
                  "the engine " + options_.endpoint + ": outputs that cannot be read: " + why);
    return;
  }
  Hear(now);
  if (IsIn(Phase::kLost) && outputs_.answered > life_->lost_at) {
    life_->phase = Phase::kReady;
    life_->connection = life_->accepted;
    reason_.clear();
  }
  TakeOutputs();
}

void VllmLink::TakeOutputs() {
  for (; taken_outputs_ < outputs_.outputs.size(); ++taken_outputs_) {
    TakeOutput(outputs_.outputs[taken_outputs_]);
  }
}

void VllmLink::TakeOutput(const vllm::EngineCoreOutput& output) {
  OutputRow row;
  left_there_.reserve(left_there_.size() + 1);
  if (!translation_.Translate(output, row)) {
    // Most often of a request that was aborted.
    ++table_.counters.stale_rows;
    table_.counters.stale_tokens += std::ssize(output.ids);
    return;
  }
  if (translation_.is_left_there()) left_there_.push_back(row.address);
  table_.Take(options_.engine, row);
}

void VllmLink::Hear(Clock::time_point now) {
  quiet_since_ = now;
  pings_ = 0;
  is_stalled_ = false;
}

// Whether the engine owes something.
bool VllmLink::Waits() const {
  return IsIn(Phase::kReady) && (is_stalled_ || table_.taken_slots(options_.engine) > 0);
}

void VllmLink::CheckSilence(Clock::time_point now) {
  if (IsIn(Phase::kLost) && now >= ping_at_) {
    ping_at_ = now + kPingLostEvery;
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
  Send(vllm::kUtility);
}

EngineConnection::Clock::time_point VllmLink::SilenceDeadline() const {
  return quiet_since_ + options_.stall_timeout * (pings_ + 1) / kPingsBeforeStall;
}

EngineConnection::Clock::time_point VllmLink::Deadline() const {
  if (IsIn(Phase::kLost)) return ping_at_;
  return Waits() ? SilenceDeadline() : Clock::time_point::max();
}

void VllmLink::SendRequest(const EngineRequest& request, Clock::time_point now) {
  vllm::CheckRequest(request);
  if (table_.taken_slots(options_.engine) == 1) {  // it is the only one
    quiet_since_ = now;
    pings_ = 0;
  }
  const std::chrono::duration<double> since_1970 =
      std::chrono::system_clock::now().time_since_epoch();
  vllm::WriteAdd(request, since_1970.count(), out_);
  translation_.Begin(request);
  Send(vllm::kAdd);
}

void VllmLink::SendAborts() {
  const std::span<const RequestAddress> aborts = table_.TakeAborts(options_.engine);
  if (IsIn(Phase::kLost)) return LeaveThere(aborts);
  if (!IsIn(Phase::kReady)) return;
  for (size_t begin = 0; begin < aborts.size(); begin += kAbortsAtOnce) {
    const size_t count = std::min(aborts.size() - begin, kAbortsAtOnce);
    try {
      vllm::WriteAbort(aborts.subspan(begin, count), out_);
      Send(vllm::kAbort);
    } catch (const std::bad_alloc&) {
      return table_.KeepAborts(options_.engine, aborts.subspan(begin));
    }
    for (const RequestAddress& address : aborts.subspan(begin, count)) EndThere(address);
  }
  if (left_there_.empty()) return;
  try {
    vllm::WriteAbort(left_there_, out_);
    Send(vllm::kAbort);
    left_there_.clear();
  } catch (const std::bad_alloc&) {  // with the next ones
  }
}

// They are aborted when the engine is there again, if it is the same one.
void VllmLink::LeaveThere(std::span<const RequestAddress> aborts) {
  try {
    left_there_.insert(left_there_.end(), aborts.begin(), aborts.end());
  } catch (const std::bad_alloc&) {
    return table_.KeepAborts(options_.engine, aborts);
  }
  for (const RequestAddress& address : aborts) EndThere(address);
}

void VllmLink::EndThere(const RequestAddress& address) {
  if (!translation_.End(address)) return;
  table_.Take(options_.engine, {.address = address, .end = GenerationEnd::kCancelled});
}

// Without a high-water mark nothing has to wait. What goes to an engine that is gone is lost with
// its requests. The parts in front are so short that they take no memory, so none goes alone.
void VllmLink::Send(std::string_view kind) {
  zmq_msg_t message;
  if (zmq_msg_init_size(&message, out_.size()) != 0) throw std::bad_alloc();
  std::memcpy(zmq_msg_data(&message), out_.data(), out_.size());
  const bool is_there = link::Send(life_->input, vllm::kIdentity, ZMQ_SNDMORE) &&
                        link::Send(life_->input, kind, ZMQ_SNDMORE) &&
                        link::Send(life_->input, message);
  if (!is_there) zmq_msg_close(&message);
}

bool VllmLink::HasInput() {
  bool has_input = link::HasInput(handshake_) || has_message_;
  if (!life_.has_value()) return has_input;
  // Each of them is asked, whatever those before it say.
  for (zmq::socket_t* const socket : {&life_->input, &life_->monitor, &life_->output}) {
    has_input = link::HasInput(*socket) || has_input;
  }
  return has_input;
}

void VllmLink::AppendPollItems(std::vector<zmq_pollitem_t>& items) {
  items.push_back({handshake_.handle(), 0, ZMQ_POLLIN, 0});
  if (!life_.has_value()) return;
  for (zmq::socket_t* const socket : {&life_->input, &life_->monitor, &life_->output}) {
    items.push_back({socket->handle(), 0, ZMQ_POLLIN, 0});
  }
}

}  // namespace sluice::link
