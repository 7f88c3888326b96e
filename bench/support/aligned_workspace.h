// Memory for calls of the library, at the alignment that they need.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "sluice/execution.hpp"

namespace sluice::bench {

class AlignedWorkspace {
 public:
  explicit AlignedWorkspace(size_t size)
      : size_(size),
        memory_(static_cast<std::byte*>(
            ::operator new(size + 1, std::align_val_t{kWorkspaceAlignment}))) {}
  std::span<std::byte> span() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t{kWorkspaceAlignment});
    }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace sluice::bench
