#include <charconv>
#include <cstdint>
#include <utility>

#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {
namespace {

constexpr size_t kLongestKey = 64;
constexpr size_t kLongestScalar = 256;

bool IsScalarByte(char byte) {
  return IsLetter(byte) || IsDigit(byte) || byte == '.' || byte == '+' || byte == '-';
}

bool IsHexDigit(char byte) {
  return IsDigit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

// With the backslash and the letter.
size_t EscapeSize(char letter) { return letter == 'x' ? 4 : letter == 'u' ? 6 : 10; }

void AppendHex(uint32_t unit, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out.append("\\u");
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kDigits[(unit >> shift) & 15]);
}

// As JSON has it, above 0xFFFF in two halves. False: there is no such character.
bool AppendCharacter(std::string_view digits, std::string& out) {
  uint32_t code = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (code > 0x10FFFF) return false;
  if (code > 0xFFFF) AppendHex(0xD7C0 + (code >> 10), out);
  AppendHex(code > 0xFFFF ? 0xDC00 + (code & 0x3FF) : code, out);
  return true;
}

}  // namespace

PythonArguments PythonArguments::OfValue() {
  PythonArguments value;
  value.is_call_ = false;
  value.place_ = Place::kValue;
  return value;
}

void PythonArguments::Separate(std::string& out) {
  if (std::exchange(needs_comma_, false)) out.append(", ");
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
    case Place::kInEscape:
      AddToEscape(byte, out);
      return ArgumentsProgress::kMore;
    case Place::kInScalar:
      if (IsScalarByte(byte) && word_.size() < kLongestScalar) {
        word_.push_back(byte);
        return ArgumentsProgress::kMore;
      }
      if (!AppendScalar(word_, out)) return ArgumentsProgress::kBroken;
      word_.clear();
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
      place_ = is_call_ && brackets_.depth() == 1 ? Place::kKey
               : brackets_.innermost() == '{'     ? Place::kDictKey
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
  } else if (IsScalarByte(byte)) {
    Separate(out);
    word_.push_back(byte);
    place_ = Place::kInScalar;
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
  const bool is_end = brackets_.depth() == 0;
  out.push_back(byte == '}' || (is_end && is_call_) ? '}' : ']');
  return is_end ? ArgumentsProgress::kEnd : ArgumentsProgress::kMore;
}

void PythonArguments::AddToText(char byte, std::string& out) {
  if (is_escaped_) {
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
  } else if (byte == 'x' || byte == 'u' || byte == 'U') {
    word_.assign({'\\', byte});
    place_ = Place::kInEscape;
  } else if (byte == '\'' || (byte == '/' && !is_call_)) {
    out.push_back(byte);
  } else if (byte != '\n') {  // a backslash at the end of a line goes away with it
    out.append("\\\\");
    AppendTextByte(byte, out);
  }
}

void PythonArguments::AddToEscape(char byte, std::string& out) {
  const bool is_hex = IsHexDigit(byte);
  if (is_hex) word_.push_back(byte);
  if (is_hex && word_.size() < EscapeSize(word_[1])) return;
  place_ = Place::kInText;
  if (!is_hex || !AppendCharacter(std::string_view(word_).substr(2), out)) {
    for (const char held : word_) AppendTextByte(held, out);
  }
  word_.clear();
  if (!is_hex) AddToText(byte, out);
}

}  // namespace sluice::text
