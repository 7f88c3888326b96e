// Checks of what a caller passed. Each names the parameter, the value and what is allowed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/error.hpp"
#include "sluice/execution.hpp"
#include "sluice/select.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

std::string ToText(double value);  // the shortest text that gives the value back
std::string ToText(int64_t value);
std::string ToText(std::string_view value);
std::string RangeText(int64_t low, int64_t high);

// "parameter.member" (or "member" alone) without an allocation: a check that passes takes no
// memory.
class MemberName {
 public:
  MemberName(std::string_view parameter, std::string_view member);
  operator std::string_view() const  // NOLINT(google-explicit-constructor)
  {
    return {text_.data(), size_};
  }

 private:
  void Append(std::string_view text);

  std::array<char, 64> text_;
  size_t size_ = 0;
};

[[noreturn]] void ThrowInvalid(std::string_view parameter, std::string value, std::string allowed);

void CheckInRange(std::string_view parameter, int64_t value, int64_t low, int64_t high);

// `size` elements of `parameter`, of which there must be exactly `expected`.
void CheckSize(std::string_view parameter, size_t size, int64_t expected);

// One element for all rows, or one a row.
void CheckPerRow(std::string_view parameter, size_t size, int64_t rows);

// A matrix on that device with 1 <= columns <= max_columns, stride >= columns, a known dtype and
// aligned data. `parameter` is its name, `columns_name` what the caller calls its width.
void CheckMatrix(std::string_view parameter, std::string_view columns_name,
                 const MatrixView& matrix, int64_t max_columns,
                 DeviceKind device = DeviceKind::kCpu);
void CheckLogits(std::string_view parameter, const LogitsView& logits,
                 DeviceKind device = DeviceKind::kCpu);
void CheckDType(std::string_view parameter, DType dtype, DType expected);

void CheckWorkers(const Execution& execution);
void CheckExecution(const Execution& execution, size_t workspace_bytes);
void CheckMethod(DrawMethod method);

// The checks that all calls with a SelectInput share.
void CheckSelectInput(std::string_view parameter, const SelectInput& input,
                      const Execution& execution, size_t workspace_bytes);

}  // namespace sluice
