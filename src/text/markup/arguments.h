// The arguments of a call, byte by byte, to JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::text {

enum class ArgumentsProgress : uint8_t {
  kMore,
  kEnd,     // the byte was the last one
  kBroken,  // the byte is not part of them; nor is `unread` before it
};

// The brackets that are open.
class Brackets {
 public:
  static constexpr int kMost = 64;
  bool Open(char bracket) {
    if (depth_ == kMost) return false;
    open_[depth_++] = bracket;
    return true;
  }
  bool Close(char bracket) {
    const char opening = bracket == ')' ? '(' : bracket == ']' ? '[' : '{';
    if (depth_ == 0 || open_[depth_ - 1] != opening) return false;
    --depth_;
    return true;
  }
  int depth() const { return depth_; }
  char innermost() const { return depth_ == 0 ? '\0' : open_[depth_ - 1]; }

 private:
  char open_[kMost] = {};
  int depth_ = 0;
};

// A JSON object as it is, from its { to its }.
class JsonArguments {
 public:
  ArgumentsProgress Add(char byte, std::string& out);

 private:
  Brackets brackets_;
  bool is_in_text_ = false;
  bool is_escaped_ = false;
};

// f(a=1, b='x', c=[True, None]) after the first bracket: {"a": 1, "b": "x", "c": [true, null]}.
// Brackets of tuples become those of lists. An escape that is not complete is text.
class PythonArguments {
 public:
  ArgumentsProgress Add(char byte, std::string& out);
  std::string_view unread() const { return word_; }

  // A list, a tuple or a dict alone, from its bracket on; a text in it may have JSON's escapes.
  static PythonArguments OfValue();

 private:
  enum class Place : uint8_t {
    kBegin,
    kKey,  // or an end
    kInKey,
    kEquals,
    kValue,
    kFirstValue,  // or an end
    kDictKey,     // or an end
    kColon,
    kAfterValue,
    kInText,
    kInEscape,
    kInScalar,
  };

  ArgumentsProgress AddPlain(char byte, std::string& out);
  ArgumentsProgress BeginValue(char byte, std::string& out);
  ArgumentsProgress Close(char byte, std::string& out);
  void AddToText(char byte, std::string& out);
  void AddEscape(char byte, std::string& out);
  void AddToEscape(char byte, std::string& out);
  void Separate(std::string& out);

  Place place_ = Place::kBegin;
  Brackets brackets_;
  bool is_call_ = true;
  bool needs_comma_ = false;
  bool is_key_ = false;  // the text is one of a dict
  bool is_escaped_ = false;
  char quote_ = 0;
  std::string word_;  // a key, a scalar or an escape that has not ended
};

// <parameter=a>1</parameter>, white space between, up to </function>: {"a": 1}. A value is a text
// unless `json_keys` has its parameter: then it is what it says in JSON or in Python, and a text
// where it says nothing in them.
class ElementArguments {
 public:
  explicit ElementArguments(std::vector<std::string> json_keys = {})
      : json_keys_(std::move(json_keys)) {}
  ArgumentsProgress Add(char byte, std::string& out);
  std::string_view unread() const {
    return place_ == Place::kInBrackets ? brackets_.unread() : held_;
  }

 private:
  enum class Place : uint8_t {
    kBetween,
    kInKey,
    kBegin,
    kScalar,
    kInBrackets,
    kAfterBrackets,
    kText,
  };

  ArgumentsProgress AddBetween(char byte, std::string& out);
  ArgumentsProgress AddToBrackets(char byte, std::string& out);
  ArgumentsProgress AddAfterBrackets(char byte);
  void AddToKey(char byte, std::string& out);
  void AddToScalar(char byte, std::string& out);
  void AddToText(char byte, std::string& out);

  std::vector<std::string> json_keys_;
  Place place_ = Place::kBetween;
  bool has_begun_ = false;
  bool needs_comma_ = false;
  bool is_json_ = false;  // the value
  PythonArguments brackets_;
  std::string held_;  // a beginning of a marker, a key with its marker, or a scalar
};

// What a word or a number says in JSON or in Python: True, 1_000, .5; false where it is none.
bool AppendScalar(std::string_view text, std::string& out);

// One byte of a JSON text from one of any text.
void AppendTextByte(char byte, std::string& out);

}  // namespace sluice::text
