// Messages to an engine and from it while it is connected: vllm_link.cc has when that is.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "link/sockets.h"
#include "link/vllm/engine_core_request.h"
#include "link/vllm/handshake.h"
#include "link/vllm/messages.h"
#include "link/vllm/vllm_link.h"
#include "support/check.h"

namespace sluice::link {
namespace {

using std::chrono::milliseconds;

constexpr int kMessagesAtOnce = 256;
constexpr size_t kAbortsAtOnce = 256;
// What is on its way when an abort is sent comes within this time; an engine that goes on
// afterwards has not got the abort.
constexpr milliseconds kOrphanPatience{250};
// No engine computes a token more slowly: one that comes later starts another abort.
constexpr milliseconds kOrphansForgotten{10'000};

}  // namespace

bool VllmLink::ReadOutputs(Clock::time_point now) {
  for (int left = kMessagesAtOnce; left > 0; --left) {
    if (!life_.has_value()) return false;
    if (!has_message_ && !ReceiveAll(life_->sockets.output, frames_)) return false;
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
  if (!why.empty()) {  // the tokens could be of any request
    ++table_.counters.malformed_frames;
    table_.GiveUp(options_.engine,
                  "the engine " + options_.endpoint + ": outputs that cannot be read: " + why);
    return;
  }
  Hear(now);
  TakeAnswer();
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
    if (!output.finish.has_value()) NoteOrphan(output.request_id);
    ++table_.counters.stale_rows;
    table_.counters.stale_tokens += std::ssize(output.ids);
    return;
  }
  if (translation_.is_left_there()) left_there_.push_back(row.address);
  table_.Take(options_.engine, row);
}

// No request here has this id. The first such output starts the time in which that is usual, and
// what still comes after it is aborted.
void VllmLink::NoteOrphan(std::string_view request_id) {
  if (!request_id.starts_with(vllm::kIdPrefix) || request_id.size() > vllm::kMostIdBytes) return;
  const bool is_first = orphans_from_ == Clock::time_point{};
  if (is_first || last_turn_ > orphan_at_ + kOrphansForgotten) {
    orphans_from_ = last_turn_ + kOrphanPatience;
  }
  orphan_at_ = last_turn_;
  if (last_turn_ < orphans_from_ || orphans_.size() >= kAbortsAtOnce) return;
  if (std::ranges::find(orphans_, request_id) == orphans_.end()) orphans_.emplace_back(request_id);
}

void VllmLink::SendRequest(const EngineRequest& request, Clock::time_point now) {
  vllm::CheckRequest(request);
  const vllm::WrittenAdapter adapter = AdapterOf(request);
  const std::chrono::duration<double> since_1970 =
      std::chrono::system_clock::now().time_since_epoch();
  vllm::WriteAdd(request, translation_.life(), options_.client, adapter, since_1970.count(), out_);
  translation_.Begin(request);
  if (!Send(vllm::kAddFrame)) {
    translation_.End(request.address);
    life_->is_unreachable = true;
    throw Error(ErrorCode::kUnavailable, "engine", ToText(std::string_view(options_.endpoint)),
                "one that is connected: the connection has just been lost");
  }
  if (table_.taken_slots(options_.engine) == 1) {  // it is the only one
    quiet_since_ = now;
    pings_ = 0;
  }
}

// Its number is its place, which is the same for all clients.
vllm::WrittenAdapter VllmLink::AdapterOf(const EngineRequest& request) const {
  const std::string& name = request.extras.adapter;
  if (name.empty()) return {};
  const auto found = std::ranges::find(options_.adapters, name, &LoraAdapter::name);
  if (found == options_.adapters.end()) {
    ThrowInvalid("adapter", ToText(std::string_view(name)), "one of those that were given");
  }
  if (!has_adapters_) {
    ThrowInvalid("adapter", ToText(std::string_view(name)),
                 "none: the engine was started without --enable-lora");
  }
  return {.name = found->name,
          .path = found->path,
          .number = static_cast<int32_t>(found - options_.adapters.begin()) + 1};
}

void VllmLink::SendAborts() {
  const std::span<const RequestAddress> aborts = table_.TakeAborts(options_.engine);
  if (!life_.has_value()) return;
  if (!IsIn(Phase::kReady)) return LeaveThere(aborts);
  for (size_t begin = 0; begin < aborts.size(); begin += kAbortsAtOnce) {
    const size_t count = std::min(aborts.size() - begin, kAbortsAtOnce);
    try {
      vllm::WriteAbort(aborts.subspan(begin, count), translation_.life(), out_);
      if (!Send(vllm::kAbortFrame)) return LeaveThere(aborts.subspan(begin));
    } catch (const std::bad_alloc&) {
      return table_.KeepAborts(options_.engine, aborts.subspan(begin));
    }
    for (const RequestAddress& address : aborts.subspan(begin, count)) EndThere(address);
  }
  try {
    SendOrphans();
  } catch (const std::bad_alloc&) {  // with the next ones
  }
}

// Aborts requests that have ended here before, or that never existed here.
void VllmLink::SendOrphans() {
  if (!left_there_.empty()) {
    vllm::WriteAbort(left_there_, translation_.life(), out_);
    if (Send(vllm::kAbortFrame)) left_there_.clear();
  }
  if (!orphans_.empty()) {
    vllm::WriteAbort(orphans_, out_);
    if (!Send(vllm::kAbortFrame)) return;
    orphans_.clear();
    orphans_from_ = {};
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

// Without a high-water mark nothing has to wait. The parts in front are so short that they take no
// memory, so none goes alone.
bool VllmLink::Send(std::string_view kind) {
  zmq_msg_t message;
  if (zmq_msg_init_size(&message, out_.size()) != 0) throw std::bad_alloc();
  std::memcpy(zmq_msg_data(&message), out_.data(), out_.size());
  const bool is_there = link::Send(life_->sockets.input, identity_, ZMQ_SNDMORE) &&
                        link::Send(life_->sockets.input, kind, ZMQ_SNDMORE) &&
                        link::Send(life_->sockets.input, message);
  if (!is_there) zmq_msg_close(&message);
  return is_there;
}

}  // namespace sluice::link
