#include "model/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/check.h"

namespace sluice::model {
namespace {

constexpr size_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr size_t kMostDimensions = 8;

struct TypeName {
  std::string_view name;
  size_t bytes;
  StoredType type = StoredType::kOther;
};

constexpr TypeName kTypes[] = {{"F32", 4, StoredType::kF32},
                               {"BF16", 2, StoredType::kBf16},
                               {"F16", 2, StoredType::kF16},
                               {"I8", 1, StoredType::kI8},
                               {"U8", 1},
                               {"BOOL", 1},
                               {"F8_E4M3", 1},
                               {"F8_E5M2", 1},
                               {"I16", 2},
                               {"U16", 2},
                               {"I32", 4},
                               {"U32", 4},
                               {"I64", 8},
                               {"U64", 8},
                               {"F64", 8}};

struct Range {
  uint64_t begin = 0, end = 0;
};

// Reads one file's header.
class Header {
 public:
  Header(const std::string& file, std::span<const std::byte> bytes) : file_(file) {
    uint64_t length = 0;
    if (bytes.size() < sizeof length) {
      Refuse("", ToText(std::ssize(bytes)) + " bytes", "at least 8 bytes");
    }
    std::memcpy(&length, bytes.data(), sizeof length);  // little endian, as the machines we run on
    const size_t most = std::min(kLongestHeader, bytes.size() - sizeof length);
    if (length > most) {
      Refuse("header length", std::to_string(length), RangeText(2, static_cast<int64_t>(most)));
    }
    json_ = {reinterpret_cast<const char*>(bytes.data()) + sizeof length,
             static_cast<size_t>(length)};
    data_ = bytes.subspan(sizeof length + json_.size());
  }

  void AddTo(StoredTensors& tensors) {
    simdjson::dom::parser parser;
    simdjson::dom::object header;
    if (const auto error = parser.parse(simdjson::padded_string(json_)).get(header)) {
      Refuse("header", std::string("malformed (").append(simdjson::error_message(error)) + ")",
             "one JSON object");
    }
    for (const simdjson::dom::key_value_pair field : header) {
      if (field.key == "__metadata__") continue;
      const std::string name(field.key);
      StoredTensor tensor = Tensor(name, field.value);
      if (!tensors.emplace(name, std::move(tensor)).second) {
        Refuse(name, "there twice", "one tensor of a name");
      }
    }
    CheckCover();
  }

 private:
  [[noreturn]] void Refuse(std::string_view what, std::string value, std::string allowed) const {
    ThrowInvalid(what.empty() ? file_ : std::string(file_).append(": ").append(what),
                 std::move(value), std::move(allowed));
  }

  StoredTensor Tensor(const std::string& name, simdjson::dom::element json) {
    simdjson::dom::object object;
    std::string_view type_name;
    simdjson::dom::array shape, offsets;
    uint64_t begin = 0, end = 0;
    if (json.get(object) || object["dtype"].get(type_name) || object["shape"].get(shape) ||
        object["data_offsets"].get(offsets) || offsets.size() != 2 || offsets.at(0).get(begin) ||
        offsets.at(1).get(end)) {
      Refuse(name, "an incomplete entry", "dtype, shape and two data_offsets of at least 0");
    }
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TypeName& known) { return known.name == type_name; });
    if (type == std::end(kTypes))
      Refuse(name, std::string("dtype ").append(ToText(type_name)), "a known dtype");

    StoredTensor tensor;
    tensor.type = type->type;
    tensor.type_name = type->name;
    tensor.file = file_;
    uint64_t size = type->bytes;
    bool fits = shape.size() <= kMostDimensions;
    for (const simdjson::dom::element extent : shape) {
      uint64_t count = 0;
      fits = fits && !extent.get(count) && !__builtin_mul_overflow(size, count, &size) &&
             count <= static_cast<uint64_t>(INT64_MAX);
      tensor.shape.push_back(static_cast<int64_t>(count));
    }
    if (begin > end || end > data_.size()) {
      Refuse(name,
             std::string("data_offsets [").append(std::to_string(begin)) +
                 std::string(", ").append(std::to_string(end)) + "]",
             std::string("ascending, within the file's ").append(std::to_string(data_.size())) +
                 " bytes of data");
    }
    if (!fits || size != end - begin) {
      Refuse(
          name, std::string("shape ").append(simdjson::minify(shape)) + " of " + tensor.type_name,
          std::string("the ").append(std::to_string(end - begin)) + " bytes of its data_offsets");
    }
    tensor.bytes = data_.subspan(begin, end - begin);
    ranges_.push_back({begin, end});
    return tensor;
  }

  void CheckCover() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t covered = 0;
    const auto require = [&](bool holds) {
      if (holds) return;
      Refuse("data_offsets",
             std::string("a gap or an overlap at byte ").append(std::to_string(covered)),
             "tensors one after the other, to the end of the file");
    };
    for (const Range& range : ranges_) {
      require(range.begin == covered);
      covered = range.end;
    }
    require(covered == data_.size());
  }

  const std::string& file_;
  std::string_view json_;
  std::span<const std::byte> data_;
  std::vector<Range> ranges_;
};

}  // namespace

void AddTensors(const std::string& file, std::span<const std::byte> bytes, StoredTensors& tensors) {
  Header(file, bytes).AddTo(tensors);
}

}  // namespace sluice::model
