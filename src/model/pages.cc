#include "model/pages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "support/check.h"

namespace sluice::model {
namespace {

constexpr int64_t kPage = Decoder::kPageTokens;

int64_t PagesOf(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

}  // namespace

Pages::Pages(int64_t count) : owners_(static_cast<size_t>(count), 0) {
  free_.reserve(static_cast<size_t>(count));
  for (int64_t page = count; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

int32_t Pages::Take() {
  const int32_t page = free_.back();
  free_.pop_back();
  owners_[static_cast<size_t>(page)] = 1;
  return page;
}

void Pages::Release(int32_t page) {
  if (--owners_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int64_t Sequence::Lacks(const Pages& all, int64_t tokens) const {
  if (tokens == 0) return 0;
  const bool must_copy = length % kPage != 0 && all.IsShared(pages.back());
  return PagesOf(length + tokens) - static_cast<int64_t>(pages.size()) + (must_copy ? 1 : 0);
}

Sequences::Sequences(int64_t count, int64_t pages, int64_t pages_of_one)
    : pages_(pages), all_(static_cast<size_t>(count)) {
  for (Sequence& one : all_) one.pages.reserve(static_cast<size_t>(pages_of_one));
}

SequenceHandle Sequences::Add() {
  const auto slot =
      std::find_if(all_.begin(), all_.end(), [](const Sequence& s) { return !s.is_live; });
  if (slot == all_.end()) {
    throw Error(ErrorCode::kExhausted, "max_sequences", ToText(std::ssize(all_)),
                "more sequences than exist");
  }
  slot->is_live = true;
  slot->length = 0;
  return {static_cast<int32_t>(slot - all_.begin()), slot->generation};
}

SequenceHandle Sequences::Fork(SequenceHandle sequence, int64_t length) {
  CheckInRange("length", length, 0, At(sequence).length);
  const SequenceHandle handle = Add();
  const Sequence& from = At(sequence);
  Sequence& fork = At(handle);
  fork.length = length;
  fork.pages.assign(from.pages.begin(), from.pages.begin() + PagesOf(length));
  for (const int32_t page : fork.pages) pages_.Share(page);
  return handle;
}

void Sequences::Remove(SequenceHandle handle) {
  Truncate(handle, 0);
  Sequence& sequence = At(handle);
  sequence.is_live = false;
  ++sequence.generation;
}

void Sequences::Truncate(SequenceHandle handle, int64_t length) {
  Sequence& sequence = At(handle);
  CheckInRange("length", length, 0, sequence.length);
  sequence.length = length;
  while (std::ssize(sequence.pages) > PagesOf(length)) {
    pages_.Release(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

Sequence& Sequences::At(SequenceHandle handle) {
  return const_cast<Sequence&>(std::as_const(*this).At(handle));
}

const Sequence& Sequences::At(SequenceHandle handle) const {
  const bool is_there = handle.slot >= 0 && handle.slot < std::ssize(all_);
  const Sequence* const sequence = is_there ? &all_[static_cast<size_t>(handle.slot)] : nullptr;
  if (sequence == nullptr || !sequence->is_live || sequence->generation != handle.generation) {
    ThrowInvalid("sequence", "slot " + std::to_string(handle.slot),
                 "a sequence that Add or Fork gave");
  }
  return *sequence;
}

}  // namespace sluice::model
