// Any bytes as a frame, for both sides: refused, or a frame that writes and reads back equal.
//
// The first byte says the side: even for what an engine reads, odd for a frontend.
#include <memory>

#include "tests/fuzz/bytes.h"
#include "tests/link/frames.h"

namespace sluice::fuzz {
namespace {

std::string Read(std::string_view bytes, link::FrontendFrame& frame) {
  return link::ReadFrontendFrame(bytes, frame);
}
std::string Read(std::string_view bytes, link::EngineFrame& frame) {
  return link::ReadEngineFrame(bytes, frame);
}

// What was read first must not shine through: the second time, `frame` has had another one.
template <typename Frame>
void Run(std::string_view bytes, Frame& frame) {
  if (!Read(bytes, frame).empty()) return;
  const std::string written = test::Rewritten(frame);
  Frame again;
  Check(Read(written, again).empty());
  Check(test::Rewritten(again) == written);
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static sluice::link::FrontendFrame frontend;
  static sluice::link::EngineFrame engine;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    sluice::fuzz::Run(bytes, frontend);
  } else {
    sluice::fuzz::Run(bytes, engine);
  }
  return 0;
}
