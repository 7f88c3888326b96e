#include "server/api/request/field_names.h"

#include <algorithm>
#include <utility>

#include "support/nearest_name.h"

namespace sluice::server {
namespace {

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.[]").find(c) != std::string_view::npos;
}

}  // namespace

ApiError UnknownField(const std::vector<std::string>& unknown,
                      std::span<const std::string_view> known) {
  const std::string& name = unknown.front();
  std::string message = IgnoredFieldsText({name}) + " is not a field of this request";
  const std::string_view nearest = NearestName(name, known);
  if (!nearest.empty()) message.append("; did you mean ").append(nearest).append("?");
  if (unknown.size() > 1) {
    message.append("; the others are ")
        .append(IgnoredFieldsText({unknown.begin() + 1, unknown.end()}));
  }
  return {.message = std::move(message), .param = name, .code = "unknown_parameter"};
}

std::string IgnoredFieldsText(const std::vector<std::string>& unknown) {
  constexpr std::string_view kMore = ", ...";
  std::string text;
  for (const std::string& name : unknown) {
    const std::string_view separator = text.empty() ? "" : ", ";
    const size_t room = kMostHeaderBytes - kMore.size() - text.size();
    if (separator.size() + name.size() > room) {
      return text.empty() ? "..." : text.append(kMore);
    }
    text.append(separator);
    std::ranges::transform(name, std::back_inserter(text),
                           [](char c) { return IsPlain(c) ? c : '?'; });
  }
  return text;
}

void AddIgnoredFields(const std::vector<std::string>& unknown, HttpResponse& response) {
  if (unknown.empty()) return;
  response.fields.push_back({"X-Ignored-Fields", IgnoredFieldsText(unknown)});
}

}  // namespace sluice::server
