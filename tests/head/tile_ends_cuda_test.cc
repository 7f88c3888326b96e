// What the kernels that score leave of a tile, for every way in which they share tiles, hidden
// states and questions: its tokens' intervals are the reference's, and its ends those of its
// tokens.
#include <algorithm>
#include <cmath>
#include <optional>

#include "cuda/row_launch.h"
#include "semantics/adjust/mask.h"
#include "semantics/draw/noise.h"
#include "semantics/order.h"
#include "tests/head/head_on_device.h"

namespace sluice::test {
namespace {

constexpr SelectParams kQuestions[] = {
    {.temperature = 0.0f},
    {.temperature = 1.0f},
    {.temperature = 0.7f, .top_k = 50, .top_p = 0.9f},
    {.temperature = 2.0f},
    {.min_p = 0.1f},
    {.top_p = 0.9f},
    {.temperature = -1.0f},  // a bad one
};

float LowerEnd(float score, float width) { return width < INFINITY ? score - width : -INFINITY; }
float UpperEnd(float score, float width) { return width < INFINITY ? score + width : INFINITY; }

// Of the noise by the high bits of its number; the kernels' own is off by less than 2^-11.
double Noise(uint32_t high) {
  return -std::log2(-std::log2(1.0 - static_cast<double>(high) * 0x1p-16));
}
double LeastNoise(uint32_t high) { return high == 65535 ? -6.0 : Noise(high + 1) - 0x1p-9; }
double MostNoise(uint32_t high) { return high == 0 ? 50.0 : Noise(high) + 0x1p-9; }

// Twice what the noise may be off by, and a few roundings of fp32.
bool IsNear(float actual, double expected) {
  if (!(std::fabs(expected) < INFINITY)) return static_cast<double>(actual) == expected;
  return std::fabs(static_cast<double>(actual) - expected) <= 0x1p-10 + 1e-6 * std::fabs(expected);
}

class TileEndsCuda : public HeadOnDevice {
 protected:
  void SetUp() override {
    HeadOnDevice::SetUp();
    if (IsSkipped()) return;
    processors_ = cuda::CurrentDeviceShape().processors;
  }

  // vocab x dim, `count` hidden states, each with a question of its own. first_id: of the head's
  // first row.
  void Expect(int64_t vocab, int64_t dim, int64_t count, CertificateKind kind, Random& random,
              int32_t first_id = 0) {
    const std::string what = std::to_string(vocab) + " x " + std::to_string(dim) + ", " +
                             std::to_string(count) + " states, " + std::string(Name(kind)) +
                             ", from " + std::to_string(first_id);
    const HeadKind head_kind = kAllHeadKinds[random.Below(std::size(kAllHeadKinds))];
    const Rows head = MakeHead(head_kind, vocab, dim, random);
    const Batch weight(head, DType::kF32);
    const std::vector<float> bias = MakeBias(vocab, random);
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5});
    DeviceHead device(weight, bias, planes);
    Rows states;
    std::vector<SelectParams> params;
    std::vector<NoiseKey> keys;
    for (int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<size_t>(r);
      states.push_back(MakeHidden(kAllHiddenKinds[at % std::size(kAllHiddenKinds)], head, random));
      params.push_back(kQuestions[at % std::size(kQuestions)]);
      keys.push_back({random.Bits(), static_cast<uint32_t>(r)});
    }
    if (count > 2) states[1][0] = NAN;
    if (count > 5) states[4][0] = INFINITY;
    const Batch hidden(states, DType::kF32);
    std::vector<int32_t> bitmask;
    const bool is_masked = random.Coin(0.3);
    for (int64_t w = 0; is_masked && w < count * ((vocab + 31) / 32); ++w) {
      bitmask.push_back(static_cast<int32_t>(random.Bits()));
    }
    device.Ask(hidden, bitmask);
    const OnDevice<SelectParams> params_on_device(params);
    const OnDevice<NoiseKey> keys_on_device(keys);
    cuda::QuestionArgument question = {};
    question.method = DrawMethod::kGumbel;
    question.params = params_on_device.data();
    question.keys = keys_on_device.data();
    question.has_params_per_row = question.has_keys_per_row = true;
    question.first_id = first_id;
    call_ = cuda::ArgumentOf(device.call(), question);
    cuda::LaunchEncode(call_, nullptr);
    cuda::LaunchScore(call_, nullptr);
    Require(cudaDeviceSynchronize());
    const auto rows = Read(call_.memory.progress, count);
    int64_t compared = 0;
    for (int64_t r = 0; r < count; ++r) {
      const cuda::RowProgress& progress = rows[static_cast<size_t>(r)];
      const bool is_asked = progress.way == cuda::RowProgress::Way::kPlanes ||
                            progress.way == cuda::RowProgress::Way::kAllowed;
      // An infinite state has no intervals: where few tokens are allowed, all of them are computed.
      if (!is_asked || !std::isfinite(states[static_cast<size_t>(r)][0])) continue;
      // The reference takes long: of the first few rows, of one amid, and of the last.
      std::optional<ScoredRow> expected;
      if (++compared <= 3 || r == count / 2 || r + 3 >= count) {
        const Batch state({states[static_cast<size_t>(r)]}, DType::kF32);
        expected = Scored(kScoreRef, planes, bias, Matrix(state))[0];
      }
      const int64_t words = (vocab + 31) / 32;
      ASSERT_NO_FATAL_FAILURE(ExpectRow(r, progress, expected,
                                        is_masked ? bitmask.data() + r * words : nullptr,
                                        what + ", row " + std::to_string(r)));
    }
  }

