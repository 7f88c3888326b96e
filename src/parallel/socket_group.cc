// A group of processes on one machine, each with a Unix socket to each of the others.
//
// A socket shows at once when its other end is gone; a rank that is there and silent shows by the
// limit. A rank that gives up sends the others the rank that it lost, and hangs up: they might else
// see it go before that one. Where it is in the middle of a message, which only one larger than a
// socket's buffer can be, it cannot send that, and is itself the one that they name.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "sluice/shards.hpp"
#include "support/check.h"
#include "support/system_error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Before every message.
struct FrameHead {
  uint64_t bytes;
  int32_t lost_rank;  // -1, or the rank that the sender gave up because of; then nothing follows
  int32_t ranks;
};

int MillisecondsTo(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT32_MAX));
}

// Whether a call with this error may be made again.
bool IsPassing(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS ||
         error == ENOMEM;
}

[[noreturn]] void ThrowLost(int32_t rank, const std::string& how, std::chrono::milliseconds limit) {
  throw Error(ErrorCode::kUnavailable, "rank", std::to_string(rank) + ", which " + how,
              "a rank that answers within " + std::to_string(limit.count()) + " ms");
}

// The rest of a message to a rank, or from it.
struct Transfer {
  std::byte* data = nullptr;
  size_t left = 0;

  void Advance(size_t bytes) {
    data += bytes;
    left -= bytes;
  }
};

class SocketGroup final : public ShardGroup {
 public:
  SocketGroup(std::vector<Socket> peers, int32_t rank, std::chrono::milliseconds limit)
      : peers_(std::move(peers)), rank_(rank), limit_(limit), exchanges_(peers_.size()) {
    waits_.reserve(peers_.size());
  }

  int32_t rank() const override { return rank_; }
  int32_t ranks() const override { return static_cast<int32_t>(peers_.size()); }

  void AllGather(std::span<const std::byte> own, std::span<std::byte> all) override {
    CheckSize("all", all.size(), static_cast<int64_t>(own.size() * peers_.size()));
    if (failure_) std::rethrow_exception(failure_);
    try {
      Run(own, all);
    } catch (...) {
      failure_ = std::current_exception();
      // Nothing of this rank comes any more: no rank need wait for it.
      for (const Socket& peer : peers_) shutdown(peer.fd(), SHUT_RDWR);
      throw;
    }
  }

 private:
  // With one rank: its head, then its bytes, both ways.
  struct PeerExchange {
    FrameHead sent_head;
    FrameHead received_head;
    Transfer sent[2];
    Transfer received[2];

    bool IsSent() const { return sent[0].left + sent[1].left == 0; }
    bool IsReceived() const { return received[0].left + received[1].left == 0; }
  };

