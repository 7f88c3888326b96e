// Tables of wrong arguments and the Error that each gives.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::test {

// `spoil` makes one argument of a call wrong. The Error names it, its value and what is allowed.
template <typename Call>
struct BadCase {
  std::function<void(Call&)> spoil;
  std::string parameter;
  std::string value;
  std::string allowed;
  ErrorCode code = ErrorCode::kInvalidValue;
};

inline void ExpectError(const std::function<void()>& call, const std::string& parameter,
                        const std::string& value, const std::string& allowed,
                        ErrorCode code = ErrorCode::kInvalidValue) {
  try {
    call();
    ADD_FAILURE() << "no Error; expected: " << parameter << " = " << value
                  << " is not allowed: " << allowed;
  } catch (const Error& error) {
    EXPECT_EQ(error.parameter(), parameter);
    EXPECT_EQ(error.value(), value) << parameter;
    EXPECT_EQ(error.allowed(), allowed) << parameter;
    EXPECT_EQ(error.code(), code) << parameter;
    const std::string message = error.what();
    if (value.empty()) {  // nothing was given
      EXPECT_NE(message.find("missing "), std::string::npos) << message;
      EXPECT_TRUE(message.ends_with(": " + allowed)) << message;
    } else {
      EXPECT_EQ(message, parameter + " = " + value + " is not allowed: " + allowed);
    }
  }
}

// Every case on a call of its own, and the good call itself.
template <typename Call, typename Run>
void ExpectErrors(const std::vector<BadCase<Call>>& cases, Run run) {
  {
    Call good;
    EXPECT_NO_THROW(run(good));
  }
  for (const BadCase<Call>& bad : cases) {
    Call call;
    bad.spoil(call);
    ExpectError([&] { run(call); }, bad.parameter, bad.value, bad.allowed, bad.code);
  }
}

inline int64_t& Width(LogitsView& view) { return view.vocab; }
inline int64_t& Width(MutableLogitsView& view) { return view.vocab; }
inline int64_t& Width(MatrixView& view) { return view.columns; }

template <typename Pointer>
Pointer OneByteOn(Pointer data) {
  return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(data) + 1);
}

// What is wrong of any matrix of fp32 values. `view` finds it in the call.
template <typename Call, typename View>
std::vector<BadCase<Call>> ViewCases(const std::string& name, const std::string& width_name,
                                     int64_t width, int64_t max_width, View view) {
  return {
      {[=](Call& c) { view(c).stride = width - 1; }, name + ".stride", std::to_string(width - 1),
       "at least the row's " + std::to_string(width) + " elements"},
      {[=](Call& c) { Width(view(c)) = 0; }, name + "." + width_name, "0",
       "[1, " + std::to_string(max_width) + "]"},
      {[=](Call& c) { Width(view(c)) = max_width + 1; }, name + "." + width_name,
       std::to_string(max_width + 1), "[1, " + std::to_string(max_width) + "]"},
      {[=](Call& c) { view(c).rows = -1; }, name + ".rows", "-1", "[0, 2147483647]"},
      {[=](Call& c) { view(c).data = nullptr; }, name + ".data", "null", "a pointer to the rows"},
      {[=](Call& c) { view(c).data = OneByteOn(view(c).data); }, name + ".data",
       "a misaligned pointer", "a multiple of the element size"},
      {[=](Call& c) { view(c).dtype = static_cast<DType>(7); }, name + ".dtype", "7",
       "float32, bfloat16 or float16", ErrorCode::kInvalidType},
      {[=](Call& c) { view(c).device.kind = DeviceKind::kCuda; }, name + ".device", "cuda",
       "cpu with this backend", ErrorCode::kInvalidType},
  };
}

template <typename Call>
void Append(std::vector<BadCase<Call>>& cases, std::vector<BadCase<Call>> more) {
  cases.insert(cases.end(), more.begin(), more.end());
}

}  // namespace sluice::test
