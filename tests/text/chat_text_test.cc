// What a chat template wrote itself, and that nothing else in its text becomes a special token.
#include "sluice/chat_text.hpp"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/chat_template.hpp"
#include "sluice/error.hpp"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

constexpr int64_t kSeconds = 1'700'000'000;

// The text with brackets around what the template wrote itself.
std::string Marked(const ChatText& chat) {
  std::string marked;
  size_t done = 0;
  for (const TextSpan span : chat.own) {
    marked.append(chat.text, done, span.begin - done).append("[");
    marked.append(chat.text, span.begin, span.end - span.begin).append("]");
    done = span.end;
  }
  return marked.append(chat.text, done);
}

std::string MarkedOf(std::string_view source, std::string_view variables = R"({"x":" X "})") {
  return Marked(ChatTemplate(source).RenderText(variables, R"({"bos":"<s>","eos":"</s>"})"));
}

TEST(ChatText, KeepsTheOriginOfEachPiece) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"a{{ x }}b", "[a] X [b]"},
      {"{{ 'a' ~ x ~ 'b' }}", "[a] X [b]"},
      {"{{ 'a' + x }}", "[a] X "},
      {"{{ 'a' 'b' ~ 1 ~ true ~ none }}", "[ab1TrueNone]"},
      {"{{ x | trim }}", "X"},
      {"{{ (' a' ~ x) | trim }}", "[a] X"},
      {"{{ (' a' ~ x ~ ' ').strip() }}", "[a] X"},
      {"{{ ('a' ~ x ~ 'b').rstrip('b') }}", "[a] X "},
      {"{{ x | replace('X', 'a') }}", " [a] "},
      {"{{ 'abc' | replace('b', x) }}", "[a] X [c]"},
      {"{{ ('a' ~ x).replace(' ', '-') }}", "[a-]X[-]"},
      {"{{ 'ab'.replace('', x, 1) }}", " X [ab]"},
      {"{{ ('ab' ~ x)[1:4] }}", "[b] X"},
      {"{{ ('ab' ~ x)[::-1] }}", " X [ba]"},
      {"{{ ('a' ~ x)[0] }}{{ ('a' ~ x)[2] }}", "[a]X"},
      {"{% for c in 'a' ~ x %}{{ c }},{% endfor %}", "[a,] [,]X[,] [,]"},
      {"{{ ['a', x, 1] | join('-') }}", "[a-] X [-1]"},
      {"{{ '-'.join(['a', x]) }}", "[a-] X "},
      {"{{ x.join(['a', 'b']) }}", "[a] X [b]"},
      {"{{ ('a,' ~ x).split(',') | join('+') }}", "[a+] X "},
      {"{{ ('a' ~ x).partition('X') | join('+') }}", "[a] [+]X[+] "},
      {"{{ ('a' ~ x).removeprefix('a') }}{{ ('a' ~ x).removesuffix('X ') }}", " X [a] "},
      {"{{ '%s|%d' % (x, 3) }}", " X [|3]"},
      {"{{ '%5s' % 'a' }}{{ x % () }}", "[    a] X "},
      {"{{ '<{}|{:>3}>'.format(x, 'a') }}", "[<] X [|  a>]"},
      {"{{ x.format() }}", " X "},
      {"{{ 'ab' | upper }}{{ 'ab'.title() }}{{ 'ab' * 2 }}", "[ABAbabab]"},
      {"{{ x | upper }}{{ x * 2 }}", " X  X  X "},
      {"{{ ('a' ~ x) | upper }}", "A X "},  // lost
      {"{{ [x, 'a'] | tojson }}{{ {'a': x} }}", "[\" X \", \"a\"]{'a': ' X '}"},
      {"{{ 'a' | tojson }}", "[\"a\"]"},
      {"{{ y | default('a') }}{{ x | default('a') }}", "[a] X "},
      {"{% set y %}a{{ x }}{% endset %}{{ y }}", "[a] X "},
      {"{% macro m(v) %}a{{ v }}{{ caller() }}{% endmacro %}{% call m(x) %}c{{ x }}{% endcall %}",
       "[a] X [c] X "},
      {"{% filter trim %} a{{ x }}{% endfilter %}", "[a] X"},
      {"{% set n = namespace(t='a') %}{% set n.t = n.t ~ x %}{{ n.t }}", "[a] X "},
      {"{{ 'a' if true else x }}{{ x or 'a' }}", "[a] X "},
      {"{{ x | safe }}{{ 'a' | escape }}{{ x | escape }}", " X [a] X "},
  };
  for (const auto& [source, marked] : rows) EXPECT_EQ(MarkedOf(source), marked) << source;
}

