// What framing costs a token, and what it would cost with a writer that makes all of the JSON anew:
// printed, and far below the bar on any machine that is not overloaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <sstream>

#include "json/writer.h"
#include "server/api/response/stream_writer.h"
#include "tests/server/api/samples.h"
#include "tests/support/slowdown.h"

namespace sluice::server {
namespace {

using test::kSlowdown;

constexpr int kEvents = 256;

double NanosecondsOf(const std::function<void()>& events) {
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds least = std::chrono::hours(1);
  for (int round = 0; round < 300; ++round) {
    const auto begin = Clock::now();
    events();
    least = std::min<std::chrono::nanoseconds>(least, Clock::now() - begin);
  }
  return static_cast<double>(least.count()) / kEvents;
}

void WriteAnew(const ResponseHead& head, std::string_view text, std::string& out) {
  std::ostringstream stream;
  JsonWriter json(stream);
  json.Object([&] {
    json.Key("id").Value(head.id);
    json.Key("object").Value("chat.completion.chunk");
    json.Key("created").Value(head.created);
    json.Key("model").Value(head.model);
    json.Key("system_fingerprint").Value("sluice");
    json.Key("seed").Value(*head.seed);
    json.Key("choices").Array([&] {
      json.Object([&] {
        json.Key("index").Value(0);
        json.Key("delta").Object([&] { json.Key("content").Value(text); });
        json.Key("logprobs").Null();
        json.Key("finish_reason").Null();
      });
    });
  });
  out.append("data: ").append(stream.str()).append("\n\n");
}

TEST(StreamWriterCost, OfAnEventIsTensOfNanoseconds) {
  const ResponseHead head{.api = Api::kChat,
                          .id = "chatcmpl-0123456789abcdef01234567",
                          .created = 1700000000,
                          .model = "meta-llama/Llama-3.1-8B-Instruct",
                          .seed = 1234567890123};
  const StreamWriter writer(head, false, test::SampleTokenizer());
  const std::string_view texts[] = {" the", "Hello", " \"", "\n\n", " internationally", "é", "."};
  std::string out;
  const auto at = [&](int i) { return texts[static_cast<size_t>(i) % std::size(texts)]; };
  const double framed = NanosecondsOf([&] {
    out.clear();
    for (int i = 0; i < kEvents; ++i) writer.Content(out, {.text = at(i)});
  });
  const size_t bytes = out.size() / kEvents;
  const double anew = NanosecondsOf([&] {
    out.clear();
    for (int i = 0; i < kEvents; ++i) WriteAnew(head, at(i), out);
  });
  std::printf("an event of %zu bytes: %.1f ns; all of its JSON anew: %.1f ns, %.1f times\n", bytes,
              framed, anew, anew / framed);
  // Some 20 on a quiet core, of at most 50: ten times that is a slow machine.
  EXPECT_LT(framed, 500 * kSlowdown * kSlowdown);
  if (kSlowdown > 1) return;
  EXPECT_GT(anew, 10 * framed);  // both ran on the same core just now
}

// As one would write it first.
void EscapeByteByByte(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) out.push_back('\\');
    out.push_back(c);
  }
}

TEST(StreamWriterCost, EscapingIsAFewBytesANanosecond) {
  const std::string text(4096, 'a');
  std::string out;
  const double clean = kEvents * NanosecondsOf([&] {
                         out.clear();
                         AppendEscaped(out, text);
                       });
  const double each = kEvents * NanosecondsOf([&] {
                        out.clear();
                        EscapeByteByByte(text, out);
                      });
  std::printf("4096 clean bytes: %.0f ns; byte by byte: %.0f ns\n", clean, each);
  if (kSlowdown > 1) return;
  EXPECT_GT(each, 2 * clean);  // on the same core just now: no time of this machine is in it
}

}  // namespace
}  // namespace sluice::server
