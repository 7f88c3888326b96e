#include <algorithm>
#include <array>
#include <utility>

#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {
namespace {

constexpr size_t kLongestKey = 64;
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords = {
    {{"True", "true"},
     {"False", "false"},
     {"None", "null"},
     {"true", "true"},
     {"false", "false"},
     {"null", "null"}}};
constexpr size_t kLongestWord = 5;

bool IsNumberByte(char byte) {
  return IsDigit(byte) || byte == '.' || byte == 'e' || byte == 'E' || byte == '+' || byte == '-';
}

}  // namespace

void PythonArguments::Separate(std::string& out) {
  if (std::exchange(needs_comma_, false)) out.append(", ");
}

bool PythonArguments::EndWord(std::string& out) {
  const auto found = std::ranges::find(kWords, std::string_view(word_),
                                       [](const auto& word) { return word.first; });
  if (found == kWords.end()) return false;
  out.append(found->second);
  word_.clear();
  return true;
}

ArgumentsProgress PythonArguments::Add(char byte, std::string& out) {
  switch (place_) {
    case Place::kBegin:
      out.push_back('{');
      brackets_.Open('(');
      place_ = Place::kKey;
      return AddPlain(byte, out);
    case Place::kInText:
      AddToText(byte, out);
      return ArgumentsProgress::kMore;
    case Place::kInNumber:
      if (byte == '_') return ArgumentsProgress::kMore;
      if (IsNumberByte(byte)) {
        out.push_back(byte);
        return ArgumentsProgress::kMore;
      }
      place_ = Place::kAfterValue;
      return AddPlain(byte, out);
    case Place::kInWord:
      if (IsLetter(byte) && word_.size() < kLongestWord) {
        word_.push_back(byte);
        return ArgumentsProgress::kMore;
      }
      if (IsLetter(byte) || !EndWord(out)) return ArgumentsProgress::kBroken;
      place_ = Place::kAfterValue;
      return AddPlain(byte, out);
    case Place::kInKey:
      if ((IsLetter(byte) || IsDigit(byte)) && word_.size() < kLongestKey) {
        word_.push_back(byte);
        return ArgumentsProgress::kMore;
      }
      if (byte != '=' && !IsSpace(byte)) return ArgumentsProgress::kBroken;
      place_ = Place::kEquals;
      return AddPlain(byte, out);
    default:
      return AddPlain(byte, out);
  }
}

// At a place where white space means nothing.
ArgumentsProgress PythonArguments::AddPlain(char byte, std::string& out) {
  if (IsSpace(byte)) return ArgumentsProgress::kMore;
  switch (place_) {
    case Place::kKey:
      if (byte == ')') return Close(byte, out);
      if (!IsLetter(byte)) return ArgumentsProgress::kBroken;
      word_.push_back(byte);
      place_ = Place::kInKey;
      return ArgumentsProgress::kMore;
    case Place::kEquals:
      if (byte != '=') return ArgumentsProgress::kBroken;
      Separate(out);
      out.append("\"").append(std::exchange(word_, {})).append("\": ");
      place_ = Place::kValue;
      return ArgumentsProgress::kMore;
    case Place::kFirstValue:
      if (byte == ']' || byte == ')') return Close(byte, out);
      return BeginValue(byte, out);
    case Place::kValue:
      return BeginValue(byte, out);
    case Place::kDictKey:
      if (byte == '}') return Close(byte, out);
      if (byte != '\'' && byte != '"') return ArgumentsProgress::kBroken;
      is_key_ = true;
      return BeginValue(byte, out);
    case Place::kColon:
      if (byte != ':') return ArgumentsProgress::kBroken;
      out.append(": ");
      place_ = Place::kValue;
      return ArgumentsProgress::kMore;
    default:  // kAfterValue
      if (byte != ',') return Close(byte, out);
      needs_comma_ = true;
      place_ = brackets_.depth() == 1         ? Place::kKey
               : brackets_.innermost() == '{' ? Place::kDictKey
                                              : Place::kFirstValue;
      return ArgumentsProgress::kMore;
  }
}

ArgumentsProgress PythonArguments::BeginValue(char byte, std::string& out) {
  if (byte == '\'' || byte == '"') {
    Separate(out);
    quote_ = byte;
    out.push_back('"');
    place_ = Place::kInText;
  } else if (byte == '[' || byte == '(' || byte == '{') {
    if (!brackets_.Open(byte)) return ArgumentsProgress::kBroken;
    Separate(out);
    out.push_back(byte == '{' ? '{' : '[');
    place_ = byte == '{' ? Place::kDictKey : Place::kFirstValue;
  } else if (IsDigit(byte) || byte == '-') {
    Separate(out);
    out.push_back(byte);
    place_ = Place::kInNumber;
  } else if (IsLetter(byte)) {
    Separate(out);
    word_.push_back(byte);
    place_ = Place::kInWord;
  } else {
    return ArgumentsProgress::kBroken;
  }
  return ArgumentsProgress::kMore;
}

ArgumentsProgress PythonArguments::Close(char byte, std::string& out) {
  const bool is_bracket = byte == ')' || byte == ']' || byte == '}';
  if (!is_bracket || !brackets_.Close(byte)) return ArgumentsProgress::kBroken;
  needs_comma_ = false;
  place_ = Place::kAfterValue;
  if (brackets_.depth() == 0) {
    out.push_back('}');
    return ArgumentsProgress::kEnd;
  }
  out.push_back(byte == '}' ? '}' : ']');
  return ArgumentsProgress::kMore;
}

void PythonArguments::AddToText(char byte, std::string& out) {
  if (hex_digits_ > 0) {
    --hex_digits_;
    out.push_back(byte);
  } else if (is_escaped_) {
    is_escaped_ = false;
    AddEscape(byte, out);
  } else if (byte == '\\') {
    is_escaped_ = true;
  } else if (byte == quote_) {
    out.push_back('"');
    place_ = std::exchange(is_key_, false) ? Place::kColon : Place::kAfterValue;
  } else {
    AppendTextByte(byte, out);
  }
}

void PythonArguments::AddEscape(char byte, std::string& out) {
  constexpr std::string_view kAsInJson = "\"\\nrtbf";
  if (kAsInJson.find(byte) != std::string_view::npos) {
    out.push_back('\\');
    out.push_back(byte);
  } else if (byte == 'u') {
    out.append("\\u");
  } else if (byte == 'x') {
    out.append("\\u00");
    hex_digits_ = 2;
  } else if (byte == '\'') {
    out.push_back(byte);
  } else if (byte != '\n') {  // a backslash at the end of a line goes away with it
    out.append("\\\\");
    AppendTextByte(byte, out);
  }
}

}  // namespace sluice::text
