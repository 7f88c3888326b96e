// What vLLM's EngineCore sends: EngineCoreOutputs, as MessagePack in the layout of the version that
// docs/plugins/vllm-engine.md names. Fields that Sluice does not use are passed over.
//
// A message has one frame or more: arrays that are large lie in frames of their own, in their
// order. A reader believes nothing, as of Sluice's own frames: every length is compared with the
// bytes of the frame, every number with its range, and a message is taken whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::link::vllm {

enum class FinishReason : uint8_t {
  kStop = 0,
  kLength = 1,
  kAbort = 2,
  kError = 3,
  kRepetition = 4,
};

// A row each for this many tokens: the token itself, then the most likely ones. The engine's lists
// are as wide as the widest that a request of the step has. A value may be NaN, as the logits of
// one request may: that is no matter of the others.
struct TokenLists {
  size_t rows = 0;
  size_t width = 0;
  std::span<const int32_t> ids = {};
  std::span<const float> values = {};
  std::span<const int32_t> ranks = {};
};

// The result of one step for one request.
struct EngineCoreOutput {
  std::string_view request_id = {};
  std::span<const int32_t> ids = {};
  std::optional<TokenLists> logprobs = {};
  std::optional<TokenLists> prompt_logprobs = {};
  std::optional<FinishReason> finish = {};
  int64_t cached_tokens = -1;  // of the prompt, in one of a request's outputs; -1: not said
  // With kError, where the engine says why: its name for it, and a text.
  std::string_view error_code = {};
  std::string_view error_message = {};
};

// Its text points into the frames, its lists into memory that is used again.
struct EngineCoreOutputs {
  std::vector<EngineCoreOutput> outputs = {};
  std::optional<int64_t> answered = {};  // the number of a ping

  std::vector<int32_t> numbers = {};
  std::vector<float> reals = {};
};

// Empty, or why the frames are no outputs; then `outputs` means nothing. Memory is taken for at
// most a small multiple of the bytes.
std::string ReadOutputs(std::span<const std::string_view> frames, EngineCoreOutputs& outputs);

}  // namespace sluice::link::vllm
