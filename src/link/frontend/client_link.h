// One frontend that said hello, in the state of the link thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "link/frontend/held_rows.h"
#include "link/wire/step_batch.h"
#include "link/wire/wire.h"

namespace sluice::link {

struct ClientLink {
  ClientLink(LinkId link, std::string routing_id, const FrontendFrame& hello, int32_t slots)
      : id(link),
        address(std::move(routing_id)),
        name(hello.hello.name),
        pid(hello.hello.pid),
        next_in(hello.head.number + 1),
        credits(hello.hello.credits),
        is_taken(static_cast<size_t>(slots)),
        held(slots) {}

  // A row goes out.
  void Note(const OutputRow& row) {
    if (row.end != GenerationEnd::kNone) is_taken[static_cast<size_t>(row.address.slot)] = false;
  }

  bool HasSlot(int32_t slot) const { return slot >= 0 && slot < std::ssize(is_taken); }
  void AddCredits(int64_t messages) { credits = std::min(credits + messages, kMostCredits); }

  const LinkId id;
  const std::string address;  // as the socket has it
  const std::string name;
  const int64_t pid;
  uint64_t next_in;
  uint64_t next_out = 0;
  int64_t credits;                  // output messages that may go
  std::vector<bool> is_taken;       // by slot: from its ADD until its end has been sent
  HeldRows held;                    // empty while there are credits
  std::vector<uint32_t> step_rows;  // of the batch that is looked at, their numbers
};

}  // namespace sluice::link
