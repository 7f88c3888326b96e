#include "server/access_log.h"

#include <cstdio>
#include <ctime>
#include <string_view>

#include "server/api/json_text.h"
#include "text/normalize/utf8.h"

namespace sluice::server {
namespace {

constexpr size_t kMostLogged = 1024;

std::string_view Shown(std::string_view text) {
  text = text.substr(0, kMostLogged);
  return text.substr(0, text::ValidPrefix(text));
}

// In UTC, as RFC 3339 has it: "2026-11-28T17:58:00.123Z".
std::string TimeText(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const std::time_t whole = seconds.count();
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char date[32];
  const size_t size = std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char milliseconds[8];
  std::snprintf(milliseconds, sizeof milliseconds, ".%03dZ",
                static_cast<int>((since - seconds).count()));
  return std::string(date, size).append(milliseconds);
}

}  // namespace

std::string AccessLine(const HttpRequest& request, const AccessEntry& entry) {
  std::string line = R"({"time":")" + TimeText(entry.ended) + R"(","id":)";
  AppendQuoted(line, Shown(request.id));
  line.append(R"(,"method":)");
  AppendQuoted(line, Shown(request.method));
  line.append(R"(,"path":)");
  AppendQuoted(line, Shown(request.path));
  line.append(R"(,"status":)");
  AppendNumber(line, entry.status);
  line.append(entry.is_complete ? R"(,"complete":true,"seconds":)"
                                : R"(,"complete":false,"seconds":)");
  AppendNumber(line, std::chrono::duration<double>(entry.took).count());
  line.push_back('}');
  return line;
}

}  // namespace sluice::server
