// Whose turn it is: the one rule of order among requests.
//
// Requests form groups (EngineRequest::group). The next prompt tokens of a step go to the group
// that has been given the fewest tokens, of prompts and outputs, since it came; one that comes
// starts level with the one that has the fewest. Of equals the one with fewer running requests is
// served first, then the older one. Within a group the lower priority comes first, then the earlier
// request: so a priority orders the requests of its group alone.
//
// An eighth of the slots and pages is kept for groups without a running request: the first request
// of a group need not wait until one of another has ended. Requests without a group of their own
// take these too.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/live_request.h"

namespace sluice::engine {

struct Group {
  bool HasTurn() const { return !is_passed && (filling > 0 || first_waiting != nullptr); }

  bool is_named = false;  // its requests say which group they are of
  int64_t members = 0;    // live requests
  int64_t running = 0;
  int64_t served = 0;  // tokens
  LiveRequest* first_waiting = nullptr;
  LiveRequest* last_waiting = nullptr;

  // Of the step that is planned:
  bool is_passed = false;   // it gets nothing more
  int64_t filling = 0;      // running requests of which prompt tokens are left to bring
  size_t next_filling = 0;  // no request before this place of the running ones is such
};

class Turns {
 public:
  explicit Turns(int32_t max_clients) : of_client_(static_cast<size_t>(max_clients)) {}

  // A live request joins its group, which it names or which its client has, and leaves it.
  void Join(LiveRequest& request);
  void Leave(LiveRequest& request);

  // To its place in the queue of its group; `is_first`: before those of its priority.
  static void Enqueue(LiveRequest& request, bool is_first);
  static void Unlink(LiveRequest& request);
  LiveRequest* AnyWaiting() const;

  void BeginStep();
  // The group to serve next in this step; null: there is none.
  Group* Next() const;

 private:
  std::vector<std::unique_ptr<Group>> of_client_;
  std::unordered_map<uint64_t, std::unique_ptr<Group>> named_;
  std::vector<Group*> groups_;  // with members, the oldest first
};

}  // namespace sluice::engine
