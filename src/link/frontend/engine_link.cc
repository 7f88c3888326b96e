#include "link/frontend/engine_link.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "link/sockets.h"
#include "support/check.h"

namespace sluice::link {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{50};
constexpr milliseconds kLongestBackOff{2000};
constexpr int kByeLingers = 200;                       // milliseconds
constexpr int64_t kMostFrameBytes = int64_t{1} << 28;  // more end the connection
constexpr int kPingsBeforeStall = 4;
constexpr std::chrono::seconds kMeasureEvery{10};
// A frame that has no request needs no memory, whatever happens: this is there from the beginning.
constexpr size_t kSmallFrame = 4096;
constexpr size_t kAbortsAtOnce = 256;  // of ten bytes each, at most

EngineLink::Clock::duration BackOff(int failures) {
  if (failures <= 1) return {};
  return std::min(kFirstBackOff * (1 << std::min(failures - 2, 10)), kLongestBackOff);
}

}  // namespace

EngineLink::EngineLink(zmq::context_t& context, EngineLinkOptions options, RequestTable& table)
    : context_(context),
      options_(std::move(options)),
      table_(table),
      reason_("nothing listens there") {
  last_turn_ = Clock::now();
  out_.reserve(kSmallFrame);
  Open();
}

EngineLink::~EngineLink() { Close(true); }

EngineHealth EngineLink::health() const {
  if (phase_ == Phase::kGivenUp) return EngineHealth::kDead;
  if (phase_ != Phase::kReady) return EngineHealth::kConnecting;
  return is_stalled_ ? EngineHealth::kStalled : EngineHealth::kReady;
}

void EngineLink::Open() {
  zmq::socket_t socket(context_, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 2 * options_.credits + 64);  // for one that ignores credits
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 1000);
  socket.set(zmq::sockopt::maxmsgsize, kMostFrameBytes);
  // For machines that vanish. A process that is stopped has the time that a stall has.
  const auto stall = static_cast<int>(options_.stall_timeout.count());
  socket.set(zmq::sockopt::heartbeat_ivl, std::max(stall / 4, 1));
  socket.set(zmq::sockopt::heartbeat_timeout, 2 * stall);

  const std::string address =
      "inproc://monitor-" + std::to_string(options_.engine) + "-" + std::to_string(++tries_);
  zmq::socket_t monitor = OpenMonitor(context_, socket, address,
                                      ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  if (zmq_connect(socket.handle(), options_.endpoint.c_str()) != 0) {
    throw Error(ErrorCode::kInvalidValue, "endpoint", ToText(std::string_view(options_.endpoint)),
                std::string("ipc://PATH or tcp://HOST:PORT: ").append(zmq_strerror(zmq_errno())));
  }
  Watch(options_.epoll_fd, socket, true);
  Watch(options_.epoll_fd, monitor, true);
  connection_ = Connection{std::move(socket), std::move(monitor)};
  phase_ = Phase::kConnecting;
}

void EngineLink::Close(bool says_bye) {
  if (!connection_.has_value()) return;
  if (says_bye && phase_ == Phase::kReady) {
    connection_->socket.set(zmq::sockopt::linger, kByeLingers);
    WriteEmpty(NextHead(FrameType::kBye), out_);
    Send();
  }
  Watch(options_.epoll_fd, connection_->socket, false);
  Watch(options_.epoll_fd, connection_->monitor, false);
  zmq_socket_monitor(connection_->socket.handle(), nullptr, 0);
  connection_.reset();
  has_message_ = has_disconnected_ = false;
  phase_ = Phase::kClosed;
}

void EngineLink::Restart(std::string_view reason, bool says_bye, Clock::time_point now) {
  reason_.assign(reason);
  const std::string lost = "the engine " + options_.endpoint + ": " + reason_;
  Close(says_bye);  // from here on nothing takes memory: no request may be forgotten
  is_stalled_ = false;
  retry_at_ = now + BackOff(++failures_);
  table_.Lose(options_.engine, lost);
}

void EngineLink::Reset(std::string_view reason, Clock::time_point now) {
  ++table_.counters.resets;
  Restart(reason, true, now);
}

void EngineLink::GiveUp(std::string_view reason) {
  reason_.assign(reason);
  Close(true);
  phase_ = Phase::kGivenUp;
}

void EngineLink::Reopen(Clock::time_point now) {
  try {
    Open();
  } catch (const zmq::error_t& error) {  // no file descriptor left, say
    reason_ = error.what();
    retry_at_ = now + BackOff(++failures_);
  }
}

