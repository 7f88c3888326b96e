// The CUDA backend gives the bits of the reference at the ends of what it takes: the widest
// vocabulary, the largest batch.
#include "tests/sampler/device/cuda_reference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"

namespace sluice::test {
namespace {

class CudaExtents : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(CudaExtents, EqualsTheReferenceAtTheWidestVocabulary) {
  constexpr int64_t kVocab = int64_t{1} << 22;
  Random random(22);
  for (const RowKind kind : {RowKind::kPeaked, RowKind::kFewDistinct}) {
    SCOPED_TRACE(Name(kind));
    RequestRows rows;
    const std::vector<float> row = MakeRow(kind, kVocab, random);
    for (const SelectParams& params :
         {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f},
          SelectParams{.top_k = 2000}, SelectParams{}, RandomSwitchedParams(kVocab, random)}) {
      rows.Add(row, params, random);
    }
    ExpectReference(rows, GetParam(), RowStartAt::kOneElementOn);
  }
}

TEST_P(CudaExtents, EqualsTheReferenceInTheLargestBatch) {
  constexpr size_t kRows = 4096;
  Random random(23);
  for (const int64_t vocab : {300, 1500}) {
    SCOPED_TRACE(vocab);
    RequestRows rows;
    while (rows.size() < kRows) {
      const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
      rows.Add(MakeRow(kind, vocab, random), RandomSwitchedParams(vocab, random), random);
    }
    ExpectReference(rows, GetParam(), RowStartAt::kAligned);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaExtents, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
