#include "support/check.h"

#include <array>
#include <charconv>
#include <utility>

namespace sluice {
namespace {

// "line 3: missing prompt" for "line 3: prompt": the place of a parameter comes first.
std::string Missing(const std::string& parameter) {
  const size_t colon = parameter.rfind(": ");
  const size_t name = colon == std::string::npos ? 0 : colon + 2;
  return parameter.substr(0, name) + "missing " + parameter.substr(name);
}

}  // namespace

Error::Error(ErrorCode code, std::string parameter, std::string value, std::string allowed)
    : code_(code),
      parameter_(std::move(parameter)),
      value_(std::move(value)),
      allowed_(std::move(allowed)),
      message_(value_.empty() ? Missing(parameter_) + ": " + allowed_
                              : parameter_ + " = " + value_ + " is not allowed: " + allowed_) {}

std::string ToText(double value) {
  std::array<char, 32> text;
  const float narrow = static_cast<float>(value);  // most values are parameters, and those are fp32
  const auto result = static_cast<double>(narrow) == value
                          ? std::to_chars(text.begin(), text.end(), narrow)
                          : std::to_chars(text.begin(), text.end(), value);
  return std::string(text.begin(), result.ptr);
}

std::string ToText(int64_t value) { return std::to_string(value); }

std::string ToText(std::string_view value) { return std::string("\"").append(value).append("\""); }

std::string RangeText(int64_t low, int64_t high) {
  return std::string("[").append(ToText(low)).append(", ").append(ToText(high)).append("]");
}

MemberName::MemberName(std::string_view parameter, std::string_view member) {
  Append(parameter);
  if (!parameter.empty()) Append(".");
  Append(member);
}

void MemberName::Append(std::string_view text) {
  size_ += text.copy(text_.data() + size_, text_.size() - size_);
}

void ThrowInvalid(std::string_view parameter, std::string value, std::string allowed) {
  throw Error(ErrorCode::kInvalidValue, std::string(parameter), std::move(value),
              std::move(allowed));
}

void CheckInRange(std::string_view parameter, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  ThrowInvalid(parameter, ToText(value), low == high ? ToText(low) : RangeText(low, high));
}

void CheckSize(std::string_view parameter, size_t size, int64_t expected) {
  if (static_cast<int64_t>(size) == expected) return;
  ThrowInvalid(std::string(parameter) + ".size()", ToText(static_cast<int64_t>(size)),
               ToText(expected));
}

void CheckPerRow(std::string_view parameter, size_t size, int64_t rows) {
  if (size == 1 || static_cast<int64_t>(size) == rows) return;
  ThrowInvalid(std::string(parameter) + ".size()", ToText(static_cast<int64_t>(size)),
               std::string("1 or the number of rows, ").append(ToText(rows)));
}

void CheckDType(std::string_view parameter, DType dtype, DType expected) {
  if (dtype == expected) return;
  throw Error(ErrorCode::kInvalidType, std::string(parameter) + ".dtype", std::string(Name(dtype)),
              std::string(Name(expected)));
}

void CheckMatrix(std::string_view parameter, std::string_view columns_name,
                 const MatrixView& matrix, int64_t max_columns, DeviceKind device) {
  if (matrix.dtype > DType::kF16) {
    throw Error(ErrorCode::kInvalidType, std::string(MemberName(parameter, "dtype")),
                ToText(static_cast<int64_t>(matrix.dtype)), "float32, bfloat16 or float16");
  }
  if (matrix.device.kind != device) {
    const bool wants_cpu = device == DeviceKind::kCpu;
    throw Error(ErrorCode::kInvalidType, std::string(MemberName(parameter, "device")),
                wants_cpu ? "cuda" : "cpu", wants_cpu ? "cpu with this backend" : "cuda");
  }
  CheckInRange(MemberName(parameter, "rows"), matrix.rows, 0, INT32_MAX);
  CheckInRange(MemberName(parameter, columns_name), matrix.columns, 1, max_columns);
  if (matrix.stride < matrix.columns) {
    ThrowInvalid(
        MemberName(parameter, "stride"), ToText(matrix.stride),
        std::string("at least the row's ").append(ToText(matrix.columns)).append(" elements"));
  }
  constexpr int64_t kMostElements = INT64_MAX / 4;  // so that no byte offset overflows
  if (matrix.rows > 0 && matrix.stride > kMostElements / matrix.rows) {
    ThrowInvalid(MemberName(parameter, "stride"), ToText(matrix.stride),
                 "at most 2^61 elements in all rows");
  }
  if (matrix.rows == 0) return;
  if (matrix.data == nullptr) {
    ThrowInvalid(MemberName(parameter, "data"), "null", "a pointer to the rows");
  }
  if (reinterpret_cast<uintptr_t>(matrix.data) % SizeOf(matrix.dtype) != 0) {
    ThrowInvalid(MemberName(parameter, "data"), "a misaligned pointer",
                 "a multiple of the element size");
  }
}

void CheckLogits(std::string_view parameter, const LogitsView& logits, DeviceKind device) {
  CheckMatrix(parameter, "vocab",
              {logits.data, logits.rows, logits.vocab, logits.stride, logits.dtype, logits.device},
              kMaxVocab, device);
}

void CheckWorkers(const Execution& execution) {
  CheckInRange("execution.parallel.workers", execution.parallel.workers, 1, 1 << 16);
}

void CheckMethod(DrawMethod method) {
  if (method == DrawMethod::kGumbel || method == DrawMethod::kCdf) return;
  ThrowInvalid("draw_method", ToText(static_cast<int64_t>(method)), "gumbel or cdf");
}

void CheckExecution(const Execution& execution, size_t workspace_bytes) {
  CheckWorkers(execution);
  if (execution.workspace.size() < workspace_bytes) {
    ThrowInvalid("execution.workspace.size()",
                 ToText(static_cast<int64_t>(execution.workspace.size())),
                 std::string("at least ").append(ToText(static_cast<int64_t>(workspace_bytes))));
  }
  if (reinterpret_cast<uintptr_t>(execution.workspace.data()) % kWorkspaceAlignment != 0) {
    ThrowInvalid(
        "execution.workspace.data()", "a misaligned pointer",
        std::string("a multiple of ").append(ToText(static_cast<int64_t>(kWorkspaceAlignment))));
  }
}

void CheckSelectInput(std::string_view parameter, const SelectInput& input,
                      const Execution& execution, size_t workspace_bytes) {
  CheckLogits(MemberName(parameter, "logits"), input.logits);
  CheckPerRow(MemberName(parameter, "params"), input.params.size(), input.logits.rows);
  if (!input.keys.empty()) {
    CheckPerRow(MemberName(parameter, "keys"), input.keys.size(), input.logits.rows);
  }
  CheckExecution(execution, workspace_bytes);
}

}  // namespace sluice
