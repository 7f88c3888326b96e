// Numbers as text, equal in every locale.
#pragma once

#include <charconv>
#include <string>

namespace sluice {

// The shortest text that reads back as the same value.
template <typename T>
std::string Number(T value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

}  // namespace sluice
