// The row that the demonstration works on. It is generated: noise over a made-up vocabulary, and
// likely next words written by hand. No model is involved.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

inline constexpr int32_t kDemoVocab = 32000;
inline constexpr int32_t kDemoBannedId = 4910;  // " bank"
inline constexpr int32_t kDemoEndOfTextId = 2;  // "</s>"

std::vector<float> DemoLogits();

// The text of a token as it stands in a vocabulary, its leading space included; empty for the ids
// that are only noise.
std::string_view DemoWord(int32_t id);

std::span<const int32_t> DemoPrompt();
std::span<const int32_t> DemoOutput();  // what was generated so far
std::string DemoText(std::span<const int32_t> ids);

}  // namespace sluice::cli
