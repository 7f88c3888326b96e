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

  // Of standard output. NO_COLOR and TERM=dumb are respected.
  static Terminal Detect();

  std::string Styled(std::string_view text, Style style) const;
  std::string Bar(double share, int width) const;  // share in [0, 1] of the width
};

}  // namespace sluice::cli
