// Memory for workspaces, at the alignment that they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/execution.hpp"

namespace sluice::engine {

class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size = 0)
      : lines_((size + kWorkspaceAlignment - 1) / kWorkspaceAlignment) {}

  std::span<std::byte> span() { return std::as_writable_bytes(std::span(lines_)); }

 private:
  struct alignas(kWorkspaceAlignment) Line {
    std::byte bytes[kWorkspaceAlignment];
  };
  std::vector<Line> lines_;
};

}  // namespace sluice::engine
