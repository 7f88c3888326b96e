#include "bench/stages/row_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace sluice::bench {
namespace {

size_t StrideOf(int64_t vocab, DType dtype) {
  return (static_cast<size_t>(vocab) * SizeOf(dtype) + 63) / 64 * 64;
}

int64_t PairsOf(size_t walk, size_t stride, int64_t rows) {
  return std::max(rows, static_cast<int64_t>((walk + 2 * stride - 1) / (2 * stride)));
}

}  // namespace

RowStore::RowStore(int64_t vocab, int64_t rows, size_t bytes)
    : vocab_(vocab), rows_(rows), walk_(bytes) {
  const size_t stride = StrideOf(vocab, DType::kF32);  // fp32 rows need the most
  size_ = static_cast<size_t>(PairsOf(bytes, stride, rows)) * 2 * stride + 2 * stride;
  void* const memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Pages of 2 MiB where the system gives them: a cold row is to wait for memory, not for the
  // pages' addresses. Without them everything works the same.
  madvise(memory, size_, MADV_HUGEPAGE);
#endif
  memory_ = static_cast<std::byte*>(memory);
}

RowStore::~RowStore() { munmap(memory_, size_); }

NucleusSizes RowStore::Fill(DType dtype, std::span<const std::vector<float>> sources) {
  dtype_ = dtype;
  stride_ = StrideOf(vocab_, dtype);
  pairs_ = PairsOf(walk_, stride_, rows_);
  next_pair_ = 0;
  std::vector<int64_t> sizes;
  std::vector<float> row;
  std::vector<uint16_t> narrow(static_cast<size_t>(vocab_));
  for (int64_t r = 0; r < rows_; ++r) {
    row = sources[static_cast<size_t>(r)];
    const void* bytes = row.data();
    if (dtype == DType::kBf16) {
      for (size_t i = 0; i < row.size(); ++i) {
        narrow[i] = RoundToBf16(row[i]);
        row[i] = WidenBf16(narrow[i]);
      }
      bytes = narrow.data();
    }
    sizes.push_back(NucleusSize(row));
    const size_t row_bytes = static_cast<size_t>(vocab_) * SizeOf(dtype);
    for (int64_t pair = r; pair < pairs_; pair += rows_) {
      std::memcpy(Slot(2 * pair), bytes, row_bytes);
      std::memcpy(Slot(2 * pair + 1), bytes, row_bytes);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  return {sizes.front(), sizes[sizes.size() / 2], sizes.back()};
}

RowStore::ColdPair RowStore::NextCold() {
  const int64_t pair = next_pair_;
  next_pair_ = pair + 1 < pairs_ ? pair + 1 : 0;
  return {pair % rows_, Slot(2 * pair), Slot(2 * pair + 1)};
}

}  // namespace sluice::bench
