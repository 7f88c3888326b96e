// Chat templates: conversations to the text that a model was trained on, byte for byte as Hugging
// Face transformers renders them.
//
// The language is what templates of models use of Jinja: for (with else, if, loop, unpacking,
// break, continue), if, set, namespace, macro, with, filter-less blocks of raw text, slices, the
// usual filters, tests and methods of str, dict and list, raise_exception, strftime_now, tojson;
// blocks take their line (trim_blocks, lstrip_blocks). Everything else is refused when it is
// compiled or used. A template is data from strangers: it can reach nothing, and its steps, its
// text and its nesting are limited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/chat_text.hpp"

namespace sluice {

namespace text::jinja {
class Template;
}

struct ChatTemplateLimits {
  size_t max_template_bytes = size_t{1} << 20;
  // Steps of evaluation; one for each item, and for 16 bytes, that an operation makes or reads.
  int64_t max_steps = 2'000'000;
  size_t max_output_bytes = size_t{16} << 20;  // also of every text on the way
  int32_t max_depth = 100;                     // of expressions, blocks and calls
};

class ChatTemplate {
 public:
  // Throws Error naming `template` and the line.
  explicit ChatTemplate(std::string_view source, const ChatTemplateLimits& limits = {});

  // variables: a JSON object, {"messages": [...], "tools": [...], "add_generation_prompt": true,
  // "bos_token": "<s>"}. seconds: since 1970 in UTC, for strftime_now; none: the clock's.
  // Throws Error for what the template raises itself, for a limit, and for what it cannot do. Safe
  // to use from many threads.
  std::string Render(std::string_view variables,
                     std::optional<int64_t> seconds = std::nullopt) const;
  // As Render, with what the template wrote itself: its literal text, what it computes from that,
  // numbers, the usual roles of messages, and those variables that are strings and equal in
  // `own_variables`, a JSON object (bos_token and so on). Everything else came from the variables.
  ChatText RenderText(std::string_view variables, std::string_view own_variables = "{}",
                      std::optional<int64_t> seconds = std::nullopt) const;

 private:
  std::shared_ptr<const text::jinja::Template> template_;
  ChatTemplateLimits limits_;
};

}  // namespace sluice
