// An answer as a sequence of blocks: texts, reasoning and calls, one after the other. The sequence
// and the content of each block do not depend on the pieces that the answer came in.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/response/choice_delta.h"

namespace sluice::server {

class BlockWalk {
 public:
  // sink.Open(kind, name): of kContent, kReasoning, or kCallBegin with the name of the tool;
  // sink.Add(text): to the block that is open; sink.Close().
  template <typename Sink>
  void Take(const ChoiceDelta& delta, Sink& sink) {
    if (delta.parts == nullptr) return Add(PartKind::kContent, delta.text, sink);
    for (size_t i = 0; i < delta.parts->size(); ++i) {
      const OutputPart part = (*delta.parts)[i];
      if (part.kind == PartKind::kCallBegin) {
        Open(part.kind, part.text, sink);
      } else if (part.kind == PartKind::kArguments) {
        if (open_ == PartKind::kCallBegin && !part.text.empty()) sink.Add(part.text);
      } else {
        Add(part.kind, part.text, sink);
      }
    }
  }
  template <typename Sink>
  void End(Sink& sink) {
    if (open_.has_value()) sink.Close();
    open_.reset();
  }

 private:
  template <typename Sink>
  void Open(PartKind kind, std::string_view name, Sink& sink) {
    End(sink);
    open_ = kind;
    sink.Open(kind, name);
  }
  template <typename Sink>
  void Add(PartKind kind, std::string_view text, Sink& sink) {
    if (text.empty()) return;
    if (open_ != kind) Open(kind, {}, sink);
    sink.Add(text);
  }

  std::optional<PartKind> open_ = {};
};

}  // namespace sluice::server
