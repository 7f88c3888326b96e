// Calls of the library on one row each, with everything prepared beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/stages/row_store.h"
#include "sluice/draw.hpp"
#include "sluice/research/algorithms.hpp"

namespace sluice::bench {

struct CallSetup {
  SelectParams params = {};
  bool draws = false;
  DrawMethod method = DrawMethod::kGumbel;
  Backend backend = Backend::kAuto;
  research::Algorithm algorithm = research::Algorithm::kAuto;
  int64_t vocab = 0;
  DType dtype = DType::kF32;
};

class SelectCall {
 public:
  explicit SelectCall(const CallSetup& setup);
  SelectCall(SelectCall&&) = default;  // until it is prepared; a copy would share the workspace

  // Rows draw at positions of their own, each always at one.
  void Prepare(const void* row, int64_t index);
  void Run() { RunWith(execution_); }
  // The same once more, for what it says about its work.
  SelectWork Work();

  const TokenResult& result() const { return result_; }

 private:
  void RunWith(const Execution& execution);

  CallSetup setup_;
  std::optional<SelectAlgorithm> core_;  // one of research is called as such
  NoiseKey key_ = {.seed = 2024, .position = 0, .choice = 0};
  LogitsView view_;
  SelectInput input_;
  Execution execution_;
  std::vector<std::byte> workspace_;
  TokenResult result_;
};

// A call with results that are compared with the reference's. That happens when the next call
// is prepared, so it is outside of every clock.
class CheckedCall {
 public:
  // expected: of the first rows; the others are not compared. It outlives the call.
  CheckedCall(const CallSetup& setup, std::span<const TokenResult> expected)
      : call_(setup), expected_(expected) {}

  void Prepare(const void* row, int64_t index) {
    Compare();
    call_.Prepare(row, index);
    pending_ = index;
  }
  void Run() { call_.Run(); }
  SelectWork Work() { return call_.Work(); }

  // Compares the last result too, if it was not yet.
  void Compare();
  int64_t compared() const { return compared_; }
  int64_t different() const { return different_; }

 private:
  SelectCall call_;
  std::span<const TokenResult> expected_;
  int64_t pending_ = -1;
  int64_t compared_ = 0;
  int64_t different_ = 0;
};

// What the reference says about the first `rows` rows of a store, or all when it has fewer.
std::vector<TokenResult> Expected(CallSetup setup, const RowStore& store, int64_t rows);

// How much of the rows was read, over the first `rows` rows; 0 when the library does not say.
struct RowReads {
  double mean = 0.0;  // elements for each one of the row
  double once = 0.0;  // share of the rows that were read once: what was guessed of them held
};
RowReads ReadsOf(CheckedCall& call, const RowStore& store, int64_t rows);

}  // namespace sluice::bench
