// Some lines at the bottom of a terminal that are drawn again and again in the same place.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

namespace sluice::cli {

// Columns and rows of the terminal at standard output; 80 x 24 where it reports none.
struct TerminalSize {
  int columns = 80;
  int rows = 24;
  static TerminalSize Detect();
};

class LiveBlock {
 public:
  explicit LiveBlock(std::ostream& out) : out_(out) {}
  ~LiveBlock() { Clear(); }
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  // Whole lines, each with its line end and no more of them than the terminal has rows. Lines that
  // are too wide are cut by the terminal.
  void Draw(std::string_view lines);
  void Clear();

 private:
  std::ostream& out_;
  size_t height_ = 0;
};

// The last `lines` lines of a text on a terminal of that many columns, each with a line end.
std::string LastLines(std::string_view text, int columns, int lines);

}  // namespace sluice::cli
