#include "bench/head/model_states.h"

#include <algorithm>
#include <utility>

#include "sluice/draw.hpp"
#include "sluice/error.hpp"
#include "sluice/select.hpp"

namespace sluice::bench {
namespace {

constexpr int64_t kChunk = 256;    // tokens of one Forward
constexpr int64_t kPrompt = 32;    // tokens of the text that a continuation begins with
constexpr int64_t kTogether = 16;  // continuations that share their steps
constexpr int64_t kSpread = 4999;  // tokens from the place of one prompt to the next one's

std::vector<int32_t> TokensOf(const Checkpoint& checkpoint, std::string_view text) {
  std::vector<int32_t> tokens = checkpoint.tokenizer().Encode(text);
  if (std::ssize(tokens) <= kPrompt) {
    throw Error(ErrorCode::kInvalidValue, "text", std::to_string(tokens.size()) + " tokens",
                "more than " + std::to_string(kPrompt));
  }
  return tokens;
}

}  // namespace

ModelStates::ModelStates(const Checkpoint& checkpoint, std::string_view text,
                         const ModelStatesOptions& options,
                         const std::function<void(const std::string&)>& on_progress)
    : checkpoint_(checkpoint),
      tokens_(TokensOf(checkpoint, text)),
      options_(options),
      on_progress_(on_progress),
      dim_(checkpoint.model().info().dim),
      context_(checkpoint.model().info().context),
      decoder_(checkpoint.model(), {.max_sequences = kTogether,
                                    .max_batch_tokens = kChunk,
                                    .backend = options.backend,
                                    .parallel = options.parallel}),
      hidden_(static_cast<size_t>(kChunk * dim_)),
      workspace_(SelectWorkspaceBytes(
          {hidden_.data(), 1, checkpoint.vocab(), checkpoint.vocab(), DType::kF32, {}},
          {.backend = options.backend})) {}

void ModelStates::OfText(const Visit& visit) {
  const auto size = std::min(context_, std::ssize(tokens_));
  const int64_t most = std::ssize(tokens_) / size;
  const int64_t windows = std::clamp((options_.states + size - 1) / size, int64_t{1}, most);
  const SequenceHandle sequence = decoder_.Add();
  int64_t done = 0;
  for (int64_t window = 0; window < windows; ++window) {
    decoder_.Truncate(sequence, 0);
    const int64_t first = window * (std::ssize(tokens_) / windows);
    for (int64_t at = 0; at < size && done < options_.states; at += kChunk) {
      const int64_t rows = std::min({kChunk, size - at, options_.states - done});
      const DecodeChunk chunk{sequence, Tokens(first + at, rows), rows};
      decoder_.Forward({&chunk, 1}, {hidden_.data(), static_cast<size_t>(rows * dim_)});
      for (int64_t r = 0; r < rows; ++r) visit(Hidden(r));
      done += rows;
      Report("text", done);
    }
  }
  decoder_.Remove(sequence);
}

void ModelStates::OfItsOwn(const Visit& visit) {
  const SelectParams params = checkpoint_.generation_config().params.Select();
  int64_t done = 0;
  for (uint64_t round = 0; done < options_.states; ++round) {
    std::vector<SequenceHandle> sequences;
    std::vector<int32_t> last;
    for (int64_t s = 0; s < kTogether; ++s) {
      sequences.push_back(decoder_.Add());
      const int64_t place = (static_cast<int64_t>(round) * kTogether + s) * kSpread;
      const int64_t first = place % (std::ssize(tokens_) - kPrompt);
      const DecodeChunk prompt{sequences.back(), Tokens(first, kPrompt - 1), 0};
      decoder_.Forward({&prompt, 1}, {});
      last.push_back(tokens_[static_cast<size_t>(first + kPrompt - 1)]);
    }
    for (int64_t at = kPrompt; at < context_ && done < options_.states; ++at) {
      std::vector<DecodeChunk> chunks;
      for (size_t s = 0; s < sequences.size(); ++s) chunks.push_back({sequences[s], {&last[s], 1}});
      decoder_.Forward(chunks, {hidden_.data(), static_cast<size_t>(kTogether * dim_)});
      for (int64_t s = 0; s < kTogether && done < options_.states; ++s, ++done) {
        const std::span<const float> logits = visit(Hidden(s));
        const NoiseKey key{.seed = round,
                           .position = static_cast<uint32_t>(at),
                           .choice = static_cast<uint32_t>(s)};
        const LogitsView row{logits.data(),      1,           std::ssize(logits),
                             std::ssize(logits), DType::kF32, {}};
        TokenResult result;
        Sample({row, {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, {&result, 1},
               {.backend = options_.backend, .workspace = workspace_.span()});
        last[static_cast<size_t>(s)] = result.id;
      }
      Report("own", done);
    }
    for (const SequenceHandle& sequence : sequences) decoder_.Remove(sequence);
  }
}

void ModelStates::Report(const std::string& source, int64_t done) const {
  on_progress_(source + ", " + std::to_string(done) + " of " + std::to_string(options_.states));
}

}  // namespace sluice::bench
