// Memory for a call of the library, at the alignment that it requires.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sluice/select.hpp"

namespace sluice::cli {

class Workspace {
 public:
  Workspace(const LogitsView& logits, Backend backend)
      : lines_(SelectWorkspaceBytes(logits, {backend}) / kWorkspaceAlignment + 1) {}

  std::span<std::byte> span() { return std::as_writable_bytes(std::span(lines_)); }

 private:
  struct alignas(kWorkspaceAlignment) Line {
    std::byte bytes[kWorkspaceAlignment];
  };
  std::vector<Line> lines_;
};

}  // namespace sluice::cli
