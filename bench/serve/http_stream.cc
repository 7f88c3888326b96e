#include "bench/serve/http_stream.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

namespace sluice::bench {
namespace {

size_t Number(std::string_view digits, int base) {
  size_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end == digits.data()) {
    throw std::runtime_error("no number in an HTTP response: " + std::string(digits.substr(0, 20)));
  }
  return value;
}

}  // namespace

void HttpStream::Reset() {
  state_ = State::kHead;
  line_.clear();
  event_.clear();
  body_.clear();
  left_ = 0;
  status_ = 0;
  keeps_alive_ = true;
  is_stream_ = false;
}

bool HttpStream::Close() {
  const bool is_whole = state_ == State::kUntilClose || state_ == State::kDone;
  state_ = State::kDone;
  keeps_alive_ = false;
  return is_whole;
}

void HttpStream::ReadHead(std::string_view head) {
  if (!head.starts_with("HTTP/1.") || head.size() < 12) {
    throw std::runtime_error("no HTTP response: " + std::string(head.substr(0, 40)));
  }
  status_ = static_cast<int>(Number(head.substr(9, 3), 10));
  keeps_alive_ = head[7] == '1';
  std::string lower(head);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](const char* text) { return lower.find(text) != std::string::npos; };
  if (has("\r\nconnection: close")) keeps_alive_ = false;
  is_stream_ = has("\r\ncontent-type: text/event-stream");
  constexpr std::string_view kLength = "\r\ncontent-length:";
  const size_t length = lower.find(kLength);
  if (has("\r\ntransfer-encoding: chunked")) {
    state_ = State::kSize;
  } else if (length != std::string::npos) {
    const size_t digits = lower.find_first_not_of(' ', length + kLength.size());
    left_ = Number(std::string_view(lower).substr(digits), 10);
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else {
    state_ = State::kUntilClose;
  }
}

void HttpStream::Add(std::string_view bytes, const OnEvent& on_event) {
  if (!is_stream_) {
    body_.append(bytes);
    return;
  }
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    event_.append(bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    std::string_view line = event_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(std::min(line.find_first_not_of(' ', 5), line.size()));
      on_event(line);
    }
    event_.clear();
  }
}

bool HttpStream::Read(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty() && state_ != State::kDone) {
    switch (state_) {
      case State::kHead: {
        line_.append(bytes);
        const size_t end = line_.find("\r\n\r\n");
        if (end == std::string::npos) return false;
        const size_t rest = line_.size() - (end + 4);
        ReadHead(std::string_view(line_).substr(0, end + 2));
        line_.clear();
        bytes.remove_prefix(bytes.size() - rest);
        if (status_ == 100) Reset();
        break;
      }
      case State::kSize:
      case State::kDataEnd:
      case State::kTrailer: {
        const size_t end = bytes.find('\n');
        line_.append(bytes.substr(0, end));
        if (end == std::string_view::npos) return false;
        bytes.remove_prefix(end + 1);
        if (state_ == State::kDataEnd) {
          state_ = State::kSize;
        } else if (state_ == State::kTrailer) {
          if (line_.empty() || line_ == "\r") state_ = State::kDone;
        } else {
          left_ = Number(line_, 16);
          state_ = left_ == 0 ? State::kTrailer : State::kData;
        }
        line_.clear();
        break;
      }
      case State::kData:
      case State::kLength: {
        const std::string_view part = bytes.substr(0, left_);
        Add(part, on_event);
        bytes.remove_prefix(part.size());
        left_ -= part.size();
        if (left_ > 0) break;
        state_ = state_ == State::kData ? State::kDataEnd : State::kDone;
        break;
      }
      case State::kUntilClose:
        Add(bytes, on_event);
        return false;
      case State::kDone:
        break;
    }
  }
  return state_ == State::kDone;
}

}  // namespace sluice::bench
