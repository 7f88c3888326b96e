// Wrong arguments of the CUDA functions give an Error before anything is launched.
#include "tests/support/bad_input.h"
#include "tests/support/device.h"

namespace sluice::test {
namespace {

// Nothing here is launched, so the pointers are never followed; the good call has no rows.
struct Call {
  LogitsView logits = {
      reinterpret_cast<const float*>(256), 0, 8, 8, DType::kF32, {DeviceKind::kCuda, 0}};
  cuda::RowParams params = {{reinterpret_cast<const SelectParams*>(256), 1},
                            {reinterpret_cast<const NoiseKey*>(256), 1}};
  DrawMethod method = DrawMethod::kGumbel;
  cuda::DeviceArray<Cut> cuts = {reinterpret_cast<Cut*>(256), 0};
  cuda::DeviceArray<CutMass> masses = {};
  cuda::DeviceArray<TokenResult> results = {reinterpret_cast<TokenResult*>(256), 0};

  MutableLogitsView Mutable() const {
    return {const_cast<void*>(logits.data),
            logits.rows,
            logits.vocab,
            logits.stride,
            logits.dtype,
            logits.device};
  }
};

using Case = BadCase<Call>;
using CudaBadInput = DeviceTest;

// Calls of two rows, spoilt.
std::vector<Case> OfTwoRows(std::vector<Case> cases) {
  for (Case& bad : cases) {
    bad.spoil = [spoil = bad.spoil](Call& call) {
      call.logits.rows = call.cuts.size = call.results.size = 2;
      spoil(call);
    };
  }
  return cases;
}

std::vector<Case> LogitsCases() {
  return OfTwoRows({
      {[](Call& c) { c.logits.stride = 7; }, "logits.stride", "7", "at least the row's 8 elements"},
      {[](Call& c) { c.logits.vocab = 0; }, "logits.vocab", "0", "[1, 8388608]"},
      {[](Call& c) { c.logits.rows = -1; }, "logits.rows", "-1", "[0, 2147483647]"},
      {[](Call& c) { c.logits.rows = INT32_MAX; }, "logits.rows", "2147483647", "[0, 1073741823]"},
      {[](Call& c) { c.logits.data = nullptr; }, "logits.data", "null", "a pointer to the rows"},
      {[](Call& c) { c.logits.data = OneByteOn(c.logits.data); }, "logits.data",
       "a misaligned pointer", "a multiple of the element size"},
      {[](Call& c) { c.logits.dtype = static_cast<DType>(7); }, "logits.dtype", "7",
       "float32, bfloat16 or float16", ErrorCode::kInvalidType},
      {[](Call& c) { c.logits.device.kind = DeviceKind::kCpu; }, "logits.device", "cpu", "cuda",
       ErrorCode::kInvalidType},
      {[](Call& c) { c.logits.device.index = 3; }, "logits.device.index", "3",
       "the current device, 0", ErrorCode::kInvalidType},
  });
}

std::vector<Case> ParamsCases() {
  return OfTwoRows({
      {[](Call& c) { c.params.params.size = 0; }, "params.size()", "0",
       "1 or the number of rows, 2"},
      {[](Call& c) { c.params.params.size = 3; }, "params.size()", "3",
       "1 or the number of rows, 2"},
      {[](Call& c) { c.params.params.data = nullptr; }, "params.data", "null",
       "a pointer to device memory"},
      {[](Call& c) { c.params.keys.size = 3; }, "keys.size()", "3", "1 or the number of rows, 2"},
      {[](Call& c) { c.params.keys.data = nullptr; }, "keys.data", "null",
       "a pointer to device memory"},
  });
}

std::vector<Case> CutsCases() {
  return OfTwoRows({
      {[](Call& c) { c.cuts.size = 1; }, "cuts.size()", "1", "2"},
      {[](Call& c) { c.cuts.data = nullptr; }, "cuts.data", "null", "a pointer to device memory"},
  });
}

std::vector<Case> DrawCases() {
  return OfTwoRows({
      {[](Call& c) { c.method = static_cast<DrawMethod>(9); }, "draw_method", "9", "gumbel or cdf"},
      {[](Call& c) { c.params.keys.size = 0; }, "keys.size()", "0", "1 or the number of rows, 2"},
      {[](Call& c) { c.results.size = 3; }, "results.size()", "3", "2"},
      {[](Call& c) { c.results.data = nullptr; }, "results.data", "null",
       "a pointer to device memory"},
  });
}

std::vector<Case> All(std::vector<std::vector<Case>> lists) {
  std::vector<Case> all;
  for (const auto& list : lists) Append(all, list);
  return all;
}

TEST_F(CudaBadInput, OfSelect) {
  std::vector<Case> cases = All({LogitsCases(), ParamsCases(), CutsCases()});
  Append(cases, OfTwoRows({{[](Call& c) { c.masses.size = 1; }, "masses.size()", "1", "2"}}));
  ExpectErrors<Call>(cases,
                     [](Call& c) { cuda::Select(c.logits, c.params, c.cuts, c.masses, nullptr); });
}

TEST_F(CudaBadInput, OfMask) {
  ExpectErrors<Call>(All({LogitsCases(), CutsCases()}),
                     [](Call& c) { cuda::Mask(c.Mutable(), c.cuts, nullptr); });
}

TEST_F(CudaBadInput, OfSelectAndMask) {
  ExpectErrors<Call>(All({LogitsCases(), ParamsCases(), CutsCases()}),
                     [](Call& c) { cuda::SelectAndMask(c.Mutable(), c.params, c.cuts, nullptr); });
}

TEST_F(CudaBadInput, OfDraw) {
  ExpectErrors<Call>(All({LogitsCases(), ParamsCases(), CutsCases(), DrawCases()}), [](Call& c) {
    cuda::Draw(c.logits, c.params, c.method, c.cuts, c.results, nullptr);
  });
}

TEST_F(CudaBadInput, OfSample) {
  ExpectErrors<Call>(All({LogitsCases(), ParamsCases(), DrawCases()}), [](Call& c) {
    cuda::Sample(c.logits, c.params, c.method, c.results, nullptr);
  });
}

}  // namespace
}  // namespace sluice::test
