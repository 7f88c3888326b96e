// Turns: the one rule of order among requests.
//
// Requests form groups (EngineRequest::group). The prompt tokens of a step go to the group that has
// been given the fewest tokens, of prompts and outputs. One that begins to wait starts no lower
// than the group that prompt tokens went to last: time without prompts is no credit. A request
// begins only where no other group that waits has fewer running ones: so groups have the same
// number of slots, and of tokens of outputs in a step. Within a group the lower priority comes
// first, then the earlier request: a priority orders the requests of its group alone.
//
// An eighth of the slots and pages is kept for groups without a running request: the first request
// of a group need not wait until one of another has ended. A group that is alone leaves half of
// these slots free, and gives the other half to others as its requests end. Requests without a
// group of their own take these too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/live_request.h"

namespace sluice::engine {

struct Group {
  bool is_named = false;  // its requests say which group they are of
  int64_t members = 0;    // live requests
  int64_t running = 0;
  int64_t served = 0;                    // tokens
  LiveRequest* first_waiting = nullptr;  // of its heap
  int64_t number = 0;                    // an older group has a lower one

  // Of the step that is planned:
  bool is_passed = false;   // no more of its requests begin
  int64_t filling = 0;      // running requests of which prompt tokens are left to bring
  size_t next_filling = 0;  // no request before this place of the running ones is such
};

class Turns {
 public:
  explicit Turns(int32_t max_clients) : of_client_(static_cast<size_t>(max_clients)) {}

  // A live request joins its group, which it names or which its client has, and leaves it.
  void Join(LiveRequest& request);
  void Leave(LiveRequest& request);

  int64_t groups() const { return std::ssize(groups_); }  // with members

  // To its place among those of its group that wait; `is_first`: before those of its priority.
  void Enqueue(LiveRequest& request, bool is_first);
  static void Unlink(LiveRequest& request);
  LiveRequest* AnyWaiting() const;

  void BeginStep();
  // The group is given prompt tokens.
  void Serve(const Group& group) { level_ = std::max(level_, group.served); }
  // The group to serve next in this step; null: there is none. `may_begin` is whether the first
  // request that waits in a group may, as far as that is known; once it may not, none of its group
  // may in this step. O(groups that have something to read in this step).
  template <typename MayBegin>
  Group* Next(MayBegin may_begin) {
    Group* filling = nullptr;
    Group* waiting = nullptr;
    std::erase_if(candidates_, [&](Group* const group) {
      const bool waits = group->first_waiting != nullptr && !group->is_passed && may_begin(*group);
      if (waits && (waiting == nullptr || group->running < waiting->running ||
                    (group->running == waiting->running && IsBefore(*group, *waiting)))) {
        waiting = group;
      }
      if (group->filling > 0 && (filling == nullptr || IsBefore(*group, *filling))) filling = group;
      return !waits && group->filling == 0;
    });
    if (filling == nullptr || waiting == nullptr) return filling == nullptr ? waiting : filling;
    return IsBefore(*waiting, *filling) ? waiting : filling;
  }

 private:
  static bool IsBefore(const Group& a, const Group& b) {
    if (a.served != b.served) return a.served < b.served;
    return a.running != b.running ? a.running < b.running : a.number < b.number;
  }

  std::vector<std::unique_ptr<Group>> of_client_;
  std::unordered_map<uint64_t, std::unique_ptr<Group>> named_;
  std::vector<Group*> groups_;      // with members, the oldest first
  std::vector<Group*> candidates_;  // of these, that may have a turn in this step
  int64_t numbers_ = 0;             // of groups
  int64_t turns_ = 0;               // of requests
  int64_t level_ = 0;  // the most that a group had been given when prompt tokens went to it
};

}  // namespace sluice::engine
