// What calls give back. The rows stay as the C++ structs that the library wrote; each property is a
// numpy array over one member of them, made on first use, so that a call costs one object.
// For logits of one axis the same properties are plain numbers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "python/errors.h"
#include "sluice/cut.hpp"
#include "sluice/logprobs.hpp"

namespace sluice::python {

namespace nb = nanobind;

struct Cuts {
  std::vector<Cut> rows;
  std::vector<CutMass> masses;  // empty when they were not requested
  bool is_row = false;
};

// The lists of LogprobLists with their memory.
struct TopLists {
  int32_t width = 0;
  std::vector<int32_t> ids;
  std::vector<float> values;

  void Resize(size_t rows, int64_t new_width);
  LogprobLists View() { return {width, ids, values}; }
};

struct TokenResults {
  std::vector<TokenResult> rows;
  bool is_row = false;
  bool has_cuts = true;
  std::vector<uint64_t> seeds;  // one, or one a row; empty where the caller has them
  TopLists top;
  std::vector<int32_t> emitted;  // of a verification or a step: one a request
  std::vector<int32_t> path;     // of a step with trees of drafts
  std::vector<int32_t> kept;     // bitmask, kept_words a row
  int64_t kept_words = 0;
  std::vector<CutMass> masses;

  // What of an earlier call the next one does not write goes; the rows stay, and memory that arrays
  // may show.
  void Begin(bool of_row, bool with_cuts);
};

struct CandidateSets {
  std::vector<int64_t> offsets;
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<uint64_t> weights;
};

struct TopkResults {
  std::vector<int32_t> indices;
  std::vector<float> values;
  std::vector<RowStatus> statuses;
  int32_t k = 0;
  bool is_row = false;
};

// Throws when `size` elements do not fit where arrays may already show `capacity` of them.
void FitChecked(const char* what, size_t capacity, size_t size);

// Resizes memory that arrays may show: it never moves.
template <typename T>
void Fit(const char* what, std::vector<T>& values, size_t size) {
  FitChecked(what, values.capacity(), size);
  values.resize(size);
}

// The object to fill: a new one, or the one given as `out`, with its memory written again.
template <typename Result>
struct Output {
  nb::object object;
  Result* result;
};
template <typename Result>
Output<Result> OutputFor(nb::handle out, const char* class_name) {
  Output<Result> output;
  output.object = out.is_valid() ? nb::borrow(out) : nb::cast(Result{});
  if (!nb::try_cast(output.object, output.result)) {
    ThrowType("out", Describe(out), std::string("sluice.") + class_name);
  }
  return output;
}
// The rows of an output have to be as many as before.
template <typename T>
void FitRows(std::vector<T>& rows, int64_t size) {
  if (!rows.empty() && static_cast<int64_t>(rows.size()) != size) {
    ThrowValue("out.rows", std::to_string(rows.size()), std::to_string(size));
  }
  rows.resize(static_cast<size_t>(size));
}

// The Cuts that an argument holds.
const Cuts& CutsFrom(std::string_view name, nb::handle object);

void BindResults(nb::module_& module);

}  // namespace sluice::python
