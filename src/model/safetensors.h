// The file format safetensors: an eight-byte length, that much JSON, then the bytes of the tensors.
//
// The fields of a header are checked against the size of the file before anything is made of it:
// every tensor lies inside, none overlaps another, no byte is left over, and shape times type is
// the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::model {

enum class StoredType : uint8_t { kF32, kBf16, kF16, kI8, kOther };

struct StoredTensor {
  StoredType type = StoredType::kOther;
  std::string type_name;  // as in the file: "BF16"
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // for messages
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// Adds the tensors of a file. Throws Error naming `file`, the tensor and what is wrong; also where
// a tensor is there already.
void AddTensors(const std::string& file, std::span<const std::byte> bytes, StoredTensors& tensors);

}  // namespace sluice::model
