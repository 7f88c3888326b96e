#include "sluice/output_parts.hpp"

namespace sluice {
namespace {

bool IsText(PartKind kind) {
  return kind == PartKind::kContent || kind == PartKind::kReasoning || kind == PartKind::kArguments;
}

}  // namespace

void OutputParts::Append(PartKind kind, int32_t call, std::string_view text) {
  if (IsText(kind) && text.empty()) return;
  text_.append(text);
  const bool goes_on = !pieces_.empty() && IsText(kind) && pieces_.back().kind == kind &&
                       pieces_.back().call == call;
  if (goes_on) {
    pieces_.back().end = text_.size();
  } else {
    pieces_.push_back({kind, call, text_.size()});
  }
}

void OutputParts::Append(const OutputParts& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const OutputPart part = parts[i];
    Append(part.kind, part.call, part.text);
  }
}

void OutputParts::Clear() {
  text_.clear();
  pieces_.clear();
}

OutputPart OutputParts::operator[](size_t i) const {
  const size_t begin = i == 0 ? 0 : pieces_[i - 1].end;
  return {.kind = pieces_[i].kind,
          .call = pieces_[i].call,
          .text = std::string_view(text_).substr(begin, pieces_[i].end - begin)};
}

}  // namespace sluice