TEST(ChatText, VariablesAreForeignButForRolesAndGivenTexts) {
  EXPECT_EQ(MarkedOf("{{ bos }}{{ eos }}", R"({"bos":"<s>","eos":"mine"})"), "[<s>]mine");
  const char* roles = "{% for m in messages %}<{{ m.role }}>{% endfor %}";
  EXPECT_EQ(MarkedOf(roles, R"({"messages":[{"role":"user"},{"role":"im_end"},{"role":1},3]})"),
            "[<user><]im_end[><1><>]");
}

// All bytes, and these special tokens from 256 on.
Tokenizer TokenizerWith(const std::vector<std::string>& specials) {
  std::vector<TestToken> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({});
    text::AppendInByteAlphabet(std::string(1, static_cast<char>(byte)), tokens.back().text);
  }
  for (const std::string& special : specials) tokens.push_back(Special(special));
  return Tokenizer::FromJson(TokenizerJson(
      tokens, kByteLevelJson, R"("type":"BPE","merges":[])",
      R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"));
}

std::vector<int32_t> SpecialsOf(const Tokenizer& tokenizer, const ChatText& chat) {
  std::vector<int32_t> ids = EncodeChat(tokenizer, chat);
  std::erase_if(ids, [](int32_t id) { return id < 256; });
  return ids;
}

TEST(EncodeChat, OnlyWhatTheTemplateWroteIsASpecialToken) {
  const Tokenizer tokenizer = TokenizerWith({"<s>", "<s>x", "a<s>", "<b>", "s><b"});
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>", {{0, 3}}}), Ids{256});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>", {}}), Ids{});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>", {{0, 2}}}), Ids{});  // a user ends it
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>", {{1, 3}}}), Ids{});  // a user begins it
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>", {{0, 1}, {2, 3}}}), Ids{});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>x", {{0, 4}}}), Ids{257});
  // A user hides none either: neither by what follows nor by what is before.
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s>x", {{0, 3}}}), Ids{256});
  EXPECT_EQ(SpecialsOf(tokenizer, {"a<s>", {{1, 4}}}), Ids{256});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s><b>", {{3, 6}}}), Ids{259});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<s><b>", {{0, 3}}}), Ids{256});
  EXPECT_EQ(EncodeChat(tokenizer, {"a<s>b", {}}), (Ids{'a', '<', 's', '>', 'b'}));
}

// Markers of turns that a model does not call special, as of DeepSeek's distilled models.
TEST(EncodeChat, AnAddedTokenThatIsNotSpecialIsTheTemplatesOwnToo) {
  std::vector<TestToken> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({});
    text::AppendInByteAlphabet(std::string(1, static_cast<char>(byte)), tokens.back().text);
  }
  tokens.push_back(Added("<user>"));
  tokens.push_back(Added("  "));
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(
      tokens, kByteLevelJson, R"("type":"BPE","merges":[])",
      R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"));
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(SpecialsOf(tokenizer, {"<user>a<user>", {{0, 6}}}), Ids{256});
  EXPECT_EQ(SpecialsOf(tokenizer, {"<user>a  b", {{0, 6}}}), (Ids{256, 257}));  // spaces are text
  EXPECT_EQ(tokenizer.Encode("a<user>", {.add_special_tokens = false}), (Ids{'a', 256}));
}

// Where normalisation changes a message, the template's tokens next to it are tokens all the same.
TEST(EncodeChat, NormalisationOfAMessageLeavesTheTemplatesTokens) {
  const Tokenizer tokenizer = Tokenizer::FromJson(
      R"({"version":"1.0","added_tokens":[{"id":3,"content":"<s>","special":true,"normalized":true}],)"
      R"("normalizer":{"type":"Lowercase"},"model":{"type":"BPE","merges":[],)"
      R"("vocab":{"a":0,"<":1,">":2,"<s>":3,"s":4}}})");
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(EncodeChat(tokenizer, {"<s>A<s>", {{0, 3}}}), (Ids{3, 0, 1, 4, 2}));
  EXPECT_EQ(EncodeChat(tokenizer, {"<s>A<s>", {{0, 3}, {4, 7}}}), (Ids{3, 0, 3}));
}

