// Hidden states of a model: those of a text, window by window, and those of the model's own
// continuations of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/aligned_workspace.h"
#include "sluice/checkpoint.hpp"
#include "sluice/decoder.hpp"

namespace sluice::bench {

struct ModelStatesOptions {
  int64_t states = 25000;  // of each source; of the text no more than it has
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

class ModelStates {
 public:
  // Is given each state, one row, and answers with its logits by the dense head, which stay until
  // the next one comes.
  using Visit = std::function<std::span<const float>(const MatrixView& hidden)>;

  // Throws Error when the text has too few tokens to begin with.
  ModelStates(const Checkpoint& checkpoint, std::string_view text,
              const ModelStatesOptions& options,
              const std::function<void(const std::string&)>& on_progress);

  // Windows of a context each, spread over the text.
  void OfText(const Visit& visit);
  // As the model's authors sample them, up to a context's end; an end token is drawn like any
  // other.
  void OfItsOwn(const Visit& visit);

 private:
  std::span<const int32_t> Tokens(int64_t first, int64_t count) const {
    return std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }
  MatrixView Hidden(int64_t row) const {
    return {hidden_.data() + row * dim_, 1, dim_, dim_, DType::kF32, {}};
  }
  void Report(const std::string& source, int64_t done) const;

  const Checkpoint& checkpoint_;
  const std::vector<int32_t> tokens_;
  const ModelStatesOptions options_;
  const std::function<void(const std::string&)>& on_progress_;
  int64_t dim_;
  int64_t context_;
  Decoder decoder_;
  std::vector<float> hidden_;
  AlignedWorkspace workspace_;  // of a draw
};

}  // namespace sluice::bench
