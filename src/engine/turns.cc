#include "engine/turns.h"

#include <algorithm>

#include "engine/waiting_heap.h"

namespace sluice::engine {
namespace {

bool IsEarlier(const LiveRequest& a, const LiveRequest& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.turn < b.turn;
}

}  // namespace

void Turns::Join(LiveRequest& request) {
  const bool is_named = request.group_id != 0;
  std::unique_ptr<Group>& place =
      is_named ? named_[request.group_id] : of_client_[static_cast<size_t>(request.client.slot)];
  try {
    if (place == nullptr) place = std::make_unique<Group>();
    if (place->members == 0) {
      candidates_.reserve(groups_.size() + 1);
      groups_.push_back(place.get());
    }
  } catch (...) {
    if (is_named && (place == nullptr || place->members == 0)) named_.erase(request.group_id);
    throw;
  }
  Group& group = *place;
  if (group.members == 0) group = {.is_named = is_named, .number = ++numbers_};
  ++group.members;
  request.group = &group;
}

void Turns::Leave(LiveRequest& request) {
  Group* const group = request.group;
  request.group = nullptr;
  if (--group->members > 0) return;
  std::erase(groups_, group);
  if (request.group_id != 0) named_.erase(request.group_id);
}

void Turns::Enqueue(LiveRequest& request, bool is_first) {
  Group& group = *request.group;
  if (group.first_waiting == nullptr && group.filling == 0) {
    group.served = std::max(group.served, level_);
  }
  request.turn = is_first ? -++turns_ : ++turns_;
  group.first_waiting = MergeHeaps(group.first_waiting, &request, IsEarlier);
}

void Turns::Unlink(LiveRequest& request) {
  Group& group = *request.group;
  group.first_waiting = TakeOut(group.first_waiting, request, IsEarlier);
}

LiveRequest* Turns::AnyWaiting() const {
  for (const Group* const group : groups_) {
    if (group->first_waiting != nullptr) return group->first_waiting;
  }
  return nullptr;
}

void Turns::BeginStep() {
  for (Group* const group : groups_) {
    group->is_passed = false;
    group->filling = 0;
    group->next_filling = 0;
  }
  candidates_ = groups_;
}

}  // namespace sluice::engine
