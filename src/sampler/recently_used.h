// A number of values by their keys, each of which takes memory that is not to grow: the one that
// was used the longest ago makes room for another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

template <typename Key, typename Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(size_t most) : most_(most) { entries_.reserve(most); }

  // Uses it; null when the key is absent. Valid until the next Add.
  Value* Find(const Key& key) {
    for (Entry& entry : entries_) {
      if (!(entry.key == key)) continue;
      entry.used = ++uses_;
      return &entry.value;
    }
    return nullptr;
  }

  // Uses it as well. The key is not there yet.
  Value& Add(const Key& key, Value value) {
    if (entries_.size() == most_) {
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.used < b.used; }));
    }
    entries_.push_back({key, std::move(value), ++uses_});
    return entries_.back().value;
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Key key;
    Value value;
    uint64_t used;
  };

  size_t most_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace sluice
