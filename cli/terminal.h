// What the reader of the output can show: colours and block characters on a terminal, plain ASCII
// in a pipe or a file.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

enum class Style { kPlain, kHeading, kGood, kFaint };

struct Terminal {
  bool has_colour = false;
  bool has_unicode = false;
  bool can_redraw = false;  // lines that were written can be written again
  bool is_terminal = false;

  // Of standard output, or of another file. NO_COLOR and TERM=dumb are respected.
  static Terminal Detect(int file = 1);

  // What a stranger's text may show: on a terminal its control characters, but for line ends and
  // tabs, are spelled out ("\x1b"), so that none moves the cursor, changes a title or requests an
  // answer; elsewhere the text as it is. Whole characters of UTF-8, please.
  std::string Printable(std::string_view text) const;
  std::string Styled(std::string_view text, Style style) const;
  std::string Bar(double share, int width) const;  // share in [0, 1] of the width
};

}  // namespace sluice::cli
