// Arrays that Python passes in, without a copy: the buffer protocol (numpy) or DLPack (torch and
// the rest), and bfloat16 of ml_dtypes, which has neither. Everything a view of the library cannot
// say is refused here; the rest is left to the library's own checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sluice/tensor.hpp"

namespace sluice::python {

namespace nb = nanobind;

enum class Element : uint8_t {
  kF32,
  kBf16,
  kF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kOther
};
std::string_view Name(Element element);
size_t SizeOf(Element element);

template <typename T>
constexpr Element ElementOf() {
  if constexpr (std::is_same_v<T, float>) return Element::kF32;
  if constexpr (std::is_same_v<T, double>) return Element::kF64;
  if constexpr (std::is_same_v<T, int32_t>) return Element::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return Element::kI64;
  if constexpr (std::is_same_v<T, uint64_t>) return Element::kU64;
  return Element::kOther;
}

enum class Access { kRead, kWrite };

// What an array object shows of itself; it stays alive and unmoved as long as this lives.
class Array {
 public:
  static constexpr int kMaxDims = 4;

  // Nothing when `object` is no array.
  static std::optional<Array> Open(std::string_view name, nb::handle object, Access access);
  // Throws when it is none, naming `allowed`.
  static Array Get(std::string_view name, nb::handle object, Access access,
                   std::string_view allowed);

  Array(Array&& other) noexcept;
  Array& operator=(Array&&) = delete;
  ~Array();

  void* data() const { return data_; }
  int ndim() const { return ndim_; }
  int64_t shape(int axis) const { return shape_[static_cast<size_t>(axis)]; }
  // In elements.
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  Element element() const { return element_; }
  Device device() const { return device_; }
  const std::string& dtype_name() const { return dtype_name_; }

  void CheckOnHost(std::string_view name) const;
  void CheckDims(std::string_view name, int fewest, int most) const;
  // The elements of the last axis are adjacent.
  void CheckLastAxis(std::string_view name, Access access) const;
  // All of them do.
  void CheckContiguous(std::string_view name) const;

 private:
  Array() = default;
  bool OpenBuffer(std::string_view name, nb::handle object, Access access);
  bool OpenDlpack(std::string_view name, nb::handle object, Access access);

  void* data_ = nullptr;
  int ndim_ = 0;
  std::array<int64_t, kMaxDims> shape_ = {};
  std::array<int64_t, kMaxDims> strides_ = {};
  Element element_ = Element::kOther;
  Device device_ = {};
  std::string dtype_name_;
  // One of these holds the memory.
  Py_buffer buffer_ = {};
  nb::ndarray<nb::ro> readable_;
  nb::ndarray<> writable_;
};

// A matrix argument with its memory. One axis is one row, and is_row says so.
struct MatrixArgument {
  Array array;
  bool is_row;
  MatrixView view;

  LogitsView Logits() const {
    return {view.data, view.rows, view.columns, view.stride, view.dtype, view.device};
  }
  MutableLogitsView MutableLogits() const {
    return {array.data(), view.rows, view.columns, view.stride, view.dtype, view.device};
  }
};
MatrixArgument GetMatrix(std::string_view name, nb::handle object, Access access = Access::kRead);

// An array argument of one element type with adjacent elements.
template <typename T>
struct Elements {
  Array array;
  std::span<T> values;
};
// `shape`: what it has to be; -1 is any.
Array GetElements(std::string_view name, nb::handle object, Access access, Element element,
                  std::initializer_list<int64_t> shape);
template <typename T>
Elements<T> GetElements(std::string_view name, nb::handle object, Access access,
                        std::initializer_list<int64_t> shape) {
  Array array = GetElements(name, object, access, ElementOf<std::remove_const_t<T>>(), shape);
  size_t size = 1;
  for (int axis = 0; axis < array.ndim(); ++axis) size *= static_cast<size_t>(array.shape(axis));
  T* data = static_cast<T*>(array.data());
  return {std::move(array), {data, size}};
}

// numpy arrays over memory of `owner`. Strides in elements; none is contiguous.
template <typename T>
nb::object AsNumpy(nb::handle owner, T* data, std::initializer_list<size_t> shape,
                   std::initializer_list<int64_t> strides = {}) {
  const nb::ndarray<nb::numpy, T> array(data, shape.size(), shape.begin(), owner,
                                        strides.size() == 0 ? nullptr : strides.begin());
  return nb::cast(array, nb::rv_policy::reference);
}

// A new numpy array.
template <typename T>
struct NewArray {
  nb::object object;
  std::span<T> values;
};
template <typename T>
NewArray<T> MakeNumpy(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t extent : shape) size *= extent;
  T* data = new T[size];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {AsNumpy(owner, data, shape), {data, size}};
}

}  // namespace sluice::python
