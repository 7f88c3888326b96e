#include "grammar/reason.h"

#include <algorithm>

#include "text/normalize/utf8.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMostBytes = 240;
constexpr size_t kMostShown = 60;

// Up to and with `end`, if the text begins with `begin`.
void DropPrefix(std::string_view& text, std::string_view begin, std::string_view end) {
  const size_t found = text.find(end);
  if (text.starts_with(begin) && found != std::string_view::npos) {
    text.remove_prefix(found + end.size());
  }
}

void DropAfter(std::string_view& text, std::string_view begin) {
  text = text.substr(0, text.find(begin));
}

std::string Line(std::string_view text, size_t most) {
  text = text.substr(0, most);
  std::string line(text.substr(0, text::ValidPrefix(text)));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return line;
}

}  // namespace

std::string CleanReason(std::string_view message) {
  DropPrefix(message, "[", "] ");
  DropPrefix(message, "/", ": ");  // the file and the line
  DropPrefix(message, "Check failed: ", "is false: ");
  DropAfter(message, ". The JSON string is:");
  DropAfter(message, "\n");
  return Line(message, kMostBytes);
}

std::string Excerpt(std::string_view text) {
  const bool is_whole = text.size() <= kMostShown;
  return "\"" + Line(text, kMostShown) + (is_whole ? "\"" : "\"...");
}

}  // namespace sluice::grammar
