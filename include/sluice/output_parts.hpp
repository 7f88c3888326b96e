// The parts of a model's output: content, reasoning, and calls of tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class PartKind : uint8_t {
  kContent,
  kReasoning,
  kCallBegin,   // the text is the name of the tool
  kArguments,   // JSON, as far as the model writes it well
  kCallEnd,     // its arguments are complete
  kCallBroken,  // the output ended in its arguments, or they went on as nothing that can be read
};

struct OutputPart {
  PartKind kind = PartKind::kContent;
  int32_t call = -1;  // its number among the calls of the output
  std::string_view text = {};
};

// A sequence of parts. Neighbours that go on with one another are one part, so the sequence of a
// whole output does not depend on the pieces that it came in.
class OutputParts {
 public:
  void Append(PartKind kind, int32_t call, std::string_view text);
  void Append(const OutputParts& parts);
  void Clear();  // keeps the memory
  bool IsEmpty() const { return pieces_.empty(); }
  size_t size() const { return pieces_.size(); }
  OutputPart operator[](size_t i) const;  // valid until the next change
  size_t bytes() const { return text_.size() + pieces_.size() * sizeof(Piece); }

 private:
  struct Piece {
    PartKind kind;
    int32_t call;
    size_t end;  // of its text in text_
  };

  std::string text_;
  std::vector<Piece> pieces_;
};

}  // namespace sluice
