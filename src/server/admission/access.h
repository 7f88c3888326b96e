// Access: requests with a key, and pages of other origins.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/admission/admission.h"
#include "server/http/message.h"

namespace sluice::server {

class Access {
 public:
  Access(std::vector<std::string> keys, std::vector<std::string> origins)
      : needs_key_(!keys.empty()),
        keys_(std::make_shared<const Keys>(Distinct(std::move(keys)))),
        origins_(std::move(origins)) {}

  bool needs_key() const { return needs_key_; }
  // From now on these, in place of others. From any thread.
  void SetKeys(std::vector<std::string> keys);
  // The number of the key that comes with the request; nothing: it is none of them. Takes the same
  // time for each key that is wrong.
  std::optional<size_t> FindKey(const HttpRequest& request) const;
  // By its key, or without keys by its address; nothing: it has no key, and needs one.
  std::optional<Requester> FindRequester(const HttpRequest& request) const;

  bool knows_origins() const { return !origins_.empty(); }
  // The answer to a browser that sends a preflight for a page; nothing: the request is none.
  std::optional<HttpResponse> Preflight(const HttpRequest& head, std::string_view methods) const;
  // The fields of every response for a browser.
  void AddFields(const HttpRequest& request, std::vector<HttpField>& fields) const;

 private:
  // As Access-Control-Allow-Origin has it; empty: this one is not allowed.
  std::string_view AllowedOrigin(std::string_view origin) const;

  using Keys = std::vector<std::string>;
  // A key that is listed twice is one client.
  static Keys Distinct(Keys keys);
  std::shared_ptr<const Keys> keys() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

  const bool needs_key_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Keys> keys_;
  std::vector<std::string> origins_;
};

}  // namespace sluice::server
