#include "server/http/request_target.h"

#include <algorithm>
#include <charconv>

namespace sluice::server {
namespace {

bool Decode(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded.push_back(text[at]);
      continue;
    }
    const std::string_view digits = text.substr(at + 1, 2);
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.end()) return false;
    decoded.push_back(static_cast<char>(byte));
    at += 2;
  }
  return true;
}

}  // namespace

bool ReadTarget(std::string_view target, std::string& path, std::string& query) {
  if (std::ranges::any_of(target, [](char c) { return static_cast<uint8_t>(c) >= 0x80; })) {
    return false;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t begin = target.find_first_of("/?", scheme.size());
    target = begin == std::string_view::npos ? "/" : target.substr(begin);
    break;
  }
  const size_t mark = target.find('?');
  query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  const std::string_view raw_path = target.substr(0, mark);
  if (raw_path != "*" && !raw_path.starts_with('/')) return false;
  return Decode(raw_path, path);
}

}  // namespace sluice::server
