// Texts at which serving systems went wrong, as tokens of a byte-level vocabulary, and what a
// client must get: the same whoever looks for stops, however tokens are cut into steps, and on
// whichever side of a process boundary.
#pragma once

#include <string>
#include <vector>

#include "sluice/client.hpp"

namespace sluice::test {

struct TextCase {
  std::string name;
  std::vector<std::string> tokens;  // one after the other, "<unknown>" for an id without a token
  std::vector<std::string> stops = {};
  std::vector<std::string> deltas = {};  // with one token a step
  GenerationEnd end = GenerationEnd::kLength;
  std::string stop = {};        // of kStopString
  std::string stop_token = {};  // of kStopToken
  int64_t output_tokens = 0;    // 0: all
  bool include_stop = false;
  int32_t min_tokens = 0;
  std::vector<std::string> stop_tokens = {};
  bool skips_special = true;
  Incomplete incomplete = Incomplete::kReplace;
  std::vector<std::string> prompt = {"."};
  bool is_full = false;  // its last token is the last that was asked for, and its end comes of that
};

inline constexpr char kEndOfText[] = "<|end|>";
inline constexpr char kStartOfTurn[] = "<|im_start|>";
inline constexpr char kEndOfSentence[] = "<｜end▁of▁sentence｜>";

inline std::vector<TextCase> TextCases() {
  constexpr auto kString = GenerationEnd::kStopString;
  constexpr auto kToken = GenerationEnd::kStopToken;
  const std::string fffd = "\uFFFD";
  std::vector<TextCase> cases = {
      // Stops.
      {"stop inside a token",
       {"He", "llo wor", "ld END. more"},
       {"END"},
       {"He", "llo wor", "ld "},
       kString,
       "END",
       "",
       3},
      {"stop over three tokens", {"foo E", "N", "D bar"}, {"END"}, {"foo "}, kString, "END", "", 3},
      {"a false beginning inside the true one",
       {"aa", "a", "b"},
       {"aab"},
       {"a"},
       kString,
       "aab",
       "",
       3},
      {"half a stop at the end", {"foo E", "N"}, {"END"}, {"foo ", "EN"}},
      {"the stop that ends first", {"ab", "cd"}, {"abcd", "c"}, {"ab"}, kString, "c", "", 2},
      {"the stop that ends first, in one token",
       {"abcd"},
       {"abcd", "c"},
       {"ab"},
       kString,
       "c",
       "",
       1},
      {"of two that end together the longer", {"xab"}, {"b", "ab"}, {"x"}, kString, "ab", "", 1},
      {"a stop of characters that does not come",
       {"\xE5\x81\x9C", "\xE6\xAD", "x"},
       {"停止"},
       {"停" + fffd + "x"}},
      {"two line ends", {"a", "\n", "\n", "b"}, {"\n\n"}, {"a"}, kString, "\n\n", "", 3},
      {"a stop in the first byte", {"xhello"}, {"x"}, {}, kString, "x", "", 1},
      {"a replacement character", {"a", "\xFF", "b"}, {fffd}, {"a"}, kString, fffd, "", 2},
      {"a replacement character at the end", {"a", "\xE4"}, {fffd}, {"a"}, kString, fffd, "", 2},
      {"nothing but a stop", {"DEF", "G", "HI", "J"}, {"DEFGHIJ"}, {}, kString, "DEFGHIJ", "", 4},
      {"nearly a stop that contains itself", {"abcabcab", "cx"}, {"abcabcabd"}, {"abcabcabcx"}},
      {"the stop is shown", {"foo END bar"}, {"END"}, {"foo END"}, kString, "END", "", 1, true},
      {"a stop among the first tokens is text",
       {"a", "STOP", "b", "STOP", "c"},
       {"STOP"},
       {"a", "STOP", "b"},
       kString,
       "STOP",
       "",
       4,
       false,
       2},
      {"and only there",
       {"a", "STOP", "c", "d"},
       {"STOP"},
       {"a", "STOP", "c", "d"},
       GenerationEnd::kLength,
       "",
       "",
       0,
       false,
       2},
      {"tokens behind the stop in its step",
       {"a", "b E", "ND", "junk", "junk2"},
       {"END"},
       {"a", "b "},
       kString,
       "END",
       "",
       3},
      {"the model's end while a stop may begin",
       {"x", "EN", kEndOfText, "y"},
       {"END"},
       {"x", "EN"},
       kToken,
       "",
       kEndOfText,
       3},
      {"a stop token", {"a", "b", "c"}, {}, {"a"}, kToken, "", "b", 2, false, 0, {"b"}},
      {"a stop token is shown",
       {"a", "b", "c"},
       {},
       {"a", "b"},
       kToken,
       "",
       "b",
       2,
       true,
       0,
       {"b"}},
      {"a stop token among the first tokens",
       {"b", "b", "b", "c"},
       {},
       {"b", "b"},
       kToken,
       "",
       "b",
       3,
       false,
       2,
       {"b"}},
      {"a stop string in a stop token that is shown",
       {"a", "xby", "c"},
       {"b"},
       {"a", "x"},
       kString,
       "b",
       "",
       2,
       false,
       0,
       {"c"}},
      {"a stop that a special token spells",
       {"a", kStartOfTurn, "b"},
       {kStartOfTurn},
       {"a"},
       kToken,
       "",
       kStartOfTurn,
       2},
      // Bytes and characters.
      {"a character of two tokens", {"\xE4\xBD", "\xA0", "!"}, {}, {"你", "!"}},
      {"a character of four tokens", {"\xF0", "\x9F", "\x98", "\x80"}, {}, {"😀"}},
      {"half a character at the end", {"ok", "\xF0\x9F\x98"}, {}, {"ok", fffd}},
      {"half a character dropped", {"ok", "\xF0\x9F\x98"}, {}, {"ok"}},
      {"half a character and a letter", {"\xE4\xBD", "A"}, {}, {fffd + "A"}},
      {"half a surrogate", {"\xED\xA0", "\x80"}, {}, {fffd + fffd, fffd}},
      {"half a character and a whole one", {"\xE2\x82", "\xE2\x82\xAC"}, {}, {fffd + "€"}},
      {"a replacement character of the model", {"a", "\xEF\xBF\xBD", "b"}, {}, {"a", fffd, "b"}},
      {"bytes that begin nothing", {"a", "\x80", "\xBF", "b"}, {}, {"a", fffd, fffd, "b"}},
      {"a zero", {"a", std::string(1, '\0'), "b"}, {}, {"a", std::string(1, '\0'), "b"}},
      {"characters over several steps", {"a", "b", "\xE4", "\xBD", "\xA0"}, {}, {"a", "b", "你"}},
      {"a special token inside a character",
       {"\xE4\xBD", kStartOfTurn, "\xA0"},
       {},
       {fffd + kStartOfTurn, fffd},
       GenerationEnd::kLength,
       "",
       "",
       0,
       false,
       0,
       {},
       false},
      {"an id without a token", {"<unknown>", "A"}, {}, {"A"}},
      {"an added token with spaces", {" sp "}, {}, {" sp "}},
      {"a special token that is shown",
       {kEndOfSentence},
       {},
       {kEndOfSentence},
       GenerationEnd::kLength,
       "",
       "",
       0,
       false,
       0,
       {},
       false},
      {"a character that begins in the prompt", {"\xA0", "!"}, {}, {"你", "!"}},
      {"half a character in the prompt", {"!"}, {}, {fffd + "!"}},
  };
  for (TextCase& one : cases) {
    if (one.name == "half a character dropped") one.incomplete = Incomplete::kDrop;
    if (one.name == "a replacement character at the end") one.is_full = true;
    if (one.name.ends_with("in the prompt")) one.prompt = {"Hello", "\xE4\xBD"};
  }
  // Sixteen stops of which none comes, and a megabyte that could be the beginning of each.
  TextCase flood{"a megabyte that may always be a stop", {}};
  for (int i = 0; i < 64; ++i) flood.tokens.push_back(std::string(16384, 'a'));
  for (int i = 0; i < 16; ++i) flood.stops.push_back(std::string(31, 'a') + char('b' + i));
  cases.push_back(flood);
  return cases;
}

}  // namespace sluice::test
