// The text side of the letters: a template that is the contents of the messages.
#pragma once

#include <string>

#include "sluice/model_text.hpp"
#include "tests/link/letters.h"

namespace sluice::test {

inline ModelText LettersText() {
  const std::string tokenizer = LettersJson();
  return ModelText::FromFiles(
      {.tokenizer = tokenizer,
       .chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"});
}

}  // namespace sluice::test
