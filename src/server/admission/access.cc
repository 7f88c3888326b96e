#include "server/admission/access.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "server/api/api_error.h"
#include "server/error_response.h"

namespace sluice::server {
namespace {

constexpr std::string_view kAnyOrigin = "*";

bool IsEqualInConstantTime(std::string_view secret, std::string_view given) {
  unsigned difference = secret.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < secret.size(); ++i) {
    const char other = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(secret[i] ^ other);
  }
  return difference == 0;
}

// After "Bearer", in any case of letters.
std::string_view BearerToken(std::string_view field) {
  constexpr std::string_view kScheme = "bearer ";
  if (field.size() < kScheme.size()) return {};
  const auto is_same = [](char scheme, char c) {
    return scheme == (c >= 'A' && c <= 'Z' ? c | 32 : c);
  };
  if (!std::equal(kScheme.begin(), kScheme.end(), field.begin(), is_same)) return {};
  field.remove_prefix(kScheme.size());
  while (field.starts_with(' ')) field.remove_prefix(1);
  return field;
}

std::optional<size_t> FindGiven(const std::vector<std::string>& keys, std::string_view given) {
  std::optional<size_t> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (IsEqualInConstantTime(keys[i], given)) found = i;
  }
  return found;
}

// The key that clients of OpenAI's API send, or else that of Anthropic's.
std::optional<size_t> FindIn(const std::vector<std::string>& keys, const HttpRequest& request) {
  const auto found = FindGiven(keys, BearerToken(request.Field("Authorization").value_or("")));
  if (found.has_value()) return found;
  return FindGiven(keys, request.Field("X-Api-Key").value_or(""));
}

// A list of names of fields goes back as it came, if it is nothing else.
bool IsListOfNames(std::string_view names) {
  return std::ranges::all_of(names, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

Access::Keys Access::Distinct(Keys keys) {
  std::unordered_set<std::string> seen;
  std::erase_if(keys, [&](const std::string& key) { return !seen.insert(key).second; });
  return keys;
}

void Access::SetKeys(std::vector<std::string> keys) {
  auto others = std::make_shared<const Keys>(Distinct(std::move(keys)));
  const std::lock_guard lock(mutex_);
  keys_.swap(others);
}

std::optional<size_t> Access::FindKey(const HttpRequest& request) const {
  return FindIn(*keys(), request);
}

std::optional<Requester> Access::FindRequester(const HttpRequest& request) const {
  if (!needs_key_) return Requester{.id = request.peer, .shares = request.peer != 0};
  const auto all = keys();
  const auto found = FindIn(*all, request);
  if (!found.has_value()) return std::nullopt;
  return Requester{
      .id = std::hash<std::string>()((*all)[*found]), .has_key = true, .shares = all->size() > 1};
}

std::string_view Access::AllowedOrigin(std::string_view origin) const {
  for (const std::string& allowed : origins_) {
    if (allowed == kAnyOrigin) return kAnyOrigin;
    if (allowed == origin) return allowed;
  }
  return {};
}

std::optional<HttpResponse> Access::Preflight(const HttpRequest& head,
                                              std::string_view methods) const {
  const auto origin = head.Field("Origin");
  if (!knows_origins() || head.method != "OPTIONS" || !origin.has_value() ||
      !head.Field("Access-Control-Request-Method").has_value()) {
    return std::nullopt;
  }
  if (AllowedOrigin(*origin).empty()) {
    return ErrorResponse({.status = 403,
                          .message = "pages of this origin have no access; the server's list of "
                                     "origins does not have it",
                          .code = "origin_not_allowed"});
  }
  HttpResponse response{.status = 204, .content_type = ""};
  response.fields.push_back({"Access-Control-Allow-Methods", std::string(methods)});
  const std::string_view names = head.Field("Access-Control-Request-Headers").value_or("");
  if (!names.empty() && IsListOfNames(names)) {
    response.fields.push_back({"Access-Control-Allow-Headers", std::string(names)});
  }
  response.fields.push_back({"Access-Control-Max-Age", "600"});
  return response;
}

void Access::AddFields(const HttpRequest& request, std::vector<HttpField>& fields) const {
  if (!knows_origins()) return;
  const std::string_view allowed = AllowedOrigin(request.Field("Origin").value_or(""));
  // A cache must not give one origin's answer to another.
  if (allowed != kAnyOrigin) fields.push_back({"Vary", "Origin"});
  if (allowed.empty() || !request.Field("Origin").has_value()) return;
  fields.push_back({"Access-Control-Allow-Origin", std::string(allowed)});
  fields.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
}

}  // namespace sluice::server
