// The arguments of a call, byte by byte, to JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

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
// Numbers stay as they are written. Brackets of tuples become those of lists.
class PythonArguments {
 public:
  ArgumentsProgress Add(char byte, std::string& out);
  std::string_view unread() const { return word_; }

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
    kInNumber,
    kInWord,
  };

  ArgumentsProgress AddPlain(char byte, std::string& out);
  ArgumentsProgress BeginValue(char byte, std::string& out);
  ArgumentsProgress Close(char byte, std::string& out);
  bool EndWord(std::string& out);
  void AddToText(char byte, std::string& out);
  void AddEscape(char byte, std::string& out);
  void Separate(std::string& out);

  Place place_ = Place::kBegin;
  Brackets brackets_;
  bool needs_comma_ = false;
  bool is_key_ = false;  // the text is one of a dict
  bool is_escaped_ = false;
  int hex_digits_ = 0;  // of an escape, that follow
  char quote_ = 0;
  std::string word_;
};

// <parameter=a>1</parameter>, white space between, up to </function>: {"a": 1}. A value is a text
// unless `is_json` says that it is JSON already.
class ElementArguments {
 public:
  using IsJson = std::function<bool(std::string_view parameter)>;

  explicit ElementArguments(IsJson is_json = {}) : is_json_(std::move(is_json)) {}
  ArgumentsProgress Add(char byte, std::string& out);
  std::string_view unread() const { return held_; }

 private:
  enum class Place : uint8_t { kBetween, kInKey, kBegin, kValue };

  ArgumentsProgress AddBetween(char byte, std::string& out);
  void AddToKey(char byte, std::string& out);
  void AddToValue(char byte, std::string& out);

  IsJson is_json_;
  Place place_ = Place::kBetween;
  bool has_begun_ = false;
  bool needs_comma_ = false;
  bool is_value_json_ = false;
  std::string held_;  // a beginning of a marker, or a key with its marker
};

// One byte of a JSON text from one of any text.
void AppendTextByte(char byte, std::string& out);

}  // namespace sluice::text