  int64_t processors_ = 0;

 private:
  void ExpectRow(int64_t row, const cuda::RowProgress& progress,
                 const std::optional<ScoredRow>& expected, const int32_t* bitmask,
                 const std::string& what) {
    const cuda::CertifiedWorkspace& memory = call_.memory;
    const int64_t tiles = call_.planes.tiles;
    const int64_t width = tiles * kTileRows;
    const auto scores = Read(memory.scores + row * width, width);
    const auto widths = Read(memory.widths + row * width, width);
    for (int64_t v = 0; v < width; ++v) {
      const auto at = static_cast<size_t>(v);
      const bool is_there =
          v < call_.planes.vocab && (bitmask == nullptr || semantics::BitmaskAllows(bitmask, v));
      if (!is_there) {
        ASSERT_TRUE(scores[at] == -INFINITY && widths[at] == 0.0f) << what << " token " << v;
      } else if (expected.has_value() && expected->widths[at] < INFINITY) {
        ASSERT_TRUE(SameBits(scores[at], expected->scores[at]) &&
                    SameBits(widths[at], expected->widths[at]))
            << what << " token " << v << ": " << scores[at] << " within " << widths[at] << ", not "
            << expected->scores[at] << " within " << expected->widths[at];
      } else if (expected.has_value()) {
        ASSERT_FALSE(widths[at] < INFINITY) << what << " token " << v;
      }
    }
    const bool is_draw = progress.filter_class == semantics::FilterClass::kSoftmax;
    const auto least = Read(memory.tile_least + row * tiles, tiles);
    const auto most = Read(memory.tile_most + row * tiles, tiles);
    const auto least_scores = Read(memory.tile_least_scores + row * tiles, is_draw ? tiles : 0);
    const auto most_scores = Read(memory.tile_most_scores + row * tiles, is_draw ? tiles : 0);
    uint32_t sure_least = 0, sure_best = 0;
    for (size_t t = 0; t < static_cast<size_t>(tiles); ++t) {
      float lower = -INFINITY, upper = -INFINITY;
      double lower_score = -INFINITY, upper_score = -INFINITY;
      for (size_t v = t * kTileRows; v < (t + 1) * kTileRows; ++v) {
        const float of_lower = LowerEnd(scores[v], widths[v]);
        const float of_upper = UpperEnd(scores[v], widths[v]);
        lower = std::max(lower, of_lower);
        upper = std::max(upper, of_upper);
        if (!is_draw) continue;
        const auto id = call_.question.first_id + static_cast<int32_t>(v);
        const uint32_t high =
            semantics::NoiseHigh(progress.key, semantics::GumbelStream(progress.key), id);
        const auto scale = static_cast<double>(progress.draw_scale);
        const double least_of = static_cast<double>(of_lower) * scale + LeastNoise(high);
        const double most_of = static_cast<double>(of_upper) * scale + MostNoise(high);
        lower_score = std::max(lower_score, least_of);
        upper_score = std::max(upper_score, most_of);
      }
      ASSERT_EQ(least[t], lower) << what << " tile " << t;
      ASSERT_EQ(most[t], upper) << what << " tile " << t;
      sure_least = std::max(sure_least, semantics::OrderKey(least[t]));
      if (!is_draw) continue;
      ASSERT_TRUE(IsNear(least_scores[t], lower_score))
          << what << " tile " << t << ": " << least_scores[t] << ", not " << lower_score;
      ASSERT_TRUE(IsNear(most_scores[t], upper_score))
          << what << " tile " << t << ": " << most_scores[t] << ", not " << upper_score;
      sure_best = std::max(sure_best, semantics::OrderKey(least_scores[t]));
    }
    const cuda::SureEnds sure = Read(memory.sure + row, 1)[0];
    ASSERT_EQ(sure.least, progress.k <= 1 ? sure_least : 0u) << what;
    ASSERT_EQ(sure.best, sure_best) << what;
  }

