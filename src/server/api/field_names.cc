#include "server/api/field_names.h"

#include <algorithm>
#include <utility>

namespace sluice::server {
namespace {

constexpr size_t kLongestName = 64;  // of known ones; a longer name is like none of them

// Levenshtein's, where two neighbours that changed places count as one.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.[]").find(c) != std::string_view::npos;
}

}  // namespace

std::string_view NearestName(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kLongestName) return {};
  std::string_view nearest;
  size_t least = std::min<size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t distance = Distance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

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
