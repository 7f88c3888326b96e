#include "python/values/arrays.h"

#include <cstring>
#include <string>
#include <utility>

#include "python/errors.h"

namespace sluice::python {
namespace {

constexpr std::string_view kFloatArray =
    "an array of float32, bfloat16 or float16, of numpy or anything else with __dlpack__";

std::string ListText(std::string_view open, std::string_view close, int size,
                     const int64_t* values) {
  std::string text(open);
  for (int i = 0; i < size; ++i) text.append(i == 0 ? "" : ", ").append(std::to_string(values[i]));
  if (size == 1 && close == ")") text.append(",");
  return text.append(close);
}

Element Integer(bool is_signed, Py_ssize_t bytes) {
  switch (bytes) {
    case 1:
      return is_signed ? Element::kI8 : Element::kU8;
    case 2:
      return is_signed ? Element::kI16 : Element::kU16;
    case 4:
      return is_signed ? Element::kI32 : Element::kU32;
    case 8:
      return is_signed ? Element::kI64 : Element::kU64;
    default:
      return Element::kOther;
  }
}

// The element type of a format of the struct module. A foreign byte order is kOther.
Element ElementOfFormat(const char* format, Py_ssize_t bytes) {
  if (format == nullptr) return Element::kU8;
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  if (format[0] == '\0' || format[1] != '\0') return Element::kOther;
  switch (*format) {
    case 'e':
      return Element::kF16;
    case 'f':
      return Element::kF32;
    case 'd':
      return Element::kF64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return Integer(true, bytes);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return Integer(false, bytes);
    default:
      return Element::kOther;
  }
}

Element ElementOfDlpack(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return Element::kOther;
  switch (static_cast<Code>(dtype.code)) {
    case Code::Float:
      if (dtype.bits == 16) return Element::kF16;
      if (dtype.bits == 32) return Element::kF32;
      return dtype.bits == 64 ? Element::kF64 : Element::kOther;
    case Code::Bfloat:
      return dtype.bits == 16 ? Element::kBf16 : Element::kOther;
    case Code::Int:
      return Integer(true, dtype.bits / 8);
    case Code::UInt:
      return Integer(false, dtype.bits / 8);
    default:
      return Element::kOther;
  }
}

// How to get an array that is allowed.
std::string CopyText(std::string_view name, Access access) {
  if (access == Access::kWrite) return {};  // what is written to a copy is lost
  return std::string("; np.ascontiguousarray(")
      .append(name)
      .append(", dtype=np.float32) makes one");
}

// What the object itself calls its dtype: "complex64", "torch.int64", ">f4".
std::string DTypeText(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (dtype.is_none()) return "unknown";
  return nb::str(dtype).c_str();
}

}  // namespace

std::string_view Name(Element element) {
  constexpr std::array<std::string_view, 13> kNames = {
      "float32", "bfloat16", "float16", "float64", "int8",   "int16", "int32",
      "int64",   "uint8",    "uint16",  "uint32",  "uint64", "other"};
  return kNames[static_cast<size_t>(element)];
}

size_t SizeOf(Element element) {
  constexpr std::array<size_t, 13> kSizes = {4, 2, 2, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  return kSizes[static_cast<size_t>(element)];
}

Array::Array(Array&& other) noexcept
    : data_(other.data_),
      ndim_(other.ndim_),
      shape_(other.shape_),
      strides_(other.strides_),
      element_(other.element_),
      device_(other.device_),
      dtype_name_(std::move(other.dtype_name_)),
      buffer_(std::exchange(other.buffer_, Py_buffer{})),
      readable_(std::move(other.readable_)),
      writable_(std::move(other.writable_)) {}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool Array::OpenBuffer(std::string_view name, nb::handle object, Access access) {
  nb::object source = nb::borrow(object);
  bool is_bf16 = false;
  if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    // numpy has no format for the dtype. That of ml_dtypes is two bytes an element.
    if (DTypeText(object) != "bfloat16") {
      dtype_name_ = DTypeText(object);
      return false;
    }
    is_bf16 = true;
    source = object.attr("view")("uint16");
    if (PyObject_GetBuffer(source.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) nb::raise_python_error();
  }
  if (access == Access::kWrite && buffer_.readonly) {
    ThrowValue(name, "a read-only array", "an array that can be written");
  }
  data_ = buffer_.buf;
  ndim_ = buffer_.ndim;
  element_ = is_bf16 ? Element::kBf16 : ElementOfFormat(buffer_.format, buffer_.itemsize);
  if (element_ == Element::kOther) dtype_name_ = DTypeText(object);
  if (ndim_ > kMaxDims) return true;
  for (int axis = 0; axis < ndim_; ++axis) {
    const auto i = static_cast<size_t>(axis);
    shape_[i] = buffer_.shape[axis];
    const Py_ssize_t bytes = buffer_.strides[axis];
    if (bytes % buffer_.itemsize != 0) {
      ThrowValue(std::string(name).append(".strides"), std::to_string(bytes),
                 "a multiple of the element's " + std::to_string(buffer_.itemsize) + " bytes");
    }
    strides_[i] = bytes / buffer_.itemsize;
  }
  return true;
}

bool Array::OpenDlpack(std::string_view name, nb::handle object, Access access) {
  const auto read = [this](const auto& array) {
    ndim_ = static_cast<int>(array.ndim());
    element_ = ElementOfDlpack(array.dtype());
    switch (array.device_type()) {
      case nb::device::cpu::value:
        break;
      case nb::device::cuda::value:
        device_ = {DeviceKind::kCuda, array.device_id()};
        break;
      default:
        return false;
    }
    for (int axis = 0; axis < ndim_ && axis < kMaxDims; ++axis) {
      const auto i = static_cast<size_t>(axis);
      shape_[i] = array.shape(i);
      strides_[i] = array.stride(i);
    }
    return true;
  };
  if (access == Access::kRead) {
    if (!nb::try_cast(object, readable_)) return false;
    data_ = const_cast<void*>(readable_.data());
    if (!read(readable_)) return false;
  } else {
    if (!nb::try_cast(object, writable_)) {
      if (nb::try_cast(object, readable_)) {
        ThrowValue(name, "a read-only array", "an array that can be written");
      }
      return false;
    }
    data_ = writable_.data();
    if (!read(writable_)) return false;
  }
  if (element_ == Element::kOther) dtype_name_ = DTypeText(object);
  return true;
}

std::optional<Array> Array::Open(std::string_view name, nb::handle object, Access access) {
  Array array;
  if (PyObject_CheckBuffer(object.ptr())) {
    if (array.OpenBuffer(name, object, access)) return array;
    if (!array.dtype_name_.empty()) return array;  // an array of a dtype without a format
    return {};
  }
  if (!nb::hasattr(object, "__dlpack__")) return {};
  if (array.OpenDlpack(name, object, access)) return array;
  return {};
}

Array Array::Get(std::string_view name, nb::handle object, Access access,
                 std::string_view allowed) {
  std::optional<Array> array = Open(name, object, access);
  if (!array.has_value()) ThrowType(name, Describe(object), std::string(allowed));
  if (array->ndim_ > kMaxDims) array->CheckDims(name, 1, 2);
  return *std::move(array);
}

void Array::CheckOnHost(std::string_view name) const {
  if (device_.kind == DeviceKind::kCpu) return;
  ThrowType(std::string(name).append(".device"), "cuda", "cpu with this backend");
}

void Array::CheckDims(std::string_view name, int fewest, int most) const {
  if (ndim_ >= fewest && ndim_ <= most) return;
  ThrowValue(std::string(name).append(".ndim"), std::to_string(ndim_),
             fewest == most ? std::to_string(fewest)
                            : std::to_string(fewest).append(" or ").append(std::to_string(most)));
}

void Array::CheckLastAxis(std::string_view name, Access access) const {
  if (ndim_ == 0 || shape(ndim_ - 1) <= 1 || stride(ndim_ - 1) == 1) return;
  ThrowValue(std::string(name).append(".strides"), ListText("[", "]", ndim_, strides_.data()),
             "a last axis whose elements are adjacent" + CopyText(name, access));
}

void Array::CheckContiguous(std::string_view name) const {
  int64_t expected = 1;
  for (int axis = ndim_ - 1; axis >= 0; --axis) {
    if (shape(axis) > 1 && stride(axis) != expected) {
      ThrowValue(std::string(name).append(".strides"), ListText("[", "]", ndim_, strides_.data()),
                 "elements that are adjacent in memory");
    }
    expected *= shape(axis);
  }
}

MatrixArgument GetMatrix(std::string_view name, nb::handle object, Access access) {
  Array array = Array::Get(name, object, access, std::string(kFloatArray) + CopyText(name, access));
  MatrixView view;
  switch (array.element()) {
    case Element::kF32:
      view.dtype = DType::kF32;
      break;
    case Element::kBf16:
      view.dtype = DType::kBf16;
      break;
    case Element::kF16:
      view.dtype = DType::kF16;
      break;
    default:
      ThrowType(std::string(name).append(".dtype"),
                array.element() == Element::kOther ? array.dtype_name()
                                                   : std::string(Name(array.element())),
                "float32, bfloat16 or float16" + CopyText(name, access));
  }
  array.CheckDims(name, 1, 2);
  array.CheckLastAxis(name, access);
  const bool is_row = array.ndim() == 1;
  if (!is_row && array.shape(0) > 1 && array.stride(0) < array.shape(1)) {
    ThrowValue(std::string(name).append(".strides"),
               ListText("[", "]", 2, std::array{array.stride(0), array.stride(1)}.data()),
               "rows that follow one another and do not overlap" + CopyText(name, access));
  }
  view.data = array.data();
  view.rows = is_row ? 1 : array.shape(0);
  view.columns = array.shape(array.ndim() - 1);
  view.stride = view.rows <= 1 ? view.columns : array.stride(0);
  view.device = array.device();
  return {std::move(array), is_row, view};
}

Array GetElements(std::string_view name, nb::handle object, Access access, Element element,
                  std::initializer_list<int64_t> shape) {
  const std::string allowed = "an array of " + std::string(Name(element));
  Array array = Array::Get(name, object, access, allowed);
  if (array.element() != element) {
    ThrowType(std::string(name).append(".dtype"),
              array.element() == Element::kOther ? array.dtype_name()
                                                 : std::string(Name(array.element())),
              std::string(Name(element)));
  }
  array.CheckOnHost(name);
  const int ndim = static_cast<int>(shape.size());
  array.CheckDims(name, ndim, ndim);
  bool fits = true;
  int axis = 0;
  for (const int64_t extent : shape) {
    fits = fits && (extent < 0 || array.shape(axis) == extent);
    ++axis;
  }
  if (!fits) {
    std::array<int64_t, Array::kMaxDims> has;
    for (axis = 0; axis < ndim; ++axis) has[static_cast<size_t>(axis)] = array.shape(axis);
    ThrowValue(std::string(name).append(".shape"), ListText("(", ")", ndim, has.data()),
               ListText("(", ")", ndim, shape.begin()));
  }
  array.CheckContiguous(name);
  return array;
}

}  // namespace sluice::python