TEST(EncodeChat, RefusesSpansThatAreNotOfTheText) {
  const Tokenizer tokenizer = TokenizerWith({"<s>"});
  for (const std::vector<TextSpan>& own :
       {std::vector<TextSpan>{{0, 4}}, {{2, 1}}, {{1, 1}}, {{1, 3}, {0, 1}}, {{0, 2}, {1, 3}}}) {
    EXPECT_THROW(EncodeChat(tokenizer, {"<s>", own}), Error) << own.size();
  }
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What looks like a marker in a template, and those that templates make of roles.
std::vector<std::string> MarkersOf(const std::string& source) {
  static const std::regex kMarker(R"(<[^<>\s{}'"\\=]{1,40}>|\[/?[A-Z_]{3,30}\])");
  std::set<std::string> markers = {"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<s>"};
  for (std::sregex_iterator it(source.begin(), source.end(), kMarker), end; it != end; ++it) {
    markers.insert(it->str());
  }
  return {markers.begin(), markers.end()};
}

bool HasOne(std::string_view text, const std::vector<std::string>& markers) {
  return std::ranges::any_of(
      markers, [&](const std::string& m) { return text.find(m) != std::string_view::npos; });
}

std::vector<std::filesystem::path> Templates() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(SLUICE_FIXTURES) + "/chats")) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  return paths;
}

constexpr const char* kOwn = R"({"bos_token":"<s>","eos_token":"</s>"})";

// Ids of conversations without special tokens are those of the whole text with its special tokens
// parsed, in every template.
TEST(EncodeChat, OrdinaryConversationsHaveTheIdsOfTheirText) {
  simdjson::dom::parser parser;
  const std::string file = Read(std::string(SLUICE_FIXTURES) + "/chats/families/expected.json");
  const simdjson::dom::element root = parser.parse(file);
  size_t compared = 0;
  size_t specials = 0;
  for (const auto& path : Templates()) {
    const std::string source = Read(path);
    const ChatTemplate chat(source);
    const std::vector<std::string> markers = MarkersOf(source);
    const Tokenizer tokenizer = TokenizerWith(markers);
    for (const auto conversation : root["conversations"].get_array()) {
      const std::string variables = simdjson::minify(conversation);
      const std::string messages = simdjson::minify(conversation["messages"].value());
      if (HasOne(messages, markers)) continue;
      ChatText text;
      try {
        text = chat.RenderText(variables, variables, kSeconds);  // its bos_token is own
      } catch (const Error&) {
        continue;  // this template has no such conversation
      }
      ++compared;
      specials += SpecialsOf(tokenizer, text).size();
      EXPECT_EQ(
          EncodeChat(tokenizer, text),
          tokenizer.Encode(text.text, {.add_special_tokens = false, .parse_special_tokens = true}))
          << path << " " << variables << "\n"
          << Marked(text);
    }
  }
  EXPECT_GE(compared, 500u);
  EXPECT_GE(specials, 1000u);
}

// In no template does a special token that a user types become one.
TEST(EncodeChat, NoUserForgesATurn) {
  size_t tried = 0;
  for (const auto& path : Templates()) {
    const std::string source = Read(path);
    const ChatTemplate chat(source);
    const std::vector<std::string> markers = MarkersOf(source);
    const Tokenizer tokenizer = TokenizerWith(markers);
    const auto specials_with = [&](const std::string& content) {
      return SpecialsOf(tokenizer, chat.RenderText(R"({"messages":[{"role":"user","content":")" +
                                                       content + R"("}],"bos_token":"<s>",)" +
                                                       R"("add_generation_prompt":true})",
                                                   kOwn, kSeconds));
    };
    std::vector<int32_t> expected;
    try {
      expected = specials_with("hi there");
    } catch (const Error&) {
      continue;
    }
    for (const std::string& marker : markers) {
      ++tried;
      EXPECT_EQ(specials_with("hi" + marker + "system" + marker + "there"), expected)
          << path << " " << marker;
    }
  }
  EXPECT_GE(tried, 200u);
}

}  // namespace
}  // namespace sluice::test
