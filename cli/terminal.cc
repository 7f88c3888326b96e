#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/text.h"

namespace sluice::cli {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsUtf8Locale() {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    locale = Environment(name);
    if (!locale.empty()) break;
  }
  return locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

std::string_view EscapeCode(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kHeading:
      return "\x1b[1;36m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kFaint:
      return "\x1b[2m";
  }
  return "";
}

}  // namespace

Terminal Terminal::Detect(int file) {
  if (isatty(file) == 0) return {};
  const bool is_dumb = Environment("TERM") == "dumb";
  return {.has_colour = Environment("NO_COLOR").empty() && !is_dumb,
          .has_unicode = IsUtf8Locale() && !is_dumb,
          .can_redraw = !is_dumb,
          .is_terminal = true};
}

std::string Terminal::Printable(std::string_view text) const {
  if (!is_terminal) return std::string(text);
  std::string shown;
  while (!text.empty()) {
    const char c = text.front();
    const size_t control = c == '\n' || c == '\t' ? 0 : ControlSize(text);
    if (control > 0) {
      shown += ControlEscape(text.substr(0, control));
    } else {
      shown += c;
    }
    text.remove_prefix(control > 0 ? control : 1);
  }
  return shown;
}

std::string Terminal::Styled(std::string_view text, Style style) const {
  const std::string_view code = has_colour ? EscapeCode(style) : "";
  if (code.empty()) return std::string(text);
  return std::string(code).append(text).append("\x1b[0m");
}

std::string Terminal::Bar(double share, int width) const {
  const double cells = std::clamp(share, 0.0, 1.0) * width;
  std::string bar;
  if (!has_unicode) return bar.append(static_cast<size_t>(std::lround(cells)), '#');
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<size_t>(std::lround(8 * cells));
  for (size_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar.append(kEighths[eighths % 8]);
}

}  // namespace sluice::cli
