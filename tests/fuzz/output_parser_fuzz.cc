// Any text in any format of calls and reasoning, cut anyhow: the parts do not depend on the cuts,
// little is held back, and without a call nothing is lost.
#include <algorithm>
#include <string>

#include "sluice/reasoning.hpp"
#include "tests/fuzz/bytes.h"

namespace sluice::fuzz {
namespace {

constexpr size_t kMostHeld = 3 * kMostHeldBytes;

// The kind, the call and the text of each part.
std::string Parsed(const OutputFormat& format, std::string_view text, Bytes cuts) {
  OutputParser parser(format);
  OutputParts parts;
  while (!text.empty()) {
    const auto size = static_cast<size_t>(cuts.IsEmpty() ? 1 << 20 : cuts.Between(1, 20));
    parser.Step(text.substr(0, size), parts);
    Check(parser.held_bytes() <= kMostHeld);
    text.remove_prefix(std::min(size, text.size()));
  }
  parser.Finish(parts);
  Check(parser.held_bytes() == 0);
  std::string all;
  int32_t calls = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const OutputPart part = parts[i];
    all.push_back(static_cast<char>('0' + static_cast<int>(part.kind)));
    all.append(std::to_string(part.call)).append(part.text);
    if (part.kind == PartKind::kCallBegin) Check(part.call == calls++);
  }
  Check(calls == parser.calls());
  return all;
}

void Run(Bytes bytes, std::string_view data) {
  OutputFormat format;
  format.tools =
      static_cast<ToolFormat>(bytes.Between(0, static_cast<int64_t>(ToolFormatNames().size()) - 1));
  format.reasoning = static_cast<ReasoningFormat>(
      bytes.Between(0, static_cast<int64_t>(ReasoningFormatNames().size()) - 1));
  format.opens_reasoning = bytes.Coin();
  data.remove_prefix(std::min<size_t>(3, data.size()));
  const std::string whole = Parsed(format, data, Bytes(nullptr, 0));
  Check(Parsed(format, data, bytes) == whole);
  const bool has_markup_alone = format.tools == ToolFormat::kHarmony ||
                                format.tools == ToolFormat::kFunctionary ||
                                format.reasoning != ReasoningFormat::kNone;
  if (has_markup_alone || whole.find("20") != std::string::npos) return;
  Check(whole == (data.empty() ? "" : "0-1" + std::string(data)));
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Run({data, size}, {reinterpret_cast<const char*>(data), size});
  return 0;
}
