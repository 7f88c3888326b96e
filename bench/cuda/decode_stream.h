// A peer: the algorithm of DecodeStream of Hugging Face tokenizers, which vLLM and others use, over
// Sluice's own decoding of a whole list of ids.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice::bench {

class DecodeStream {
 public:
  explicit DecodeStream(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Appends what is new when the window's text grew and does not end in U+FFFD.
  void Step(int32_t id, std::string& text) {
    if (prefix_.empty() && !ids_.empty()) {
      std::string before = tokenizer_.Decode(ids_);
      if (!before.ends_with("\uFFFD")) {
        prefix_ = std::move(before);
        prefix_index_ = ids_.size();
      }
    }
    ids_.push_back(id);
    const std::string now = tokenizer_.Decode(ids_);
    if (now.size() <= prefix_.size() || now.ends_with("\uFFFD")) return;
    text.append(now, prefix_.size());
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(prefix_index_));
    prefix_ = tokenizer_.Decode(ids_);
    prefix_index_ = ids_.size();
  }

 private:
  Tokenizer tokenizer_;
  std::vector<int32_t> ids_;
  std::string prefix_;
  size_t prefix_index_ = 0;
};

}  // namespace sluice::bench
