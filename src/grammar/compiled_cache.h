// Compiled grammars by their text. The one that was not used for longest goes first.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "grammar/compiled.h"

namespace sluice::grammar {

class CompiledCache {
 public:
  explicit CompiledCache(size_t most_bytes) : most_bytes_(most_bytes) {}

  std::shared_ptr<const Compiled> Find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->compiled;
  }

  bool Has(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    return places_.contains(key);
  }

  void Add(const std::string& key, std::shared_ptr<const Compiled> compiled) {
    const size_t bytes = key.size() + compiled->bytes;
    const std::lock_guard lock(mutex_);
    if (bytes > most_bytes_ || places_.contains(key)) return;
    while (bytes_ + bytes > most_bytes_) {
      bytes_ -= entries_.back().bytes;
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front({key, std::move(compiled), bytes});
    places_.emplace(entries_.front().key, entries_.begin());
    bytes_ += bytes;
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Compiled> compiled;
    size_t bytes;
  };

  size_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace sluice::grammar
