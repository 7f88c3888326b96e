#include "engine/prefix_cache.h"

#include <algorithm>
#include <new>

namespace sluice::engine {

PrefixCache::PrefixCache(int32_t max_prefixes, int64_t page_tokens)
    : page_tokens_(page_tokens), prefixes_(static_cast<size_t>(max_prefixes)) {
  for (int32_t prefix = max_prefixes; prefix-- > 0;) free_.push_back(prefix);
  trimmed_.reserve(prefixes_.size());
}

// Prefixes often begin alike, with a system's prompt. So a prefix is first compared at the page
// that would make it the longest, and from the beginning only if that one is equal.
PrefixCache::Match PrefixCache::Find(std::span<const int32_t> tokens, int64_t most_pages) const {
  Match best;
  const auto size = static_cast<size_t>(page_tokens_);
  const auto is_equal = [&](const Prefix& prefix, int64_t page) {
    const auto begin = static_cast<size_t>(page) * size;
    return std::ranges::equal(tokens.subspan(begin, size),
                              std::span(prefix.tokens).subspan(begin, size));
  };
  most_pages = std::min(most_pages, std::ssize(tokens) / page_tokens_);
  for (size_t i = 0; i < prefixes_.size(); ++i) {
    const Prefix& prefix = prefixes_[i];
    const int64_t most = std::min(most_pages, std::ssize(prefix.pages));
    if (most <= best.pages || !is_equal(prefix, best.pages)) continue;
    int64_t pages = 0;
    while (pages < most && is_equal(prefix, pages)) ++pages;
    if (pages > best.pages) best = {static_cast<int32_t>(i), pages};
  }
  return best;
}

int64_t PrefixCache::PagesWithoutRequest(const Match& match) const {
  if (match.pages == 0) return 0;
  const auto pages = std::span(At(match.prefix).pages).first(static_cast<size_t>(match.pages));
  return std::ranges::count_if(
      pages, [&](int32_t page) { return pages_[static_cast<size_t>(page)].requests == 0; });
}

bool PrefixCache::Share(const Match& match, LiveRequest& request) noexcept {
  Prefix& prefix = At(match.prefix);
  try {
    request.shared_pages.assign(prefix.pages.begin(), prefix.pages.begin() + match.pages);
  } catch (const std::bad_alloc&) {
    return false;
  }
  prefix.last_use = ++uses_;
  for (const int32_t page : request.shared_pages) {
    if (pages_[static_cast<size_t>(page)].requests++ == 0) --idle_pages_;
  }
  return true;
}

int64_t PrefixCache::Unshare(LiveRequest& request) {
  int64_t without_request = 0;
  for (const int32_t page : request.shared_pages) {
    Owners& owners = pages_[static_cast<size_t>(page)];
    if (--owners.requests > 0) continue;
    ++without_request;
    if (owners.prefixes > 0) {
      ++idle_pages_;
    } else {
      unnamed_.push_back(page);
    }
  }
  request.shared_pages.clear();
  return without_request;
}

void PrefixCache::Keep(const LiveRequest& request, int64_t pages) noexcept {
  if (prefixes_.empty() || pages == 0) return;
  try {
    TryKeep(request, pages);
  } catch (const std::bad_alloc&) {  // its tokens are read again, where they come again
  }
}

void PrefixCache::TryKeep(const LiveRequest& request, int64_t pages) {
  const auto tokens = std::span(request.tokens).first(static_cast<size_t>(pages * page_tokens_));
  const Match match = Find(tokens, pages);
  if (match.pages == pages) {
    At(match.prefix).last_use = ++uses_;
    return;
  }
  if (free_.empty()) {  // one is free after the next plan
    const int32_t oldest = LeastRecentlyUsed();
    while (oldest >= 0 && !At(oldest).pages.empty()) DropLastPage(oldest);
    return;
  }
  // All memory first.
  const auto count = static_cast<size_t>(pages);
  Prefix made;
  made.tokens.assign(tokens.begin(), tokens.end());
  made.pages.reserve(count);
  kept_.reserve(kept_.size() + 1);
  const size_t shared = std::min(request.shared_pages.size(), count);
  const size_t named = std::min(unnamed_.size(), count - shared);
  const size_t names = pages_.size() + count - shared - named;
  if (names > pages_.capacity()) pages_.reserve(2 * names);
  unnamed_.reserve(pages_.capacity());

  made.last_use = ++uses_;
  const std::span of_prefixes = std::span(request.shared_pages).first(shared);
  made.pages.assign(of_prefixes.begin(), of_prefixes.end());
  while (made.pages.size() < count) {
    if (unnamed_.empty()) {
      made.pages.push_back(static_cast<int32_t>(pages_.size()));
      pages_.emplace_back();
    } else {
      made.pages.push_back(unnamed_.back());
      unnamed_.pop_back();
    }
    ++idle_pages_;  // the request has its own under no name, and gives them back
  }
  for (const int32_t page : made.pages) ++pages_[static_cast<size_t>(page)].prefixes;
  const int32_t place = free_.back();
  free_.pop_back();
  At(place) = std::move(made);
  kept_.push_back({.slot = request.slot, .prefix = place, .tokens = std::ssize(tokens)});
  // A prefix that the new one begins with is of no more use.
  if (match.pages > 0 && std::ssize(At(match.prefix).pages) == match.pages) {
    while (!At(match.prefix).pages.empty()) DropLastPage(match.prefix);
  }
  // A place for the next one.
  if (const int32_t oldest = LeastRecentlyUsed(); free_.empty() && oldest != place) {
    while (!At(oldest).pages.empty()) DropLastPage(oldest);
  }
}

// -1: no place has a prefix.
int32_t PrefixCache::LeastRecentlyUsed() const {
  int32_t oldest = -1;
  for (int32_t i = 0; i < std::ssize(prefixes_); ++i) {
    if (At(i).pages.empty()) continue;
    if (oldest < 0 || At(i).last_use < At(oldest).last_use) oldest = i;
  }
  return oldest;
}

void PrefixCache::DropLastPage(int32_t place) {
  Prefix& prefix = At(place);
  const int32_t page = prefix.pages.back();
  prefix.pages.pop_back();
  prefix.tokens.resize(prefix.tokens.size() - static_cast<size_t>(page_tokens_));
  Owners& owners = pages_[static_cast<size_t>(page)];
  if (--owners.prefixes == 0 && owners.requests == 0) {
    --idle_pages_;
    unnamed_.push_back(page);
  }
  if (!prefix.is_trimmed) trimmed_.push_back(place);
  prefix.is_trimmed = true;
}

void PrefixCache::ShrinkTo(int64_t idle_pages) {
  while (idle_pages_ > idle_pages) {
    const int32_t oldest = LeastRecentlyUsed();
    while (idle_pages_ > idle_pages && !At(oldest).pages.empty()) DropLastPage(oldest);
  }
}

void PrefixCache::Emit(std::vector<KeptPrefix>& kept, std::vector<TrimmedPrefix>& trimmed) {
  kept.swap(kept_);
  kept_.clear();
  for (const int32_t place : trimmed_) {
    Prefix& prefix = At(place);
    prefix.is_trimmed = false;
    trimmed.push_back({.prefix = place, .tokens = std::ssize(prefix.tokens)});
    if (prefix.pages.empty()) free_.push_back(place);
  }
  trimmed_.clear();
}

}  // namespace sluice::engine
