// A machine over the bytes of a model's output that takes its markup apart, as a table describes
// it.
//
// Each byte moves one cursor for each rule that may still match. What comes out depends on the
// bytes alone, as no step looks at more than one of them.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sluice/output_parts.hpp"
#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {

class MarkupMachine {
 public:
  // `markup` outlives it. json_keys: the parameters of a tool that are no texts, for
  // Arguments::kElements.
  using JsonKeys = std::function<std::vector<std::string>(std::string_view tool)>;
  MarkupMachine(const Markup& markup, StateNumber first, JsonKeys json_keys = {});

  void Step(std::string_view text, OutputParts& parts);
  void Finish(OutputParts& parts);

  size_t held_bytes() const { return held_.size() + (is_in_call_ ? Unread().size() : 0); }
  int32_t calls() const { return calls_; }

 private:
  struct Cursor {
    uint16_t rule;
    uint16_t place = 0;  // in the pattern
    uint16_t count = 0;  // of bytes at a place that may take several
    uint16_t begin = 0;  // of the name in held_
    uint16_t end = 0;
  };

  bool MayBegin(char byte) const;
  void Work(OutputParts& parts);
  void BeginCursors();
  const Cursor* MoveCursors(char byte);  // that of the rule that has matched, or null
  bool Move(Cursor& cursor, char byte) const;
  bool IsAtEnd(const Cursor& cursor) const;
  void GiveUpFirst(OutputParts& parts);
  void Apply(const Cursor& cursor, OutputParts& parts);
  void AddToCall(OutputParts& parts);
  void EndCall(PartKind kind, OutputParts& parts);
  std::string_view Unread() const;
  const MarkupState& state() const { return markup_->states[state_]; }

  const Markup* markup_;
  JsonKeys json_keys_;
  StateNumber state_;
  int32_t calls_ = 0;
  bool is_in_call_ = false;
  StateNumber after_call_ = 0;
  std::variant<JsonArguments, PythonArguments, ElementArguments> arguments_;
  std::string arguments_text_;
  std::string held_;    // what may still become markup, and was not worked off
  size_t scanned_ = 0;  // of these, by the cursors
  std::vector<Cursor> cursors_;
  std::vector<std::bitset<256>> firsts_;  // by state: bytes that a rule may begin with
};

}  // namespace sluice::text
