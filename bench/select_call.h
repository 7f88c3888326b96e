// One call of the library on one row, with everything prepared beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/draw.hpp"

namespace sluice::bench {

struct CallSetup {
  SelectParams params = {};
  bool draws = false;
  DrawMethod method = DrawMethod::kGumbel;
  Backend backend = Backend::kAuto;
  SelectAlgorithm algorithm = SelectAlgorithm::kAuto;
  int64_t vocab = 0;
  DType dtype = DType::kF32;
};

class SelectCall {
 public:
  explicit SelectCall(const CallSetup& setup);

  // Rows draw at positions of their own, each always at the same.
  void Prepare(const void* row, int64_t index);
  void Run() { RunWith(execution_); }
  // The same once more, for what it says about its work.
  SelectWork Work();

  const TokenResult& result() const { return result_; }

 private:
  void RunWith(const Execution& execution);

  CallSetup setup_;
  NoiseKey key_ = {.seed = 2024, .position = 0, .choice = 0};
  LogitsView view_;
  SelectInput input_;
  Execution execution_;
  std::vector<std::byte> workspace_;
  TokenResult result_;
};

// Whether two results are the same, bit for bit where it counts.
bool AreSame(const TokenResult& a, const TokenResult& b);

}  // namespace sluice::bench
