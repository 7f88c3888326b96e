// Messages of several parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "link/sockets.h"

namespace sluice::link {

inline constexpr size_t kMostFrames = 1 << 16;
inline constexpr int64_t kMostMessageBytes = int64_t{1} << 30;  // more end the connection

inline std::string_view BytesOf(const zmq::message_t& message) {
  return {static_cast<const char*>(message.data()), message.size()};
}

// A whole message, of which at most kMostFrames + 1 parts are kept. False: there is none.
inline bool ReceiveAll(zmq::socket_t& socket, std::vector<zmq::message_t>& frames) {
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

}  // namespace sluice::link
