// Memory of one pending operation, inside the connection that waits: so waiting takes none from the
// heap. A handler that is too large, or a second one at a time, does.
#pragma once

#include <cstddef>
#include <new>

namespace sluice::server {

class HandlerMemory {
 public:
  HandlerMemory() = default;
  HandlerMemory(const HandlerMemory&) = delete;
  HandlerMemory& operator=(const HandlerMemory&) = delete;

  void* Allocate(size_t bytes) {
    if (is_used_ || bytes > sizeof storage_) return ::operator new(bytes);
    is_used_ = true;
    return storage_;
  }
  void Free(void* memory) {
    if (memory == storage_) {
      is_used_ = false;
    } else {
      ::operator delete(memory);
    }
  }

 private:
  alignas(std::max_align_t) std::byte storage_[112];  // a wait of Asio 1.18 takes 104
  bool is_used_ = false;
};

template <typename T>
class HandlerAllocator {
 public:
  using value_type = T;

  explicit HandlerAllocator(HandlerMemory& memory) : memory_(&memory) {}
  template <typename U>
  HandlerAllocator(const HandlerAllocator<U>& other)  // NOLINT(google-explicit-constructor)
      : memory_(other.memory_) {}

  T* allocate(size_t count) { return static_cast<T*>(memory_->Allocate(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { memory_->Free(memory); }

  friend bool operator==(const HandlerAllocator& a, const HandlerAllocator& b) {
    return a.memory_ == b.memory_;
  }

 private:
  template <typename>
  friend class HandlerAllocator;
  HandlerMemory* memory_;
};

}  // namespace sluice::server
