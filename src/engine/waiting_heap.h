// The requests of one group that wait, in an order: a pairing heap over links of their own. To add
// one costs O(1) and to take one out O(log(requests)), amortised, whatever their priorities are; no
// call takes memory.
#pragma once

#include <utility>

#include "engine/live_request.h"

namespace sluice::engine {

// Both are the first of a heap, or null. The first one of both: `is_before` orders requests.
template <typename IsBefore>
LiveRequest* MergeHeaps(LiveRequest* a, LiveRequest* b, IsBefore is_before) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (is_before(*b, *a)) std::swap(a, b);
  b->previous = a;
  b->next = a->child;
  if (b->next != nullptr) b->next->previous = b;
  a->child = b;
  return a;
}

// Of heaps that are linked by `next`: those of each pair, and then all from the last pair on.
template <typename IsBefore>
LiveRequest* MergeAll(LiveRequest* heaps, IsBefore is_before) {
  LiveRequest* pairs = nullptr;
  while (heaps != nullptr) {
    LiveRequest* const a = heaps;
    LiveRequest* const b = std::exchange(a->next, nullptr);
    heaps = b == nullptr ? nullptr : std::exchange(b->next, nullptr);
    LiveRequest* const pair = MergeHeaps(a, b, is_before);
    pair->previous = nullptr;
    pair->next = pairs;
    pairs = pair;
  }
  LiveRequest* all = nullptr;
  while (pairs != nullptr) {
    LiveRequest* const rest = std::exchange(pairs->next, nullptr);
    all = MergeHeaps(all, pairs, is_before);
    pairs = rest;
  }
  return all;
}

// The first one of the rest. The links of `request` are empty then.
template <typename IsBefore>
LiveRequest* TakeOut(LiveRequest* first, LiveRequest& request, IsBefore is_before) {
  LiveRequest* const below = MergeAll(std::exchange(request.child, nullptr), is_before);
  if (&request == first) return below;
  LiveRequest* const previous = std::exchange(request.previous, nullptr);
  LiveRequest* const next = std::exchange(request.next, nullptr);
  (previous->child == &request ? previous->child : previous->next) = next;
  if (next != nullptr) next->previous = previous;
  return MergeHeaps(first, below, is_before);
}

}  // namespace sluice::engine
