// The library's calls with their buffers, for tests that are about the answer.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::test {

// Memory with the alignment that workspaces need, and an Execution that uses it.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : memory_(bytes + kWorkspaceAlignment) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.data()) % kWorkspaceAlignment;
    span_ =
        std::span(memory_).subspan((kWorkspaceAlignment - misaligned) % kWorkspaceAlignment, bytes);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::span<std::byte> span() const { return span_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> span_;
};

struct Selection {
  std::vector<Cut> cuts;
  std::vector<CutMass> masses;
};

// Selects twice, because a backend may have a faster way when nobody asks for masses: the cuts are
// those of the way without, and the way with them must agree.
inline Selection Selected(const SelectInput& input, Backend backend = Backend::kRef) {
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  const size_t rows = static_cast<size_t>(input.logits.rows);
  Selection selection{std::vector<Cut>(rows), std::vector<CutMass>(rows)};
  Select(input, selection.cuts, {}, {backend, {}, workspace.span()});
  std::vector<Cut> cuts(rows);
  Select(input, cuts, selection.masses, {backend, {}, workspace.span()});
  if (!(cuts == selection.cuts)) throw std::logic_error("asking for masses changed a Cut");
  return selection;
}

inline std::vector<TokenResult> Sampled(const SelectInput& input,
                                        DrawMethod method = DrawMethod::kGumbel,
                                        Backend backend = Backend::kRef) {
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  std::vector<TokenResult> results(static_cast<size_t>(input.logits.rows));
  Sample(input, method, results, {backend, {}, workspace.span()});
  return results;
}

// The ids that each Cut keeps, ascending.
inline std::vector<std::vector<int32_t>> KeptIds(const LogitsView& logits,
                                                 std::span<const Cut> cuts,
                                                 Backend backend = Backend::kRef) {
  const size_t words = static_cast<size_t>((logits.vocab + 31) / 32);
  std::vector<int32_t> bitmask(cuts.size() * words);
  KeptBitmask(logits, cuts, bitmask, {backend});
  std::vector<std::vector<int32_t>> ids(cuts.size());
  for (size_t r = 0; r < cuts.size(); ++r) {
    for (int64_t id = 0; id < logits.vocab; ++id) {
      const uint32_t word =
          static_cast<uint32_t>(bitmask[r * words + static_cast<size_t>(id / 32)]);
      if ((word >> (id % 32)) & 1u) ids[r].push_back(static_cast<int32_t>(id));
    }
  }
  return ids;
}

}  // namespace sluice::test
