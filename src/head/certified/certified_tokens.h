// What a certified head hands on of a row: some of its tokens with their exact logits, and up to
// where they are all of them. The certificates of the CPU and the kernels of a device give the same
// form, so the rules of selection and the draws need nothing else of a head.
#pragma once

#include <cstdint>
#include <span>

#include "semantics/filters/floor.h"
#include "semantics/order.h"

namespace sluice {

// A view, in host or in device memory. On the CPU in the total order and none below `least`; on a
// device in no order, -inf and lower ones among them.
struct CertifiedTokens {
  const semantics::Token* data = nullptr;
  int64_t size = 0;
  // Every token of the row with at least this logit is among them. -inf: every token that is not
  // masked.
  float least = -semantics::Infinity();

  bool HasAll() const { return least == -semantics::Infinity(); }
  std::span<const semantics::Token> span() const { return {data, static_cast<size_t>(size)}; }
};

}  // namespace sluice
