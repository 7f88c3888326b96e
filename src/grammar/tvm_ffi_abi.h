// The part of TVM FFI's C interface that a call takes: the layout that its versions 0.1.11 to 0.1.x
// share. tests/grammar/abi_test.cc compares it with the header of an installed package.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::grammar::abi {

inline constexpr uint32_t kMajor = 0;
inline constexpr uint32_t kMinor = 1;
inline constexpr uint32_t kFirstPatch = 11;

enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kDLTensorPtr = 7,
  kByteArrayPtr = 9,
  kSmallStr = 11,
  kObject = 64,  // and everything above
  kStr = 65,
  kFunction = 68,
};

struct Version {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
};

struct ByteArray {
  const char* data;
  size_t size;
};

struct Object {
  uint64_t references;
  int32_t type;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};

struct Any {
  int32_t type;
  uint32_t small_size;  // of a short string, else 0
  union {
    int64_t integer;
    void* pointer;
    Object* object;
    char bytes[8];
  };
};

// After an Object.
struct ErrorCell {
  ByteArray kind;
  ByteArray message;
};

struct MethodInfo {
  ByteArray name;
  ByteArray doc;
  ByteArray metadata;
  int64_t flags;
  Any method;
};

struct TypeInfo {
  int32_t index;
  int32_t depth;
  ByteArray key;
  const TypeInfo** ancestors;
  uint64_t key_hash;
  int32_t fields;
  int32_t methods;
  const void* field_infos;
  const MethodInfo* method_infos;
  const void* metadata;
};

// DLPack's.
inline constexpr int32_t kCpu = 1;
inline constexpr uint8_t kSignedInteger = 0;
struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

using GetVersion = void(Version* out);
using TypeKeyToIndex = int(const ByteArray* key, int32_t* out);
using GetTypeInfo = const TypeInfo*(int32_t index);
using FunctionGetGlobal = int(const ByteArray* name, void** out);
using FunctionCall = int(void* function, Any* args, int32_t count, Any* result);
using ErrorMoveFromRaised = void(void** out);
using StringFromByteArray = int(const ByteArray* bytes, Any* out);
using ObjectReference = int(void* object);

}  // namespace sluice::grammar::abi
