// From the arguments of the C interface to those of the C++ one. A null pointer where there should
// be something is an Error; everything else is left to the checks of the C++ functions, so that
// both have one message.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "capi/layout.h"

namespace sluice::capi {

[[noreturn]] void ThrowNull(std::string_view parameter, std::string_view allowed);

// The elements that a pointer argument points to.
template <typename T>
T& Deref(std::string_view parameter, T* pointer) {
  if (pointer == nullptr) ThrowNull(parameter, "a pointer");
  return *pointer;
}

// A struct by value, as its C++ namesake.
template <typename C>
typename CppOf<C>::type ToCpp(const C& value) {
  return std::bit_cast<typename CppOf<C>::type>(value);
}

// An array of what is the same in both languages, numbers.
template <typename T>
std::span<T> Elements(std::string_view parameter, T* data, size_t count) {
  static_assert(std::is_arithmetic_v<T>);
  if (data == nullptr && count > 0) ThrowNull(parameter, "a pointer to the elements");
  return {data, count};
}

// An array of structs, read in place as their C++ namesakes.
template <typename C>
auto Structs(std::string_view parameter, C* data, size_t count) {
  using Cpp = typename CppOf<std::remove_const_t<C>>::type;
  using Element = std::conditional_t<std::is_const_v<C>, const Cpp, Cpp>;
  if (data == nullptr && count > 0) ThrowNull(parameter, "a pointer to the elements");
  return std::span<Element>(reinterpret_cast<Element*>(data), count);
}

// The caller was compiled with a header of the same number.
void CheckAbi(std::string_view parameter, uint32_t abi_version);

Execution ToExecution(const sluice_execution* execution);

// `parameter` is what the C++ functions call the input: "", "target" or "drafts.model". Values of
// the switches of a profile and of a stream that no enum has are refused here: C++ has no way to
// write them by mistake.
SelectInput ToSelectInput(std::string_view parameter, const sluice_select_input& input);
std::span<const SelectParams> ToSelectParams(std::string_view parameter,
                                             const sluice_select_params* params, size_t count);
std::span<const NoiseKey> ToNoiseKeys(std::string_view parameter, const sluice_noise_key* keys,
                                      size_t count);

DenseHead ToDenseHead(const sluice_dense_head* head);

LogprobLists ToLogprobLists(std::string_view parameter, const sluice_logprob_lists& lists);

// The results point into the elements of `copies`, which must stay where they are.
std::vector<LogitsProcessor> ToProcessors(const sluice_logits_processor* processors, size_t count,
                                          std::vector<sluice_logits_processor>& copies);

SamplingParams ToSamplingParams(const sluice_sampling_params& params);

}  // namespace sluice::capi
