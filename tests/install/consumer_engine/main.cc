// What a stranger does first: text from the built-in model.
#include <cstdio>
#include <cstring>
#include <sluice/default_model.hpp>
#include <sluice/generator.hpp>
#include <sluice/version.hpp>

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], sluice::kVersionString.data()) != 0) return 1;
  const auto checkpoint = sluice::Checkpoint::FromFiles(sluice::DefaultModelFiles());
  const std::vector<int32_t> prompt = checkpoint.tokenizer().Encode("Once upon a time");
  sluice::Generator generator(checkpoint, {.prompt = prompt, .max_tokens = 8});
  std::string text;
  while (generator.live_choices() > 0) text += generator.Step()[0].text;
  std::puts(text.c_str());
  return text.empty() ? 1 : 0;
}
