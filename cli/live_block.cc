#include "cli/live_block.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support/number.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kNoWrap = "\x1b[?7l\x1b[?25l";  // and no cursor
constexpr std::string_view kWrap = "\x1b[?7h\x1b[?25h";

}  // namespace

TerminalSize TerminalSize::Detect() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

// In one piece, so that nothing is left half done when the program ends between two.
void LiveBlock::Draw(std::string_view lines) {
  std::string text = "\r";
  if (height_ > 0) text += "\x1b[" + Number(height_) + "A";
  text.append("\x1b[J").append(kNoWrap).append(lines).append(kWrap);
  out_ << text << std::flush;
  height_ = static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n'));
}

void LiveBlock::Clear() {
  if (height_ > 0) out_ << "\r\x1b[" << height_ << "A\x1b[J" << std::flush;
  height_ = 0;
}

std::string LastLines(std::string_view text, int columns, int lines) {
  // Every character takes one column here; a wider one is cut at the end of its line.
  std::vector<std::string> wrapped(1);
  int column = 0;
  for (const char c : text) {
    const bool is_start = (static_cast<unsigned char>(c) >> 6) != 2;
    if (c == '\n' || (is_start && column == columns)) {
      wrapped.emplace_back();
      column = 0;
    }
    if (c == '\n') continue;
    const bool is_control = static_cast<unsigned char>(c) < 0x20;
    wrapped.back() += is_control ? ' ' : c;
    column += is_start ? 1 : 0;
  }
  std::string result;
  const auto count = std::min(wrapped.size(), static_cast<size_t>(lines));
  for (size_t i = wrapped.size() - count; i < wrapped.size(); ++i) result += wrapped[i] + "\n";
  return result;
}

}  // namespace sluice::cli
