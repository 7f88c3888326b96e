// Which caches of ended requests the runner keeps, and which pages they have. A request that begins
// with the same tokens shares these pages and reads only what follows.
//
// Only whole pages are kept, so no shared page is ever written. Nothing here owns memory of the
// cache: the schedule counts pages, and the runner has them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/live_request.h"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

class PrefixCache {
 public:
  struct Match {
    int32_t prefix = -1;
    int64_t pages = 0;  // that begin alike
  };

  PrefixCache(int32_t max_prefixes, int64_t page_tokens);

  // The prefix with the most pages of these tokens, at most `most_pages`.
  Match Find(std::span<const int32_t> tokens, int64_t most_pages) const;
  // Pages of the match that no request has: sharing them takes these from what is available.
  int64_t PagesWithoutRequest(const Match& match) const;

  // Gives the request the pages of the match. False, and nothing has changed, without memory.
  bool Share(const Match& match, LiveRequest& request) noexcept;
  // The request gives back all that it shares. Returns how many of them no request has any more.
  int64_t Unshare(LiveRequest& request);

  // Keeps the first pages of a request that ends, unless a prefix has them already. The request
  // still has its pages. Does nothing without memory.
  void Keep(const LiveRequest& request, int64_t pages) noexcept;

  // Pages that prefixes have and no request. They are given back from the one that was used the
  // longest time ago, beginning with its last page.
  int64_t idle_pages() const { return idle_pages_; }
  void ShrinkTo(int64_t idle_pages);

  // What the runner has not been sent yet.
  void Emit(std::vector<KeptPrefix>& kept, std::vector<TrimmedPrefix>& trimmed);

 private:
  struct Owners {
    int32_t requests = 0;
    int32_t prefixes = 0;
  };
  struct Prefix {
    std::vector<int32_t> tokens = {};  // of all its pages
    std::vector<int32_t> pages = {};   // names of pages; empty: the place is free
    uint64_t last_use = 0;
    bool is_trimmed = false;  // since Emit
  };

  Prefix& At(int32_t prefix) { return prefixes_[static_cast<size_t>(prefix)]; }
  const Prefix& At(int32_t prefix) const { return prefixes_[static_cast<size_t>(prefix)]; }
  void TryKeep(const LiveRequest& request, int64_t pages);
  int32_t LeastRecentlyUsed() const;
  void DropLastPage(int32_t prefix);

  int64_t page_tokens_;
  std::vector<Prefix> prefixes_;
  std::vector<int32_t> free_;     // places of prefixes
  std::vector<Owners> pages_;     // by name
  std::vector<int32_t> unnamed_;  // names that no page has
  std::vector<KeptPrefix> kept_;
  std::vector<int32_t> trimmed_;
  int64_t idle_pages_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace sluice::engine
