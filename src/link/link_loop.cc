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

// A frontend chose it: as one short line.
std::string Printable(std::string_view name) {
  std::string text(name.substr(0, 40));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

LinkLoop::LinkLoop(const EngineServerOptions& options, EngineInfo info, int32_t max_clients,
                   Mailbox& mailbox)
    : options_(options),
      ready_{.info = std::move(info)},
      epoch_(RandomSeed() | 1),  // never 0, which is HELLO's
      mailbox_(mailbox),
      router_(options),
      log_(options.log),
      clients_(static_cast<size_t>(max_clients)) {}

void LinkLoop::Run() {
  try {
    while (!mailbox_.IsOver()) {
      if (mailbox_.IsFull()) {  // what frontends say waits with them
        router_.WaitForWake(mailbox_.wake_fd(), kWaitForStepLoop);
      } else {
        router_.Wait(mailbox_.wake_fd(), std::chrono::milliseconds(log_.owes() ? 1000 : -1));
      }
      const auto begin = Clock::now();
      TakeClosed();
      TakeBatches();
      TakeMessages();
      RemoveLost();
      if (log_.owes()) log_.Tick();
      counters_.own_ns += std::chrono::nanoseconds(Clock::now() - begin).count();
      Publish();
    }
  } catch (...) {  // no memory, or what a hook has thrown
    mailbox_.Fail(std::current_exception());
  }
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

// Null for the last words of a connection that has closed: nobody would say when it does.
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
  peer.was_told = false;
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
    case FrameType::kPing:
      WriteEmpty(NextHead(FrameType::kPong, client), frame_);
      SendFrame(client.address);
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
    for (const StepBatch::Reset& reset : batch->resets) {
      const auto& client = clients_[static_cast<size_t>(reset.link.place)];
      if (client == nullptr || client->id != reset.link) continue;
      ++counters_.bad_requests;
      Reset(peers_.at(client->address), reset.reason);
    }
    if (batch->is_last) EndAll(*batch);
    mailbox_.GiveBack(std::move(batch));
  }
}

void LinkLoop::Deliver(const StepBatch& batch) {
  touched_.clear();
  for (const StepBatch::Row& row : batch.rows()) {
    ClientLink* const client = clients_[static_cast<size_t>(row.link.place)].get();
    if (client == nullptr || client->id != row.link) continue;  // it went meanwhile
    if (client->step_rows.empty()) touched_.push_back(row.link.place);
    client->step_rows.push_back(row.row);
  }
  for (const int32_t place : touched_) {
    ClientLink& client = *clients_[static_cast<size_t>(place)];
    if (client.credits > 0) {
      SendRows(client, client.step_rows);
    } else {
      for (const OutputRow& row : client.step_rows) {
        client.held.Add(row);
        counters_.held_tokens += std::ssize(row.ids);
      }
    }
    client.step_rows.clear();
  }
}

void LinkLoop::SendRows(ClientLink& client, std::span<const OutputRow> rows) {
  WriteOutput(NextHead(FrameType::kOutput, client), step_, time_ns_, rows, frame_);
  --client.credits;
  for (const OutputRow& row : rows) {
    counters_.tokens_out += std::ssize(row.ids);
    if (row.end == GenerationEnd::kNone) continue;
    client.is_taken[static_cast<size_t>(row.address.slot)] = false;
  }
  SendFrame(client.address);
}

void LinkLoop::SendHeld(ClientLink& client) {
  while (!client.held.IsEmpty() && client.credits > 0) {
    SendRows(client, client.held.Next());
    counters_.held_tokens -= client.held.DropGiven();
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
    RemoveClient(peer, "was told the end");
    peer.was_told = true;
  }
}

// --- peers come and go -------------------------------------------------------------------------

void LinkLoop::Reset(Peer& peer, std::string_view reason) {
  if (peer.client == nullptr && peer.was_told) return;
  ++counters_.resets;
  FrameHead head{FrameType::kReset, epoch_, 0};
  if (peer.client != nullptr) {
    head = NextHead(FrameType::kReset, *peer.client);
    RemoveClient(peer, reason);
  } else if (log_.is_on()) {
    log_.Say(std::string("a frontend without a link: ").append(reason));
  }
  peer.was_told = true;
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
  const std::function<void(std::string_view)> send = [&](std::string_view bytes) {
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