  [[noreturn]] void Lose(int32_t lost, const std::string& how) {
    const FrameHead head{0, lost, ranks()};
    for (int32_t r = 0; r < ranks(); ++r) {
      // A message that has begun cannot be broken off; its receiver sees this end go.
      const PeerExchange& exchange = exchanges_[static_cast<size_t>(r)];
      const bool is_between = exchange.IsSent() || exchange.sent[0].left == sizeof(FrameHead);
      if (r == rank_ || r == lost || !is_between) continue;
      send(peers_[static_cast<size_t>(r)].fd(), &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    ThrowLost(lost, how, limit_);
  }

  static std::string Name(int32_t rank) { return "rank " + std::to_string(rank); }

  // False when the socket takes or has nothing now.
  bool Send(int32_t to, Transfer& transfer) {
    const ssize_t sent = send(peers_[static_cast<size_t>(to)].fd(), transfer.data, transfer.left,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      transfer.Advance(static_cast<size_t>(sent));
      return true;
    }
    if (IsPassing(errno)) return false;
    if (errno != EPIPE && errno != ECONNRESET) ThrowSystemError("a message to " + Name(to));
    cannot_send_[static_cast<size_t>(to)] = true;  // its last words may still be there to read
    return false;
  }

  bool Receive(int32_t from, Transfer& transfer) {
    const ssize_t got =
        recv(peers_[static_cast<size_t>(from)].fd(), transfer.data, transfer.left, MSG_DONTWAIT);
    if (got > 0) {
      transfer.Advance(static_cast<size_t>(got));
      return true;
    }
    if (got < 0 && IsPassing(errno)) return false;
    if (got < 0 && errno != ECONNRESET) ThrowSystemError("a message from " + Name(from));
    Lose(from, "has ended");
  }

  // A rank that has sent all of this exchange and takes nothing any more: it may have said why.
  [[noreturn]] void LoseSilent(int32_t peer) {
    FrameHead head{};
    const ssize_t got =
        recv(peers_[static_cast<size_t>(peer)].fd(), &head, sizeof head, MSG_DONTWAIT);
    if (got == sizeof head && head.lost_rank >= 0) Lose(head.lost_rank, "another rank has lost");
    Lose(peer, "has ended");
  }

  void ReadHead(int32_t from, const PeerExchange& exchange, size_t bytes) {
    const FrameHead& head = exchange.received_head;
    if (head.lost_rank >= 0) Lose(head.lost_rank, "another rank has lost");
    if (head.bytes == bytes) return;
    Lose(from, "sent " + std::to_string(head.bytes) + " bytes where this one sends " +
                   std::to_string(bytes) + ": calls or rows differ");
  }

  void Advance(int32_t peer, PeerExchange& exchange, size_t bytes) {
    for (Transfer& transfer : exchange.sent) {
      while (transfer.left > 0) {
        if (cannot_send_[static_cast<size_t>(peer)] || !Send(peer, transfer)) break;
      }
      if (transfer.left > 0) break;
    }
    for (Transfer& transfer : exchange.received) {
      const bool is_head = &transfer == &exchange.received[0];
      const bool was_there = transfer.left == 0;
      while (transfer.left > 0 && Receive(peer, transfer)) {
      }
      if (transfer.left > 0) break;
      if (is_head && !was_there) ReadHead(peer, exchange, bytes);
    }
    if (cannot_send_[static_cast<size_t>(peer)] && exchange.IsReceived() && !exchange.IsSent()) {
      LoseSilent(peer);
    }
  }

  void Run(std::span<const std::byte> own, std::span<std::byte> all) {
    const auto deadline = Clock::now() + limit_;
    std::copy(own.begin(), own.end(),
              all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank_) * own.size()));
    cannot_send_.assign(peers_.size(), false);
    for (int32_t r = 0; r < ranks(); ++r) {
      PeerExchange& exchange = exchanges_[static_cast<size_t>(r)];
      exchange = {};
      if (r == rank_) continue;
      exchange.sent_head = {own.size(), -1, ranks()};
      exchange.sent[0] = {reinterpret_cast<std::byte*>(&exchange.sent_head), sizeof(FrameHead)};
      // Only read from.
      exchange.sent[1] = {const_cast<std::byte*>(own.data()), own.size()};
      exchange.received[0] = {reinterpret_cast<std::byte*>(&exchange.received_head),
                              sizeof(FrameHead)};
      exchange.received[1] = {all.data() + static_cast<size_t>(r) * own.size(), own.size()};
    }
    for (;;) {
      waits_.clear();
      int32_t waited_for = -1;
      for (int32_t r = 0; r < ranks(); ++r) {
        if (r == rank_) continue;
        PeerExchange& exchange = exchanges_[static_cast<size_t>(r)];
        Advance(r, exchange, own.size());
        if (exchange.IsSent() && exchange.IsReceived()) continue;
        if (waited_for < 0) waited_for = r;
        const int wanted = (exchange.IsReceived() ? 0 : POLLIN) | (exchange.IsSent() ? 0 : POLLOUT);
        waits_.push_back({peers_[static_cast<size_t>(r)].fd(), static_cast<short>(wanted), 0});
      }
      if (waits_.empty()) return;
      const int left = MillisecondsTo(deadline);
      if (left == 0) Lose(waited_for, "did not answer");
      poll(waits_.data(), waits_.size(), left);
    }
  }

  std::vector<Socket> peers_;
  int32_t rank_;
  std::chrono::milliseconds limit_;
  std::vector<PeerExchange> exchanges_;
  std::vector<bool> cannot_send_;
  std::vector<pollfd> waits_;
  std::exception_ptr failure_;
};

// Equal on all ranks, whatever their numbers are: "/rank1023" and the zero after it fit.
constexpr size_t kLongestDirectory = sizeof(sockaddr_un::sun_path) - 12;

void CheckDirectory(std::string_view directory) {
  if (directory.size() <= kLongestDirectory) return;
  ThrowInvalid("directory", std::string(directory),
               "a path of at most " + std::to_string(kLongestDirectory) + " bytes");
}

sockaddr_un AddressOf(std::string_view directory, int32_t rank) {
  const std::string path = std::string(directory) + "/rank" + std::to_string(rank);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Socket NewSocket() {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) ThrowSystemError("a socket between ranks");
  return socket;
}

