// Which pages of the cache belong to which sequences. Sequences that began alike share pages; a
// page is written only by a sequence that has it for itself.
#pragma once

#include <cstdint>
#include <vector>

#include "sluice/decoder.hpp"

namespace sluice::model {

class Pages {
 public:
  explicit Pages(int64_t count);

  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int32_t Take();  // there must be a free one
  void Share(int32_t page) { ++owners_[static_cast<size_t>(page)]; }
  void Release(int32_t page);
  bool IsShared(int32_t page) const { return owners_[static_cast<size_t>(page)] > 1; }

 private:
  std::vector<int32_t> free_;
  std::vector<int32_t> owners_;
};

struct Sequence {
  bool is_live = false;
  uint32_t generation = 0;
  int64_t length = 0;
  std::vector<int32_t> pages;
  uint64_t batch = 0;  // the last one that had it

  // Pages that it lacks for `tokens` more, one that it has to copy included.
  int64_t Lacks(const Pages& all, int64_t tokens) const;
};

class Sequences {
 public:
  Sequences(int64_t count, int64_t pages, int64_t pages_of_one);

  Pages& pages() { return pages_; }
  const Pages& pages() const { return pages_; }
  SequenceHandle Add();  // throws Error with kExhausted
  SequenceHandle Fork(SequenceHandle sequence, int64_t length);
  void Remove(SequenceHandle sequence);
  void Truncate(SequenceHandle sequence, int64_t length);
  // Throws Error for a handle that names none.
  Sequence& At(SequenceHandle handle);
  const Sequence& At(SequenceHandle handle) const;

 private:
  Pages pages_;
  std::vector<Sequence> all_;
};

}  // namespace sluice::model
