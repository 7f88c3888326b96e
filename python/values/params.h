// sluice.SamplingParams, and single parameters on their way from and to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string_view>

#include "python/values/keywords.h"
#include "python/values/numbers.h"
#include "sluice/params.hpp"

namespace sluice::python {

namespace nb = nanobind;

// How signatures write a type of params.def.
#define SLUICE_PYTHON_TYPE_float "float"
#define SLUICE_PYTHON_TYPE_int32_t "int"
#define SLUICE_PYTHON_TYPE_uint64_t "int"
#define SLUICE_PYTHON_TYPE_DrawMethod "str"
#define SLUICE_PYTHON_TYPE_DraftMode "str"
#define SLUICE_PYTHON_TYPE_LogprobMode "str"
#define SLUICE_PYTHON_TYPE_Profile "str"
#define SLUICE_PYTHON_TYPE_TokenIds "collections.abc.Sequence[int]"
#define SLUICE_PYTHON_TYPE_OptionalTokenIds "collections.abc.Sequence[int] | None"
#define SLUICE_PYTHON_TYPE_TokenSequences "collections.abc.Sequence[collections.abc.Sequence[int]]"
#define SLUICE_PYTHON_TYPE_BiasEntries "collections.abc.Mapping[int, float]"

// The whole numbers of a parameter's range.
IntRange WholeRangeOf(Keyword parameter);

// Puts those that were given into `params` and checks them all, without a vocabulary.
void Assign(const Arguments& arguments, SamplingParams& params);

// Parameters that say nothing about a row without its history must have their defaults.
void CheckStateless(const SamplingParams& params);
void CheckStateless(const Arguments& arguments);

// Adds SamplingParams and parameters() to the module.
void BindParams(nb::module_& module);

}  // namespace sluice::python
