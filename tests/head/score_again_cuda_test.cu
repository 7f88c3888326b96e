// The kernels that score keep their copies apart from their reads by barriers alone, and a barrier
// too few is seen in one call of hundreds: so the same call again and again, on a head as large as
// they are, whose planes are any bytes.
#include "tests/head/head_on_device.h"

namespace sluice::test {
namespace {

__global__ void CountDifferences(const uint32_t* a, const uint32_t* b, size_t words,
                                 unsigned long long* count) {
  unsigned long long mine = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    if (a[i] != b[i]) ++mine;
  }
  if (mine != 0) atomicAdd(count, mine);
}

class ScoreAgainCuda : public DeviceTest {
 protected:
  // Numbers between 1/128 and 1/32, two in a word, of both signs if has_signs.
  static std::vector<uint32_t> SmallNumbers(size_t words, bool has_signs, Random& random) {
    std::vector<uint32_t> numbers(words);
    for (uint32_t& both : numbers) {
      both = 0x3c003c00u |
             (static_cast<uint32_t>(random.Bits()) & (has_signs ? 0x80ff80ffu : 0x00ff00ffu));
    }
    return numbers;
  }
  // The same words again and again.
  static void Fill(std::byte* to, size_t bytes, const std::vector<uint32_t>& words) {
    for (size_t at = 0; at < bytes; at += words.size() * sizeof(uint32_t)) {
      Require(cudaMemcpy(to + at, words.data(),
                         std::min(bytes - at, words.size() * sizeof(uint32_t)),
                         cudaMemcpyHostToDevice));
    }
  }
};

TEST_F(ScoreAgainCuda, AlwaysTheSame) {
  constexpr int64_t kVocab = 128256, kDim = 4096;
  constexpr int kTimes = 1000;
  constexpr size_t kWords = (size_t{1} << 20) + 7;  // no two groups alike
  Random random(41);
  const cuda::DevicePlaneLayout layout(CertificateKind::kDither4, kVocab, kDim);
  const OnDevice<std::byte> plane_memory(layout.end);
  std::byte* const planes = plane_memory.data();
  Require(cudaMemset(planes, 0, layout.end));
  Fill(planes + layout.scales, layout.codes - layout.scales, SmallNumbers(kWords, false, random));
  std::vector<uint32_t> codes(kWords);
  for (uint32_t& word : codes) word = static_cast<uint32_t>(random.Bits());
  Fill(planes + layout.codes, layout.errors - layout.codes, codes);

  for (const int64_t states : {8, 32, 64}) {
    const OnDevice<uint32_t> hidden(
        SmallNumbers(static_cast<size_t>(states * kDim / 2), true, random));
    cuda::CertifiedCall call;
    call.planes = {CertificateKind::kDither4,
                   DType::kBf16,
                   kVocab,
                   kDim,
                   {planes, static_cast<int64_t>(layout.end)}};
    call.head.weight = {hidden.data(), kVocab, kDim, kDim, DType::kBf16, {DeviceKind::kCuda, 0}};
    call.hidden = {hidden.data(), states, kDim, kDim, DType::kBf16, {DeviceKind::kCuda, 0}};
    const size_t bytes = cuda::CertifiedWorkspaceBytes(call.planes, states);
    const OnDevice<std::byte> workspace(bytes), first(bytes);
    Require(cudaMemset(workspace.data(), 0, bytes));
    call.workspace = workspace;
    cuda::QuestionArgument question = {};
    question.k = 1;
    const cuda::CertifiedArgs argument = cuda::ArgumentOf(call, question);
    const OnDevice<unsigned long long> differences(std::vector<unsigned long long>(1));
    for (int n = 0; n < kTimes; ++n) {
      cuda::LaunchEncode(argument, nullptr);
      cuda::LaunchScore(argument, nullptr);
      if (n == 0) {
        Require(cudaMemcpyAsync(first.data(), workspace.data(), bytes, cudaMemcpyDeviceToDevice));
      }
      CountDifferences<<<1024, 256>>>(reinterpret_cast<const uint32_t*>(workspace.data()),
                                      reinterpret_cast<const uint32_t*>(first.data()), bytes / 4,
                                      differences.data());
    }
    Require(cudaDeviceSynchronize());
    EXPECT_EQ(differences.Get()[0], 0) << "words of " << kTimes << " calls of " << states;
  }
}

}  // namespace
}  // namespace sluice::test
