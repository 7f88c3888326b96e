#include <string_view>

#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {
namespace {

bool MayBeOutsideTexts(char byte) {
  constexpr std::string_view kSigns = ":,+-.";
  return IsSpace(byte) || IsLetter(byte) || IsDigit(byte) ||
         kSigns.find(byte) != std::string_view::npos;
}

}  // namespace

void AppendTextByte(char byte, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (byte) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\t':
      out.append("\\t");
      return;
    default:
      break;
  }
  const auto value = static_cast<uint8_t>(byte);
  if (value < 0x20) {
    out.append("\\u00").push_back(kHex[value >> 4]);
    out.push_back(kHex[value & 15]);
  } else {
    out.push_back(byte);
  }
}

ArgumentsProgress JsonArguments::Add(char byte, std::string& out) {
  bool is_end = false;
  if (is_in_text_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (byte == '\\') {
      is_escaped_ = true;
    } else if (byte == '"') {
      is_in_text_ = false;
    }
  } else if (byte == '"') {
    is_in_text_ = true;
  } else if (byte == '{' || byte == '[') {
    if (!brackets_.Open(byte)) return ArgumentsProgress::kBroken;
  } else if (byte == '}' || byte == ']') {
    if (!brackets_.Close(byte)) return ArgumentsProgress::kBroken;
    is_end = brackets_.depth() == 0;
  } else if (!MayBeOutsideTexts(byte)) {
    return ArgumentsProgress::kBroken;
  }
  out.push_back(byte);
  return is_end ? ArgumentsProgress::kEnd : ArgumentsProgress::kMore;
}

}  // namespace sluice::text
