#include "engine/turns.h"

#include <algorithm>

namespace sluice::engine {
void Turns::Join(LiveRequest& request) {
  const bool is_named = request.group_id != 0;
  std::unique_ptr<Group>& place =
      is_named ? named_[request.group_id] : of_client_[static_cast<size_t>(request.client.slot)];
  try {
    if (place == nullptr) place = std::make_unique<Group>();
    if (place->members == 0) groups_.push_back(place.get());
  } catch (...) {
    if (is_named && (place == nullptr || place->members == 0)) named_.erase(request.group_id);
    throw;
  }
  Group& group = *place;
  if (group.members == 0) group = {.is_named = is_named};
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
  LiveRequest* before = nullptr;
  LiveRequest* after = nullptr;
  if (is_first) {
    after = group.first_waiting;
    while (after != nullptr && after->priority < request.priority) after = after->next;
    before = after != nullptr ? after->previous : group.last_waiting;
  } else {
    before = group.last_waiting;
    while (before != nullptr && before->priority > request.priority) before = before->previous;
    after = before != nullptr ? before->next : group.first_waiting;
  }
  request.previous = before;
  request.next = after;
  (before != nullptr ? before->next : group.first_waiting) = &request;
  (after != nullptr ? after->previous : group.last_waiting) = &request;
}

void Turns::Unlink(LiveRequest& request) {
  Group& group = *request.group;
  (request.previous != nullptr ? request.previous->next : group.first_waiting) = request.next;
  (request.next != nullptr ? request.next->previous : group.last_waiting) = request.previous;
  request.next = request.previous = nullptr;
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
}

}  // namespace sluice::engine
