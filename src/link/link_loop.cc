#include "link/link_loop.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "support/number.h"
#include "support/random_seed.h"

namespace sluice::link {
namespace {

using Clock = std::chrono::steady_clock;

// Before outputs have their turn again.
constexpr int kMessagesAtOnce = 256;
constexpr int64_t kBytesAtOnce = 1 << 20;
constexpr std::chrono::milliseconds kWaitForStepLoop{1};
// The most bytes of rows in one OUTPUT. More go out in several: a frontend ends a connection that
// sends it a frame of 256 MiB.
constexpr size_t kMostRowBytes = size_t{1} << 20;

// A frontend chose it: as one short line.
std::string Printable(std::string_view name) {
  std::string text(name.substr(0, 40));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

EngineInfo WithLimit(EngineInfo info, const EngineServerOptions& options) {
  info.max_frame_bytes = static_cast<int64_t>(std::min<size_t>(options.max_frame_bytes, INT64_MAX));
  return info;
}

}  // namespace

LinkLoop::LinkLoop(const EngineServerOptions& options, EngineInfo info, int32_t max_clients,
                   Mailbox& mailbox)
    : options_(options),
      ready_{.info = WithLimit(std::move(info), options)},
      epoch_(RandomSeed() | 1),  // never 0, which is HELLO's
      mailbox_(mailbox),
      router_(options),
      log_(options.log),
      clients_(static_cast<size_t>(max_clients)) {}

void LinkLoop::Run() {
  try {
    while (!mailbox_.IsOver()) {
      const Router::Ready ready = Wait();
      const auto begin = Clock::now();
      if (ready.has_closed) TakeClosed();
      if (ready.is_woken) TakeBatches();
      if (ready.has_messages || router_.HasUnseen()) TakeMessages();
      RemoveLost();
      if (log_.owes()) log_.Tick();
      counters_.own_ns += std::chrono::nanoseconds(Clock::now() - begin).count();
      Publish();
    }
  } catch (const std::exception& error) {  // no memory, or what a hook has thrown
    ReportOwnEnd(error.what());
    mailbox_.Fail(std::current_exception());
  } catch (...) {
    ReportOwnEnd("an unknown exception");
    mailbox_.Fail(std::current_exception());
  }
}

// Whatever comes of the words: every frontend sees a socket that closes.
void LinkLoop::ReportOwnEnd(const char* reason) noexcept {
  try {
    for (const auto& client : clients_) {
      if (client == nullptr) continue;
      WriteReason(NextHead(FrameType::kDead, *client), reason, frame_);
      router_.Send(client->address, frame_);
    }
  } catch (...) {
  }
  router_.Close();
}

Router::Ready LinkLoop::Wait() {
  // Frames of frontends wait until the step loop has taken its commands.
  if (mailbox_.IsFull()) return Router::WaitForWake(mailbox_.wake_fd(), kWaitForStepLoop);
  return router_.Wait(mailbox_.wake_fd(), std::chrono::milliseconds(log_.owes() ? 1000 : -1));
}

LinkCounters LinkLoop::counters() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

void LinkLoop::Publish() {
  const std::lock_guard lock(mutex_);
  published_ = counters_;
}

// --- what comes --------------------------------------------------------------------------------

void LinkLoop::TakeClosed() {
  router_.TakeClosed([this](int fd) {
    const auto found = address_of_fd_.find(fd);
    if (found != address_of_fd_.end()) RemovePeer(std::string(found->second), "closed its socket");
  });
}

void LinkLoop::TakeMessages() {
  Router::Message message;
  const int64_t most_bytes = counters_.bytes_in + kBytesAtOnce;
  for (int i = 0; i < kMessagesAtOnce && counters_.bytes_in < most_bytes; ++i) {
    if (mailbox_.IsFull() || !router_.Receive(message)) return;
    ++counters_.frames_in;
    counters_.bytes_in += std::ssize(message.bytes);
    Peer* const peer = PeerOf(message);
    if (peer != nullptr) TakeFrame(*peer, message);
  }
}

// Null for the last words of a connection that has closed: nothing would report when it does.
LinkLoop::Peer* LinkLoop::PeerOf(const Router::Message& message) {
  std::string address(message.address);
  const auto found = peers_.find(address);
  if (found != peers_.end()) return &found->second;
  TakeClosed();
  if (!router_.HasConnection(message)) return nullptr;
  const auto old = address_of_fd_.find(message.fd);
  if (old != address_of_fd_.end()) {
    if (Router::IsOlder(address, old->second)) return nullptr;  // its number has another owner now
    // Two events may have been taken for one: the connection that had the number is closed.
    RemovePeer(std::string(old->second), "closed its socket");
  }
  address_of_fd_[message.fd] = address;
  Peer& peer = peers_[address];
  peer.address = std::move(address);
  peer.fd = message.fd;
  return &peer;
}

void LinkLoop::TakeFrame(Peer& peer, const Router::Message& message) {
  std::string failure;
  try {
    failure = message.has_one_part ? ReadFrontendFrame(message.bytes, read_)
                                   : "a message of several parts";
  } catch (const std::bad_alloc&) {
    failure = "no memory for it";
  }
  if (!failure.empty()) {
    ++counters_.malformed_frames;
    Reset(peer, failure);
  } else if (read_.head.type == FrameType::kHello) {
    TakeHello(peer);
  } else if (peer.client == nullptr || read_.head.epoch != epoch_) {
    ++counters_.foreign_frames;
    Reset(peer, peer.client == nullptr ? "no HELLO before it" : "a frame of another epoch");
  } else if (read_.head.number != peer.client->next_in) {
    ++counters_.foreign_frames;
    Reset(peer,
          "frame " + Number(read_.head.number) + " instead of " + Number(peer.client->next_in));
  } else {
    ++peer.client->next_in;
    TakeOf(peer);
  }
}

void LinkLoop::TakeHello(Peer& peer) {
  if (peer.client != nullptr) RemoveClient(peer, "says hello again");
  peer.was_notified = false;
  if (read_.hello.protocol != kProtocol) {
    ++counters_.foreign_frames;
    Reset(peer, "protocol " + Number(read_.hello.protocol) + " instead of " + Number(kProtocol));
    return;
  }
  if (!ended_.empty()) {
    WriteReason({FrameType::kDead, epoch_, 0}, ended_, frame_);
    SendFrame(peer.address);
    return;
  }
  const auto place = std::find(clients_.begin(), clients_.end(), nullptr);
  if (place == clients_.end()) {
    Reset(peer, "no room for more than " + Number(clients_.size()) + " frontends");
    return;
  }
  const LinkId id{static_cast<int32_t>(place - clients_.begin()), ++serial_};
  *place = std::make_unique<ClientLink>(id, peer.address, read_, ready_.info.max_client_requests);
  peer.client = place->get();
  ++counters_.clients;
  ++counters_.clients_seen;
  mailbox_.Post({.kind = Command::Kind::kCome, .link = id});
  WriteReady(NextHead(FrameType::kReady, *peer.client), ready_, frame_);
  SendFrame(peer.address);
  Log(*peer.client, "is here");
}

void LinkLoop::TakeOf(Peer& peer) {
  ClientLink& client = *peer.client;
  switch (read_.head.type) {
    case FrameType::kAdd:
      TakeAdd(peer);
      break;
    case FrameType::kAbort:
      if (read_.aborted.size() > client.is_taken.size()) {
        ++counters_.bad_requests;
        Reset(peer, "an ABORT of more requests than there are slots");
        return;
      }
      mailbox_.Post(
          {.kind = Command::Kind::kAbort, .link = client.id, .aborted = std::move(read_.aborted)});
      break;
    case FrameType::kCredit:
      client.AddCredits(read_.credits);
      SendHeld(client);
      break;
    case FrameType::kPing:  // the step loop answers: it is what must not hang
      mailbox_.Post({.kind = Command::Kind::kPing, .link = client.id});
      break;
    default:  // BYE
      RemoveClient(peer, "said bye");
  }
}

void LinkLoop::TakeAdd(Peer& peer) {
  ClientLink& client = *peer.client;
  const int32_t slot = read_.request.address.slot;
  if (!client.HasSlot(slot) || client.is_taken[static_cast<size_t>(slot)]) {
    ++counters_.bad_requests;
    Reset(peer,
          "slot " + Number(slot) + (client.HasSlot(slot) ? " is taken" : " is outside the table"));
    return;
  }
  client.is_taken[static_cast<size_t>(slot)] = true;
  mailbox_.Post(
      {.kind = Command::Kind::kAdd, .link = client.id, .request = std::move(read_.request)});
}

// --- what the steps gave -----------------------------------------------------------------------

void LinkLoop::TakeBatches() {
  mailbox_.ClearWake();
  for (auto batch = mailbox_.TakeBatch(); batch != nullptr; batch = mailbox_.TakeBatch()) {
    step_ = batch->step;
    time_ns_ = batch->time_ns;
    Deliver(*batch);
    for (const LinkId& pong : batch->pongs) {
      ClientLink* const client = ClientOf(pong);
      if (client == nullptr) continue;
      WritePong(NextHead(FrameType::kPong, *client), batch->grammars, frame_);
      SendFrame(client->address);
    }
    for (const StepBatch::Reset& reset : batch->resets) {
      const ClientLink* const client = ClientOf(reset.link);
      if (client == nullptr) continue;
      ++counters_.bad_requests;
      Reset(peers_.at(client->address), reset.reason);
    }
    if (batch->is_last) EndAll(*batch);
    mailbox_.GiveBack(std::move(batch));
  }
}

// Null: it went meanwhile.
ClientLink* LinkLoop::ClientOf(const LinkId& link) {
  ClientLink* const client = clients_[static_cast<size_t>(link.place)].get();
  return client != nullptr && client->id == link ? client : nullptr;
}

void LinkLoop::Deliver(const StepBatch& batch) {
  touched_.clear();
  for (uint32_t number = 0; const StepBatch::Row& row : batch.rows()) {
    ClientLink* const client = ClientOf(row.link());
    if (client != nullptr) {
      if (client->step_rows.empty()) touched_.push_back(row.place);
      client->step_rows.push_back(number);
    }
    ++number;
  }
  for (const int32_t place : touched_) {
    ClientLink& client = *clients_[static_cast<size_t>(place)];
    if (client.credits > 0 && batch.FitsInto(kMostRowBytes)) {
      SendStep(client, batch);
    } else {
      HoldStep(client, batch);
      SendHeld(client);
    }
    client.step_rows.clear();
  }
}

void LinkLoop::SendStep(ClientLink& client, const StepBatch& batch) {
  WriteOutput(NextHead(FrameType::kOutput, client), batch, client.step_rows, frame_);
  for (const uint32_t number : client.step_rows) {
    const StepBatch::Row& row = batch.rows()[number];
    counters_.tokens_out += row.ids;
    if (row.full >= 0) client.Note(batch.full(row));
  }
  --client.credits;
  SendFrame(client.address);
}

void LinkLoop::HoldStep(ClientLink& client, const StepBatch& batch) {
  for (const uint32_t number : client.step_rows) {
    const OutputRow row = batch.Whole(batch.rows()[number]);
    client.held.Add(row);
    counters_.held_tokens += std::ssize(row.ids);
  }
}

void LinkLoop::SendHeld(ClientLink& client) {
  for (; !client.held.IsEmpty() && client.credits > 0; --client.credits) {
    const std::span<const OutputRow> rows = client.held.Next(kMostRowBytes);
    WriteOutput(NextHead(FrameType::kOutput, client), step_, time_ns_, rows, frame_);
    for (const OutputRow& row : rows) {
      counters_.tokens_out += std::ssize(row.ids);
      counters_.held_tokens -= std::ssize(row.ids);
      client.Note(row);
    }
    client.held.DropNext();
    SendFrame(client.address);
  }
}

void LinkLoop::EndAll(const StepBatch& batch) {
  ended_ = batch.reason.empty() ? "the engine ends" : batch.reason;
  for (auto& [address, peer] : peers_) {
    if (peer.client == nullptr) continue;
    peer.client->credits = kMostCredits;  // there is no later
    SendHeld(*peer.client);
    WriteReason(NextHead(FrameType::kDead, *peer.client), ended_, frame_);
    SendFrame(address);
    RemoveClient(peer, "was sent the end");
    peer.was_notified = true;
  }
}

// --- peers come and go -------------------------------------------------------------------------

void LinkLoop::Reset(Peer& peer, std::string_view reason) {
  if (peer.client == nullptr && peer.was_notified) return;
  ++counters_.resets;
  FrameHead head{FrameType::kReset, epoch_, 0};
  if (peer.client != nullptr) {
    head = NextHead(FrameType::kReset, *peer.client);
    RemoveClient(peer, reason);
  } else if (log_.is_on()) {
    log_.Say(std::string("a frontend without a link: ").append(reason));
  }
  peer.was_notified = true;
  WriteReason(head, reason, frame_);
  SendFrame(peer.address);
}

void LinkLoop::RemoveClient(Peer& peer, std::string_view why) {
  const ClientLink& client = *peer.client;
  Log(client, "is gone", why);
  mailbox_.Post({.kind = Command::Kind::kGo, .link = client.id});
  --counters_.clients;
  counters_.held_tokens -= client.held.tokens();
  peer.client = nullptr;
  clients_[static_cast<size_t>(client.id.place)] = nullptr;
}

void LinkLoop::RemovePeer(const std::string& address, std::string_view why) {
  const auto found = peers_.find(address);
  if (found == peers_.end()) return;
  if (found->second.client != nullptr) RemoveClient(found->second, why);
  address_of_fd_.erase(found->second.fd);
  peers_.erase(found);
}

void LinkLoop::RemoveLost() {
  for (const std::string& address : lost_) RemovePeer(address, "cannot be reached");
  lost_.clear();
}

FrameHead LinkLoop::NextHead(FrameType type, ClientLink& client) const {
  return {type, epoch_, client.next_out++};
}

void LinkLoop::SendFrame(const std::string& address) {
  const auto send = [&](std::string_view bytes) {
    ++counters_.frames_out;
    counters_.bytes_out += std::ssize(bytes);
    if (!router_.Send(address, bytes)) lost_.push_back(address);
  };
  options_.on_frame ? options_.on_frame(frame_, send) : send(frame_);
}

void LinkLoop::Log(const ClientLink& client, std::string_view what, std::string_view why) {
  if (!log_.is_on()) return;
  std::string line =
      "frontend " + Printable(client.name) + " (process " + Number(client.pid) + ") ";
  line.append(what);
  if (!why.empty()) line.append(": ").append(why);
  log_.Say(line);
}

}  // namespace sluice::link