bool EngineLink::Turn(Clock::time_point now) {
  // While this thread paused it received nothing, so a pause is not silence of the engine.
  if (now - last_turn_ > options_.stall_timeout / 2) {
    quiet_since_ = std::min(now, quiet_since_ + (now - last_turn_));
  }
  last_turn_ = now;
  if (phase_ == Phase::kClosed && now >= retry_at_) Reopen(now);
  if (!connection_.has_value()) return false;

  const Events events = ReadEvents();
  if (events.has_connected && phase_ == Phase::kConnecting) {
    phase_ = Phase::kGreeting;
    greeted_at_ = now;
    epoch_ = number_out_ = number_in_ = 0;
    reason_ = "it does not answer";
    WriteHello(NextHead(FrameType::kHello),
               {.name = "sluice", .pid = getpid(), .credits = options_.credits}, out_);
    Send();
  }
  has_disconnected_ = has_disconnected_ || events.has_disconnected;
  // The last frames of an engine are read before its end is noticed.
  const bool has_more = ReadFrames(now);
  const bool is_connected = phase_ == Phase::kGreeting || phase_ == Phase::kReady;
  if (has_disconnected_ && is_connected) {
    while (ReadFrames(now)) {
    }
    if (connection_.has_value()) Restart("the connection was lost", false, now);
  }
  has_disconnected_ = false;
  CheckSilence(now);
  MeasureRoundTrip(now);
  return has_more && connection_.has_value();
}

EngineLink::Events EngineLink::ReadEvents() {
  Events events;
  ReadMonitor(connection_->monitor, [&](uint16_t event, int32_t) {
    events.has_connected = events.has_connected || event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    events.has_disconnected = events.has_disconnected || event == ZMQ_EVENT_DISCONNECTED;
  });
  return events;
}

// An engine that keeps to its credits never has more on its way.
bool EngineLink::ReadFrames(Clock::time_point now) {
  for (int64_t left = 2 * int64_t{options_.credits} + 64; left > 0; --left) {
    if (!connection_.has_value()) return false;
    if (!has_message_ && !Receive(connection_->socket, message_)) return false;
    has_message_ = true;  // and is read again where there is no memory for what it says
    if (message_.more()) {
      ++table_.counters.malformed_frames;
      Reset("a frame in several parts", now);
      return false;
    }
    TakeFrame({static_cast<const char*>(message_.data()), message_.size()}, now);
    has_message_ = false;
  }
  return true;
}

void EngineLink::TakeFrame(std::string_view bytes, Clock::time_point now) {
  const std::string error = ReadEngineFrame(bytes, frame_);
  if (!error.empty()) {
    ++table_.counters.malformed_frames;
    Reset("a frame that cannot be read: " + error, now);
    return;
  }
  const FrameType type = frame_.head.type;
  const bool is_ready = phase_ == Phase::kReady;
  const bool is_foreign = is_ready ? frame_.head.epoch != epoch_
                                   : phase_ != Phase::kGreeting || type == FrameType::kOutput ||
                                         type == FrameType::kPong;
  if (is_foreign) {
    ++table_.counters.foreign_frames;
  } else if (type == FrameType::kReset) {
    Reset(frame_.reason, now);
  } else if (type == FrameType::kDead) {
    Restart(frame_.reason, false, now);
  } else if (is_ready) {
    TakeNumbered(now);
  } else {
    TakeReady(now);
  }
}

// Takes a frame of this epoch, on a link that is ready.
void EngineLink::TakeNumbered(Clock::time_point now) {
  if (frame_.head.number < number_in_) {
    ++table_.counters.repeated_frames;
    return;
  }
  if (frame_.head.number > number_in_) {
    Reset("frames are missing", now);
    return;
  }
  ++number_in_;
  failures_ = 0;
  quiet_since_ = now;
  pings_ = 0;
  is_stalled_ = false;
  if (frame_.head.type == FrameType::kOutput) {
    TakeOutput();
  } else if (frame_.head.type == FrameType::kPong) {
    TakePong(now);
  } else if (frame_.head.type == FrameType::kReady) {
    ++table_.counters.malformed_frames;
    Reset("a second READY", now);
  }
}

void EngineLink::TakeOutput() {
  table_.SetStep(options_.engine, frame_.step);
  for (const OutputRow& row : frame_.rows) table_.Take(options_.engine, row);
  if (2 * ++credits_owed_ < options_.credits) return;
  WriteCredit(NextHead(FrameType::kCredit), credits_owed_, out_);
  Send();
  credits_owed_ = 0;
}

void EngineLink::TakeReady(Clock::time_point now) {
  const Ready& ready = frame_.ready;
  if (ready.protocol != kProtocol) {
    GiveUp("it speaks protocol " + std::to_string(ready.protocol) + ", not " +
           std::to_string(kProtocol));
    return;
  }
  const EngineInfo& info = ready.info;
  if (frame_.head.epoch == 0 || frame_.head.number != 0 || info.vocab < 1 ||
      info.vocab > INT32_MAX || info.context < 2 || info.max_client_requests < 1 ||
      info.max_frame_bytes < 1) {
    ++table_.counters.malformed_frames;
    Reset("a READY that cannot be", now);
    return;
  }
  // An engine without text has nothing to compare.
  const bool has_hash = info.has_text || info.tokenizer_hash != 0;
  if (has_hash && info.tokenizer_hash != options_.tokenizer_hash) {
    GiveUp("its tokenizer is not this client's: their hashes are " +
           std::to_string(info.tokenizer_hash) + " and " + std::to_string(options_.tokenizer_hash));
    return;
  }
  phase_ = Phase::kReady;
  epoch_ = frame_.head.epoch;
  number_in_ = 1;
  credits_owed_ = 0;
  quiet_since_ = now;
  pings_ = 0;
  is_stalled_ = false;
  pongs_owed_ = 0;
  grammars_ = {};
  pinged_at_.reset();
  measure_at_ = now;
  reason_.clear();
  table_.SetInfo(options_.engine, info);
}

