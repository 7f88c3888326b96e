// Values of parameters as one word of a command line, and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sluice/params.hpp"

namespace sluice::cli {

// Throws Error naming `name`, the text, and what is allowed.
void FromText(std::string_view name, const std::string& text, float& value);
void FromText(std::string_view name, const std::string& text, int32_t& value);
void FromText(std::string_view name, const std::string& text, uint32_t& value);
void FromText(std::string_view name, const std::string& text, int64_t& value);
void FromText(std::string_view name, const std::string& text, uint64_t& value);
void FromText(std::string_view name, const std::string& text, DrawMethod& value);
void FromText(std::string_view name, const std::string& text, DraftMode& value);
void FromText(std::string_view name, const std::string& text, LogprobMode& value);
void FromText(std::string_view name, const std::string& text, Profile& value);
void FromText(std::string_view name, const std::string& text, TokenIds& value);
void FromText(std::string_view name, const std::string& text, TokenSequences& value);
void FromText(std::string_view name, const std::string& text, BiasEntries& value);
template <typename T>
void FromText(std::string_view name, const std::string& text, std::optional<T>& value) {
  FromText(name, text, value.emplace());
}

// FromText gives the value back. A profile without a name is "custom".
std::string ToText(float value);
std::string ToText(int32_t value);
std::string ToText(uint32_t value);
std::string ToText(int64_t value);
std::string ToText(uint64_t value);
std::string ToText(DrawMethod value);
std::string ToText(DraftMode value);
std::string ToText(LogprobMode value);
std::string ToText(const Profile& value);
std::string ToText(const TokenIds& value);
std::string ToText(const TokenSequences& value);
std::string ToText(const BiasEntries& value);
template <typename T>
std::string ToText(const std::optional<T>& value) {
  return value.has_value() ? ToText(*value) : "";
}

}  // namespace sluice::cli
