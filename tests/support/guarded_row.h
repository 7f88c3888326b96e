// One row between two pages that nobody may touch: a read or a write beyond it ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <vector>

#include "sluice/tensor.hpp"
#include "tests/support/batch.h"

namespace sluice::test {

enum class GuardSide : uint8_t { kFront, kBack };  // which page the row touches

class GuardedRow {
 public:
  GuardedRow(const std::vector<float>& values, DType dtype, GuardSide side)
      : vocab_(static_cast<int64_t>(values.size())), dtype_(dtype) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = values.size() * SizeOf(dtype);
    const size_t inside = (bytes + page - 1) / page * page;
    size_ = inside + 2 * page;
    void* memory = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    if (mprotect(memory_ + page, inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    row_ = memory_ + page + (side == GuardSide::kFront ? 0 : inside - bytes);
    const Batch batch({values}, dtype, 0);
    std::memcpy(row_, batch.view().data, bytes);
  }
  ~GuardedRow() { munmap(memory_, size_); }
  GuardedRow(const GuardedRow&) = delete;
  GuardedRow& operator=(const GuardedRow&) = delete;

  LogitsView view() const { return {row_, 1, vocab_, vocab_, dtype_, {}}; }
  MutableLogitsView mutable_view() const { return {row_, 1, vocab_, vocab_, dtype_, {}}; }

 private:
  int64_t vocab_;
  DType dtype_;
  size_t size_;
  std::byte* memory_;
  std::byte* row_;
};

}  // namespace sluice::test
