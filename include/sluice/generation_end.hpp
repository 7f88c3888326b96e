// Why an output ended. The values are also those of the wire.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class GenerationEnd : uint8_t {
  kNone = 0,        // it goes on
  kStopString = 1,  // delta.stop says which
  kStopToken = 2,   // delta.stop_token says which
  kLength = 3,      // max_tokens
  kContext = 4,     // prompt and output fill the model's context
  kStatus = 5,      // no token could be drawn: the status says why
  kCancelled = 6,   // by the caller or the client
  kRejected = 7,    // the engine did not take the request: the message says why
  kEngineLost = 8,  // the engine died, or does not answer
};
inline constexpr int kGenerationEnds = 9;

std::string_view Name(GenerationEnd end);  // "stop_string", "length", ...

}  // namespace sluice
