// Any text as a chat template: an Error or a text, within its limits.
#include "sluice/chat_template.hpp"
#include "sluice/error.hpp"
#include "tests/fuzz/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sluice::ChatTemplateLimits limits{
      .max_steps = 20000, .max_output_bytes = 1 << 16, .max_depth = 50};
  try {
    const sluice::ChatTemplate chat({reinterpret_cast<const char*>(data), size}, limits);
    const std::string text = chat.Render(
        R"({"messages":[{"role":"user","content":"é a"},{"role":"assistant","content":null}],)"
        R"("bos_token":"<s>","tools":[{"n":[1,2.5,true]}]})");
    sluice::fuzz::Check(text.size() <= limits.max_output_bytes);
  } catch (const sluice::Error&) {
  }
  return 0;
}
