// Which choice an output is of: one flat table with linear probing. Finding takes no memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/client.hpp"

namespace sluice::server {

struct Choice;

class ChoiceTable {
 public:
  // Reserves room for this many more.
  void Reserve(size_t more) {
    const size_t needed = std::bit_ceil(2 * (size_ + more) + 2);
    if (needed <= places_.size()) return;
    std::vector<Place> old(needed);
    old.swap(places_);
    size_ = 0;
    for (const Place& place : old) {
      if (place.choice != nullptr) Insert({place.request}, *place.choice);
    }
  }

  // There is room, and it is not in it.
  void Insert(RequestId request, Choice& choice) {
    places_[FreeOrIts(request.value)] = {request.value, &choice};
    ++size_;
  }

  Choice* Find(RequestId request) const {
    return places_.empty() ? nullptr : places_[FreeOrIts(request.value)].choice;
  }

  // It is in it. The entries after it move up, so that no search ends too early.
  void Erase(RequestId request) {
    size_t hole = FreeOrIts(request.value);
    for (size_t at = Next(hole); places_[at].choice != nullptr; at = Next(at)) {
      const size_t home = Home(places_[at].request);
      if (((at - home) & Mask()) < ((at - hole) & Mask())) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole] = {};
    --size_;
  }

  size_t size() const { return size_; }

 private:
  struct Place {
    uint64_t request = 0;
    Choice* choice = nullptr;  // null: it is free
  };

  size_t Mask() const { return places_.size() - 1; }
  size_t Next(size_t at) const { return (at + 1) & Mask(); }
  // Ids differ in their middle bits; the golden ratio spreads them over the upper ones.
  size_t Home(uint64_t request) const {
    return static_cast<size_t>(request * 0x9E3779B97F4A7C15u >> 32) & Mask();
  }
  size_t FreeOrIts(uint64_t request) const {
    size_t at = Home(request);
    while (places_[at].choice != nullptr && places_[at].request != request) at = Next(at);
    return at;
  }

  std::vector<Place> places_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace sluice::server
