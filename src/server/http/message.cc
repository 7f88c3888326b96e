#include "server/http/message.h"

#include <algorithm>

namespace sluice::server {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool HttpField::IsNamed(std::string_view other) const {
  return std::ranges::equal(name, other, {}, Lower, Lower);
}

std::optional<std::string_view> HttpRequest::Field(std::string_view name) const {
  for (const HttpField& field : fields) {
    if (field.IsNamed(name)) return field.value;
  }
  return std::nullopt;
}

}  // namespace sluice::server
