// Stop strings over visible text: one automaton for all of them, and no byte held back that cannot
// be the beginning of one.
//
// The stop that ends first wins; of those that end together the longest. The output depends on the
// text alone, not on how it was cut into tokens or steps; it never contains a stop (unless
// include_stop is set), and is never taken back. Linear time.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sluice/token_end.hpp"

namespace sluice {

// No more than 32767 stops and 65534 bytes together, whatever these say.
struct StopLimits {
  size_t max_stops = 16;
  size_t max_bytes = 1024;  // of one stop
  size_t max_total_bytes = 4096;
};

// A list of stops, compiled. Immutable: one serves any number of requests.
class StopList {
 public:
  StopList() : StopList(std::span<const std::string>()) {}  // no stops
  // Throws Error for an empty stop, one that is not UTF-8, too many, or too long ones.
  explicit StopList(std::span<const std::string> stops, const StopLimits& limits = {});

  std::span<const std::string> stops() const { return stops_; }
  bool IsEmpty() const { return stops_.empty(); }
  size_t longest() const { return longest_; }

 private:
  friend class StopScanner;
  friend class TextStream;
  struct Edge {
    uint8_t byte;
    uint16_t target;
  };
  struct Node {
    uint16_t first_edge = 0;
    uint16_t edges = 0;
    uint16_t fail = 0;        // the longest proper suffix that is a node
    uint16_t depth = 0;       // bytes from the root
    uint16_t hold = 0;        // its longest suffix that a stop may continue
    int16_t match = -1;       // the longest stop that ends here
    uint32_t text_begin = 0;  // its bytes are depth ones of text_ from here
  };

  using Block = std::array<uint8_t, 16>;

  uint16_t Next(uint16_t node, uint8_t byte) const;
  Block BeginningsIn(const char* padded, size_t size) const;
  bool BeginsIn(std::string_view text) const;

  std::vector<std::string> stops_;
  std::string text_;  // the stops, one after the other, and some padding
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<uint16_t> root_;  // by byte
  // The bytes that begin a stop, each 16 times: a short text is compared at once. Empty: there are
  // none, or more than 16.
  std::vector<Block> firsts_;
  uint8_t first_kinds_ = 0;  // the kinds of bytes that they are, see text/byte_kinds.h
  size_t longest_ = 0;
};

// Keeps the lists used last. Safe to use from many threads.
class StopListCache {
 public:
  explicit StopListCache(size_t capacity = 256) : capacity_(capacity) {}
  std::shared_ptr<const StopList> Get(std::span<const std::string> stops,
                                      const StopLimits& limits = {});

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const StopList>>;
  std::mutex mutex_;
  size_t capacity_;
  std::list<Entry> entries_;  // the last used one first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

struct StopOptions {
  bool include_stop = false;  // the text ends after the stop, not before it
  int64_t min_tokens = 0;     // a stop that ends in one of the first so many tokens is text
};

struct StopResult {
  int32_t stop = -1;  // its place in the list, or -1
  // Tokens so far, up to and with the one that ended the stop.
  int64_t tokens = 0;
  // The number of tokens with all of their text out: all of them before a token that is held back
  // or ends inside a character, and all with a stop. The outputs of a token (a log-probability,
  // say) go out with it.
  int64_t released_tokens = 0;
};

class StopScanner {
 public:
  explicit StopScanner(std::shared_ptr<const StopList> stops, const StopOptions& options = {});

  // Takes the text of the next tokens, with ends as Detokenizer gives them, and appends to
  // `released` what is free of stops. After a stop, nothing comes out. Takes no memory but for
  // `released`.
  const StopResult& Step(std::string_view text, std::span<const TokenEnd> ends,
                         std::string& released);

  // For an end without a stop: appends what was held back, with `rest`, the text of no token.
  // A stop may still end in the rest.
  const StopResult& Finish(std::string_view rest, std::string& released);

  size_t held_bytes() const;
  const StopList& stops() const { return *stops_; }

 private:
  friend class TextStream;
  struct HeldTokens {
    int64_t end;  // of their text, as scanned_ counts
    int64_t count;
  };

  // Step without a copy: the text of the tokens is what Detokenizer appended to `text` after its
  // first `begin` bytes, and what is free of stops replaces it.
  const StopResult& StepInPlace(std::string& text, size_t begin, std::span<const TokenEnd> ends) {
    return Scan(text, begin, ends, 0);
  }
  // For one token of at most 16 bytes, where 16 can be read, after tokens that are whole: where a
  // stop may begin, a bit for each place (with none, while nothing is held, its text goes out as it
  // is and nothing changes but the number of tokens, which the caller keeps meanwhile); and a step
  // with any text in which no stop ends, which is done or refused.
  uint32_t BeginningsIn(const char* padded, size_t size, uint8_t kinds) const;
  bool StepWithin(const char* padded, size_t size, uint32_t begins, std::string& text);
  void TakeCount(int64_t tokens) {
    if (is_idle_) result_.tokens = result_.released_tokens = tokens;
  }
  void CheckEnds(std::span<const TokenEnd> ends, size_t size) const;
  const StopResult& Scan(std::string& text, size_t begin, std::span<const TokenEnd> ends,
                         size_t offset);
  const StopResult& Stop(std::string& text, size_t end, int16_t stop);
  std::string_view HeldText() const;
  void AccountFor(std::span<const TokenEnd> ends, int64_t text_begin, int64_t out);
  void CountClosed(size_t tokens, int64_t end, int64_t out);
  void ReleaseTokens(int64_t bytes);

  std::shared_ptr<const StopList> stops_;
  StopOptions options_;
  bool is_idle_ = true;      // no stop was found or has begun, and every token is out
  uint8_t first_kinds_ = 0;  // the list's
  uint16_t node_ = 0;
  size_t open_tokens_ = 0;  // the last tokens, of unknown end
  int64_t scanned_ = 0;     // bytes since nothing was held
  StopResult result_;
  std::vector<HeldTokens> held_tokens_;  // with a free place for every byte that may be held
};

}  // namespace sluice