// The name of a listening socket, gone when all ranks have come, unless another has its place.
class ListeningSocket {
 public:
  ListeningSocket(const sockaddr_un& address, int32_t ranks)
      : address_(address), socket_(NewSocket()) {
    unlink(address_.sun_path);  // of a process that died
    if (bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0 ||
        listen(socket_.fd(), ranks) != 0) {
      ThrowSystemError(std::string("the socket ") + address_.sun_path);
    }
    if (stat(address_.sun_path, &bound_) != 0) bound_ = {};
  }
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket() {
    struct stat now{};
    if (stat(address_.sun_path, &now) != 0) return;
    if (now.st_ino == bound_.st_ino && now.st_dev == bound_.st_dev) unlink(address_.sun_path);
  }

  int fd() const { return socket_.fd(); }

  // Not open where the connection has closed again.
  Socket Accept() const {
    Socket socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      ThrowSystemError("a rank's connection");
    }
    return socket;
  }

 private:
  sockaddr_un address_;
  struct stat bound_{};
  Socket socket_;
};

// Connections from ranks above this one, some of them without a rank number yet. One that stays
// silent delays no other.
class PendingPeers {
 public:
  explicit PendingPeers(const ListeningSocket& listening) : listening_(listening) {}

  // A rank's hello, and its connection; not open when there is none before the deadline.
  Socket Next(FrameHead& hello, Clock::time_point deadline) {
    for (;;) {
      waits_.assign(1, {listening_.fd(), POLLIN, 0});
      for (const Socket& socket : silent_) waits_.push_back({socket.fd(), POLLIN, 0});
      const int left = MillisecondsTo(deadline);
      if (poll(waits_.data(), waits_.size(), left) <= 0) {
        if (left == 0) return {};
        continue;
      }
      for (size_t i = 0; i < silent_.size(); ++i) {
        if (waits_[i + 1].revents == 0) continue;
        Socket socket = std::move(silent_[i]);
        silent_.erase(silent_.begin() + static_cast<ptrdiff_t>(i));
        // So short a message comes in one piece. A peer that sends something else is no rank.
        if (recv(socket.fd(), &hello, sizeof hello, 0) == sizeof hello) return socket;
        break;
      }
      if (waits_[0].revents == 0) continue;
      Socket socket = listening_.Accept();
      if (socket.is_open()) silent_.push_back(std::move(socket));
    }
  }

 private:
  const ListeningSocket& listening_;
  std::vector<Socket> silent_;
  std::vector<pollfd> waits_;
};

}  // namespace

std::unique_ptr<ShardGroup> ConnectShardGroup(std::string_view directory, int32_t rank,
                                              int32_t ranks, std::chrono::milliseconds limit) {
  CheckInRange("ranks", ranks, 1, kMostShards);
  CheckInRange("rank", rank, 0, ranks - 1);
  CheckInRange("limit", limit.count(), 1, INT32_MAX);
  CheckDirectory(directory);
  const auto deadline = Clock::now() + limit;
  std::vector<Socket> peers(static_cast<size_t>(ranks));
  const ListeningSocket listening(AddressOf(directory, rank), ranks);
  // To the ranks below, as soon as they listen; from those above.
  const FrameHead hello{static_cast<uint64_t>(rank), -1, ranks};
  for (int32_t r = 0; r < rank; ++r) {
    const sockaddr_un address = AddressOf(directory, r);
    Socket socket = NewSocket();
    while (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        ThrowSystemError("the socket of rank " + std::to_string(r));
      }
      if (MillisecondsTo(deadline) == 0) ThrowLost(r, "did not come", limit);
      poll(nullptr, 0, 1);
    }
    if (send(socket.fd(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
      ThrowLost(r, "has ended", limit);
    }
    peers[static_cast<size_t>(r)] = std::move(socket);
  }
  PendingPeers pending(listening);
  for (int32_t missing = ranks - 1 - rank; missing > 0; --missing) {
    FrameHead other{};
    Socket socket = pending.Next(other, deadline);
    if (!socket.is_open()) {
      int32_t first_missing = rank + 1;
      while (peers[static_cast<size_t>(first_missing)].is_open()) ++first_missing;
      ThrowLost(first_missing, "did not come", limit);
    }
    const auto from = static_cast<int32_t>(other.bytes);
    if (other.ranks != ranks) {
      ThrowInvalid("ranks", std::to_string(other.ranks) + " on rank " + std::to_string(from),
                   std::to_string(ranks) + ", as on rank " + std::to_string(rank));
    }
    if (from <= rank || from >= ranks || peers[static_cast<size_t>(from)].is_open()) {
      ThrowInvalid("rank", std::to_string(from), "one process for each rank");
    }
    peers[static_cast<size_t>(from)] = std::move(socket);
  }
  return std::make_unique<SocketGroup>(std::move(peers), rank, limit);
}

}  // namespace sluice