  template <typename T>
  static std::vector<T> Read(const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    Require(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

  cuda::CertifiedArgs call_ = {};
};

TEST_F(TileEndsCuda, OfHeadsSmallerThanABlock) {
  Random random(31);
  for (const int64_t vocab : {1, 15, 16, 17, 63, 65, 129, 255, 257}) {
    for (const int64_t count : {1, 2, 4, 5, 8, 9, 31, 32, 33, 64}) {
      const CertificateKind kind = kCertificateKinds[random.Below(2)];
      ASSERT_NO_FATAL_FAILURE(Expect(vocab, random.Between(1, 300), count, kind, random));
    }
  }
}

// Of a slice of a vocabulary: where its tiles begin with a block of noise, in the middle between
// two, and inside one.
TEST_F(TileEndsCuda, OfSlicesHaveTheNoiseOfTheWholeVocabulary) {
  Random random(33);
  for (const int32_t first_id : {8, 16, 24, 2503}) {
    for (const int64_t count : {1, 4, 5, 8, 9, 16, 33}) {
      const CertificateKind kind = kCertificateKinds[random.Below(2)];
      ASSERT_NO_FATAL_FAILURE(Expect(700, 100, count, kind, random, first_id));
    }
  }
}

// Blocks that go through their tiles by sixteens: where the last turn has one, a quarter of them
// and one more, or all; where one block has a tile more than another; groups that are fewer than
// the stages of copies, as many, and more.
TEST_F(TileEndsCuda, OfBlocksThatTakeTurns) {
  Random random(32);
  struct Case {
    int64_t tiles;  // of a block, from 16 on; fewer are shared by fewer blocks
    int64_t more;   // tiles, of all blocks
    int64_t dim;
  };
  for (const Case& of :
       {Case{1, 1, 1100}, Case{4, processors_ / 2, 130}, Case{5, 3, 1025}, Case{16, 0, 1},
        Case{16, 1, 200}, Case{17, 0, 130}, Case{19, processors_ - 1, 300}, Case{20, 0, 40},
        Case{21, 0, 130}, Case{25, 3, 40}, Case{29, 0, 64}, Case{33, 7, 129}}) {
    const int64_t vocab = (of.tiles * processors_ + of.more) * kTileRows - random.Between(0, 15);
    const int64_t count = std::vector<int64_t>{9, 16, 33}[random.Below(3)];
    const CertificateKind kind = kCertificateKinds[random.Below(2)];
    ASSERT_NO_FATAL_FAILURE(Expect(vocab, of.dim, count, kind, random));
    ASSERT_NO_FATAL_FAILURE(Expect(vocab, of.dim, random.Between(1, 8), kind, random));
  }
}

}  // namespace
}  // namespace sluice::test
