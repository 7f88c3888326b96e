// The declarations of TVM FFI's interface are those of an installed package's header.
#include <gtest/gtest.h>

#include "grammar/tvm_ffi_abi.h"

#ifdef SLUICE_TVM_FFI_HEADERS
#include <tvm/ffi/c_api.h>

namespace sluice::grammar::abi {
namespace {

#define SAME(OURS, OUR_MEMBER, THEIRS, THEIR_MEMBER)                            \
  static_assert(offsetof(OURS, OUR_MEMBER) == offsetof(THEIRS, THEIR_MEMBER) && \
                sizeof(OURS::OUR_MEMBER) == sizeof(THEIRS::THEIR_MEMBER))

static_assert(sizeof(Any) == sizeof(TVMFFIAny) && sizeof(Object) == sizeof(TVMFFIObject));
static_assert(sizeof(MethodInfo) == sizeof(TVMFFIMethodInfo));
static_assert(sizeof(TypeInfo) == sizeof(TVMFFITypeInfo) && sizeof(Tensor) == sizeof(DLTensor));
SAME(Any, type, TVMFFIAny, type_index);
SAME(Any, small_size, TVMFFIAny, small_str_len);
SAME(Any, integer, TVMFFIAny, v_int64);
SAME(Any, bytes, TVMFFIAny, v_bytes);
SAME(ByteArray, data, TVMFFIByteArray, data);
SAME(ByteArray, size, TVMFFIByteArray, size);
SAME(Object, type, TVMFFIObject, type_index);
SAME(ErrorCell, message, TVMFFIErrorCell, message);
SAME(MethodInfo, name, TVMFFIMethodInfo, name);
SAME(MethodInfo, method, TVMFFIMethodInfo, method);
SAME(TypeInfo, index, TVMFFITypeInfo, type_index);
SAME(TypeInfo, key, TVMFFITypeInfo, type_key);
SAME(TypeInfo, methods, TVMFFITypeInfo, num_methods);
SAME(TypeInfo, method_infos, TVMFFITypeInfo, methods);
SAME(Version, patch, TVMFFIVersion, patch);
SAME(Tensor, device_id, DLTensor, device.device_id);
SAME(Tensor, dimensions, DLTensor, ndim);
SAME(Tensor, code, DLTensor, dtype.code);
SAME(Tensor, lanes, DLTensor, dtype.lanes);
SAME(Tensor, shape, DLTensor, shape);
SAME(Tensor, byte_offset, DLTensor, byte_offset);
static_assert(+kInt == +kTVMFFIInt && +kBool == +kTVMFFIBool);
static_assert(+kDLTensorPtr == +kTVMFFIDLTensorPtr && +kByteArrayPtr == +kTVMFFIByteArrayPtr);
static_assert(+kSmallStr == +kTVMFFISmallStr && +kObject == +kTVMFFIStaticObjectBegin);
static_assert(+kStr == +kTVMFFIStr && +kFunction == +kTVMFFIFunction);
static_assert(+kCpu == +kDLCPU && +kSignedInteger == +kDLInt);
static_assert(kMajor == TVM_FFI_VERSION_MAJOR && kMinor == TVM_FFI_VERSION_MINOR);

TEST(Abi, IsThatOfTheHeader) { EXPECT_GE(TVM_FFI_VERSION_PATCH, int{kFirstPatch}); }

}  // namespace
}  // namespace sluice::grammar::abi

#else
TEST(Abi, IsThatOfTheHeader) { GTEST_SKIP() << "tvm_ffi/c_api.h is not in build/python-venv"; }
#endif
