#include "server/http/message.h"

#include <algorithm>

namespace sluice::server {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::optional<std::string_view> HttpRequest::Field(std::string_view name) const {
  for (const HttpField& field : fields) {
    if (std::ranges::equal(field.name, name, {}, Lower, Lower)) return field.value;
  }
  return std::nullopt;
}

}  // namespace sluice::server
