// What a stranger does first: ids to text.
#include <cstdio>
#include <cstring>
#include <sluice/detokenizer.hpp>
#include <sluice/version.hpp>

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], sluice::kVersionString.data()) != 0) return 1;
  const sluice::Tokenizer tokenizer = sluice::Tokenizer::FromJson(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},)"
      R"("decoder":{"type":"ByteLevel"}})");
  std::string text;
  sluice::Detokenizer(tokenizer).Step(tokenizer.Encode("abba"), text);
  std::puts(text.c_str());
  return text == "abba" ? 0 : 1;
}
