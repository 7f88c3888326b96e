// Reads the responses of one connection as they come: status, body, and the events of a stream.
// For load generators: it reads what servers of streams send, and is no parser for strangers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::bench {

class HttpStream {
 public:
  // Called with the JSON of each event of a stream, and with "[DONE]".
  using OnEvent = std::function<void(std::string_view data)>;

  // Throws std::runtime_error for what is no HTTP. True when the response is complete.
  bool Read(std::string_view bytes, const OnEvent& on_event);
  // The peer has closed: true when that ends the response well.
  bool Close();
  void Reset();  // for the next response

  int status() const { return status_; }
  const std::string& body() const { return body_; }  // of a response that is no stream
  bool keeps_alive() const { return keeps_alive_; }

 private:
  enum class State : uint8_t {
    kHead,
    kSize,
    kData,
    kDataEnd,
    kTrailer,
    kLength,
    kUntilClose,
    kDone
  };

  void ReadHead(std::string_view head);
  void Add(std::string_view bytes, const OnEvent& on_event);

  State state_ = State::kHead;
  std::string line_;  // what is incomplete of a head, a chunk's size or an event
  std::string event_;
  std::string body_;
  size_t left_ = 0;  // of a chunk or of a body with a length
  int status_ = 0;
  bool keeps_alive_ = true;
  bool is_stream_ = false;
};

}  // namespace sluice::bench
