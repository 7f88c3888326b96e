// Texts of floats, as Python writes them.
#pragma once

#include <string>

namespace sluice::text::jinja {

// type: e, f, g, or r for the shortest digits, which repr() has; E, F and G raise the letters.
// `keeps_point` is the # of formats; `adds_zero` gives whole numbers a ".0".
std::string RealText(double value, char type, int precision, bool keeps_point, bool adds_zero);

inline std::string RealText(double value) { return RealText(value, 'r', 0, false, true); }

void RaiseLetters(std::string& text);  // those of ASCII

}  // namespace sluice::text::jinja
