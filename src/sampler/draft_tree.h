// The drafts of a request as a tree. Node 0 is the end of its tokens, node i + 1 draft i, which has
// the row of the logits with its number. Without parents they are a chain.
#pragma once

#include <algorithm>
#include <array>

#include "semantics/draw/draft.h"
#include "sluice/sampler.hpp"
#include "support/check.h"

namespace sluice {

class DraftTree {
 public:
  explicit DraftTree(const StepRequest& request)
      : drafts_(request.drafts), parents_(request.parents) {}

  int32_t size() const { return static_cast<int32_t>(drafts_.size()); }
  // Of draft i.
  int32_t Parent(int32_t i) const {
    return parents_.empty() ? i : parents_[static_cast<size_t>(i)] + 1;
  }
  // The first child draft of a node from `draft` on; size(): none. Children come after their node.
  int32_t NextChild(int32_t node, int32_t draft) const {
    draft = std::max(draft, node);
    if (parents_.empty()) return draft == node ? node : size();
    while (draft < size() && Parent(draft) != node) ++draft;
    return draft;
  }
  // The first child of a node that is this token.
  int32_t Find(int32_t node, int32_t token) const {
    int32_t draft = NextChild(node, 0);
    while (draft < size() && drafts_[static_cast<size_t>(draft)] != token) {
      draft = NextChild(node, draft + 1);
    }
    return draft;
  }

 private:
  std::span<const int32_t> drafts_;
  std::span<const int32_t> parents_;
};

inline void CheckParents(const StepRequest& request, DraftMode mode) {
  const std::span<const int32_t> parents = request.parents;
  if (parents.empty()) return;
  CheckSize("parents", parents.size(), static_cast<int64_t>(request.drafts.size()));
  for (size_t i = 0; i < parents.size(); ++i) {
    CheckInRange("parents", parents[i], -1, static_cast<int64_t>(i) - 1);
  }
  if (mode == DraftMode::kReject) {
    CheckInRange("drafts.size()", static_cast<int64_t>(parents.size()), 0, semantics::kMostTries);
  }
}

}  // namespace sluice
