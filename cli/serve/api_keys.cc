#include "cli/serve/api_keys.h"

#include <algorithm>
#include <string_view>

#include "cli/files/file.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view Trimmed(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
  return line.substr(0, line.find_last_not_of(kSpace) + 1);
}

bool CanBeSent(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](char c) { return c > 32 && c < 127; });
}

}  // namespace

std::vector<std::string> ReadApiKeys(const std::string& path) {
  const std::string text = ReadTextFile("api-key-file", path);
  std::vector<std::string> keys;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = Trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    if (!CanBeSent(line)) {
      throw Error(ErrorCode::kInvalidValue, "api-key-file: line " + Number(number),
                  "a key that is not shown", "visible characters of ASCII, without spaces");
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) {
    throw Error(ErrorCode::kInvalidValue, "api-key-file", Quoted(path) + ", without a key",
                "a file with a key on each line");
  }
  return keys;
}

}  // namespace sluice::cli
