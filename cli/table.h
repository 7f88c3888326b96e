// A table of text with columns as wide as their widest cell.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/terminal.h"

namespace sluice::cli {

class Table {
 public:
  // One letter a column: l for left, r for right.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}

  // Missing cells at the end are empty.
  void Add(std::vector<std::string> cells, Style style = Style::kPlain) {
    cells.resize(alignment_.size());
    rows_.push_back({std::move(cells), style});
  }

  // Leaves these columns out.
  void Hide(std::vector<size_t> columns) { hidden_ = std::move(columns); }

  void Print(std::ostream& out, const Terminal& terminal) const {
    std::vector<size_t> widths(alignment_.size(), 0);
    for (const Row& row : rows_) {
      for (size_t c = 0; c < widths.size(); ++c) {
        widths[c] = std::max(widths[c], Width(row.cells[c]));
      }
    }
    for (const Row& row : rows_) {
      std::string line;
      for (size_t c = 0; c < widths.size(); ++c) {
        if (std::find(hidden_.begin(), hidden_.end(), c) != hidden_.end()) continue;
        const std::string padding(widths[c] - Width(row.cells[c]), ' ');
        line += "  ";
        line += alignment_[c] == 'r' ? padding + row.cells[c] : row.cells[c] + padding;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out << terminal.Styled(line, row.style) << '\n';
    }
  }

 private:
  struct Row {
    std::vector<std::string> cells;
    Style style;
  };

  // Code points: every one that is printed here takes one column.
  static size_t Width(std::string_view utf8) {
    return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
      return (static_cast<unsigned char>(c) >> 6) != 2;
    }));
  }

  std::string alignment_;
  std::vector<size_t> hidden_;
  std::vector<Row> rows_;
};

}  // namespace sluice::cli
