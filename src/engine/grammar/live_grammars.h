// The compiled grammars that requests have, each counted once. A cache has its own bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sluice/grammar.hpp"

namespace sluice::engine {

// Any thread's.
class LiveGrammars {
 public:
  explicit LiveGrammars(size_t most_bytes) : most_bytes_(most_bytes) {}

  // The bytes with this one; where they are too many it is not added. Each one that was is removed
  // once.
  size_t Add(const Grammar& grammar) {
    const std::lock_guard lock(mutex_);
    const auto place = Find(grammar);
    if (place != entries_.end()) {
      ++place->requests;
      return bytes_;
    }
    const size_t bytes = bytes_ + grammar.bytes();
    if (bytes > most_bytes_) return bytes;
    entries_.push_back({grammar, 1});
    bytes_ = bytes;
    return bytes;
  }

  void Remove(const Grammar& grammar) {
    const std::lock_guard lock(mutex_);
    const auto place = Find(grammar);
    if (--place->requests > 0) return;
    bytes_ -= grammar.bytes();
    std::swap(*place, entries_.back());
    entries_.pop_back();
  }

  size_t most_bytes() const { return most_bytes_; }
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    Grammar grammar;
    int64_t requests;
  };
  std::vector<Entry>::iterator Find(const Grammar& grammar) {
    return std::ranges::find_if(entries_,
                                [&](const Entry& entry) { return entry.grammar.Is(grammar); });
  }

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace sluice::engine