// Whether the engine owes something.
bool EngineLink::Waits() const {
  return phase_ == Phase::kReady && (is_stalled_ || table_.taken_slots(options_.engine) > 0);
}

void EngineLink::CheckSilence(Clock::time_point now) {
  if (phase_ == Phase::kGreeting && now >= Deadline()) Restart("it does not answer", true, now);
  if (!Waits() || now < SilenceDeadline()) return;
  if (++pings_ >= kPingsBeforeStall && !is_stalled_) {
    is_stalled_ = true;
    reason_ = "it has said nothing for " + std::to_string(options_.stall_timeout.count()) + " ms";
    table_.GiveUp(options_.engine, "the engine " + options_.endpoint + ": " + reason_);
  }
  Ping(now);
}

void EngineLink::MeasureRoundTrip(Clock::time_point now) {
  if (phase_ != Phase::kReady || now < measure_at_) return;
  if (pongs_owed_ == 0) Ping(now);
  measure_at_ = now + kMeasureEvery;
}

void EngineLink::Ping(Clock::time_point now) {
  WriteEmpty(NextHead(FrameType::kPing), out_);
  Send();
  if (pongs_owed_++ == 0) pinged_at_ = now;
}

void EngineLink::TakePong(Clock::time_point now) {
  pongs_owed_ = std::max(pongs_owed_ - 1, 0);
  grammars_ = frame_.grammars;
  if (!pinged_at_.has_value()) return;
  const auto trip = std::chrono::duration_cast<std::chrono::microseconds>(now - *pinged_at_);
  table_.counters.round_trips.Add(trip.count());
  pinged_at_.reset();
}

EngineLink::Clock::time_point EngineLink::SilenceDeadline() const {
  return quiet_since_ + options_.stall_timeout * (pings_ + 1) / kPingsBeforeStall;
}

EngineLink::Clock::time_point EngineLink::Deadline() const {
  if (phase_ == Phase::kClosed) return retry_at_;
  if (phase_ == Phase::kGreeting) return greeted_at_ + options_.hello_timeout;
  if (phase_ != Phase::kReady) return Clock::time_point::max();
  return Waits() ? std::min(measure_at_, SilenceDeadline()) : measure_at_;
}

void EngineLink::SendRequest(const EngineRequest& request, Clock::time_point now) {
  if (table_.taken_slots(options_.engine) == 1) {  // it is the only one
    quiet_since_ = now;
    pings_ = 0;
  }
  WriteAdd(NextHead(FrameType::kAdd), request, out_);
  // The engine would close the connection, and end the other requests with this one.
  const int64_t size = std::ssize(out_);
  if (const int64_t most = table_.info(options_.engine).max_frame_bytes; size > most) {
    out_.resize(std::min(out_.size(), kSmallFrame));
    out_.shrink_to_fit();
    ThrowInvalid("request", ToText(size) + " bytes for the engine",
                 "at most " + ToText(most) + " bytes: a shorter prompt, or shorter lists");
  }
  Send();
}

void EngineLink::SendAborts() {
  const std::span<const RequestAddress> aborts = table_.TakeAborts(options_.engine);
  if (phase_ != Phase::kReady) return;
  for (size_t begin = 0; begin < aborts.size(); begin += kAbortsAtOnce) {
    const size_t count = std::min(aborts.size() - begin, kAbortsAtOnce);
    try {
      WriteAbort(NextHead(FrameType::kAbort), aborts.subspan(begin, count), out_);
      Send();
    } catch (const std::bad_alloc&) {
      return table_.KeepAborts(options_.engine, aborts.subspan(begin));
    }
  }
}

FrameHead EngineLink::NextHead(FrameType type) const {
  return {.type = type, .epoch = epoch_, .number = number_out_};
}

// Without a high-water mark nothing has to wait. What goes to an engine that is gone is lost with
// its requests. A frame that was not written, or that there is no memory for, has taken no number.
void EngineLink::Send() {
  link::Send(connection_->socket, out_);
  ++number_out_;
}

bool EngineLink::HasInput() {
  if (!connection_.has_value()) return false;
  if (has_message_) return true;
  // Both are read, whatever the first one says.
  const bool has_frame = link::HasInput(connection_->socket);
  return link::HasInput(connection_->monitor) || has_frame;
}

void EngineLink::AppendPollItems(std::vector<zmq_pollitem_t>& items) {
  if (!connection_.has_value()) return;
  items.push_back({connection_->socket.handle(), 0, ZMQ_POLLIN, 0});
  items.push_back({connection_->monitor.handle(), 0, ZMQ_POLLIN, 0});
}

}  // namespace sluice::link
