// Any tokens of bytes, cut anyhow: text is UTF-8, grows only, has no stop in it, and does not
// depend on the cuts.
#include <memory>
#include <string>

#include "sluice/text_stream.hpp"
#include "tests/fuzz/bytes.h"
#include "tests/text/vocabularies.h"
#include "text/normalize/utf8.h"

namespace sluice::fuzz {
namespace {

// Ids are bytes, and above them some longer tokens.
const Tokenizer& Vocabulary() {
  static const Tokenizer tokenizer = [] {
    std::vector<test::TestToken> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back({std::string(1, static_cast<char>(byte))});
    for (const char* text : {"中文", "\xF0\x9F", "\x98\x80x", "END", "EN", "\xE4\xBD", "\uFFFD"}) {
      tokens.push_back({text});
    }
    tokens.push_back(test::Special("<|end|>"));
    return test::ByteLevelTokenizer(tokens);
  }();
  return tokenizer;
}

struct Streamed {
  std::string text;
  int32_t stop = -1;
};

// Steps of the sizes that `bytes` gives; of one token when there are none. With what a stream is
// made of, one after the other.
Streamed InParts(std::span<const int32_t> ids, const std::shared_ptr<const StopList>& stops,
                 const StopOptions& options, Bytes bytes) {
  Detokenizer detokenizer(Vocabulary());
  StopScanner scanner(stops, options);
  Streamed made;
  while (!ids.empty() && made.stop < 0) {
    const size_t size = std::min(ids.size(), static_cast<size_t>(bytes.Between(1, 5)));
    std::string step;
    std::vector<TokenEnd> ends(size);
    detokenizer.Step(ids.first(size), step, ends);
    Check(text::IsUtf8(step));
    const size_t before = made.text.size();
    made.stop = scanner.Step(step, ends, made.text).stop;
    Check(text::IsUtf8(std::string_view(made.text).substr(before)));
    ids = ids.subspan(size);
  }
  std::string rest;
  detokenizer.Finish(rest);
  if (made.stop < 0) made.stop = scanner.Finish(rest, made.text).stop;
  return made;
}

Streamed InOne(std::span<const int32_t> ids, const std::shared_ptr<const StopList>& stops,
               const StopOptions& options, Bytes bytes) {
  TextStream stream(Vocabulary(), {.stops = stops, .stop = options});
  Streamed made;
  Delta delta;
  while (!ids.empty() && delta.finish == FinishReason::kNone) {
    const size_t size = std::min(ids.size(), static_cast<size_t>(bytes.Between(1, 40)));
    const size_t before = made.text.size();
    const int64_t out = delta.last_token;
    delta = stream.Step(ids.first(size), made.text);
    Check(text::IsUtf8(std::string_view(made.text).substr(before)));
    Check(delta.first_token == out && delta.last_token <= delta.tokens);
    ids = ids.subspan(size);
  }
  delta = stream.Finish(made.text);
  Check(delta.last_token == delta.tokens);
  made.stop = delta.stop;
  return made;
}

void Run(Bytes bytes) {
  std::vector<std::string> stops;
  const std::vector<std::string> known = {"END", "中", "\uFFFD\uFFFD", "aab", "b", "文E"};
  for (const std::string& stop : known) {
    if (bytes.Coin()) stops.push_back(stop);
  }
  const StopOptions options{bytes.Coin(), bytes.Between(0, 3)};
  const Bytes cuts = bytes;
  std::vector<int32_t> ids;
  while (!bytes.IsEmpty()) {
    const int32_t byte = bytes.Raw<uint8_t>();
    ids.push_back(byte % 4 == 0 ? 256 + byte / 4 % 9 : byte);  // one of them has no token
  }
  const auto list = std::make_shared<const StopList>(stops);
  const Streamed one = InParts(ids, list, options, Bytes(nullptr, 0));
  for (const Streamed& other : {InParts(ids, list, options, cuts), InOne(ids, list, options, cuts),
                                InOne(ids, list, options, Bytes(nullptr, 0))}) {
    Check(one.text == other.text && one.stop == other.stop);
  }
  if (options.include_stop || options.min_tokens > 0) return;
  for (const std::string& stop : stops) Check(one.text.find(stop) == std::string::npos);
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Run({data, size});
  return 0;
}
