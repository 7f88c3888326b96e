// Every part of a layer has the reference's bits on every backend, for widths that are no multiple
// of anything, and for rows that are hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/layer_backend.h"
#include "tests/support/random.h"

namespace sluice::model {
namespace {

using test::Random;

std::vector<float> RandomRow(size_t size, uint64_t seed, float scale = 1.0f) {
  Random random(seed);
  std::vector<float> row(size);
  for (float& x : row) x = static_cast<float>(random.Normal()) * scale;
  return row;
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i])) {  // which NaN is nobody's promise
      EXPECT_TRUE(std::isnan(found[i])) << i;
    } else {
      EXPECT_EQ(semantics::BitsOf(found[i]), semantics::BitsOf(wanted[i]))
          << i << ": " << found[i] << " for " << wanted[i];
    }
  }
}

constexpr size_t kWidths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 257, 320};

// The codes as `multiply` of the table needs them.
class Codes {
 public:
  Codes(const LayerTable& table, std::vector<int16_t>& codes, std::vector<float>& scales,
        size_t width)
      : bytes_(codes.size()), sums_(scales.size()) {
    rows_ = {codes.data(), scales.data(), bytes_.data(), sums_.data()};
    if (table.narrow == nullptr) return;
    for (size_t r = 0; r < scales.size(); ++r) {
      const size_t at = r * CodeStride(width);
      sums_[r] = table.narrow(&codes[at], width, &bytes_[at]);
    }
  }
  const CodedRows& rows() const { return rows_; }

 private:
  std::vector<int8_t> bytes_;
  std::vector<int32_t> sums_;
  CodedRows rows_;
};

class LayerParts : public testing::TestWithParam<const LayerTable*> {
 protected:
  const LayerTable& table() const { return *GetParam(); }
};

TEST_P(LayerParts, NormsHaveTheReferencesBits) {
  for (const size_t width : kWidths) {
    for (const float scale : {1e-20f, 1.0f, 1e18f}) {
      const std::vector<float> x = RandomRow(width, 1, scale), weight = RandomRow(width, 2);
      std::vector<float> y(width), wanted(width);
      table().rms_norm(x.data(), weight.data(), width, 1e-5f, y.data());
      kLayerRef.rms_norm(x.data(), weight.data(), width, 1e-5f, wanted.data());
      ExpectSameBits(y, wanted);
      std::vector<float> in_place = x;
      table().rms_norm(in_place.data(), weight.data(), width, 1e-5f, in_place.data());
      ExpectSameBits(in_place, wanted);
    }
  }
}

TEST_P(LayerParts, CodesAreTheReferencesAndRoundToTheNearest) {
  for (const size_t width : kWidths) {
    std::vector<float> x = RandomRow(width, 3);
    std::vector<int16_t> codes(CodeStride(width), 99), wanted(CodeStride(width), 98);
    const float scale = table().encode(x.data(), width, codes.data());
    EXPECT_EQ(scale, kLayerRef.encode(x.data(), width, wanted.data()));
    EXPECT_EQ(codes, wanted);
    for (size_t i = 0; i < width; ++i) {
      EXPECT_LE(std::abs(codes[i]), 127);
      // Half a step, and what the two roundings of the factor and the product move.
      EXPECT_NEAR(static_cast<float>(codes[i]) * scale, x[i], scale * 0.50002f);
    }
    for (size_t i = width; i < codes.size(); ++i) EXPECT_EQ(codes[i], 0);
  }
}

TEST_P(LayerParts, HostileRowsAreCodedAlike) {
  for (const float value : {0.0f, 1e-40f, 1e-37f, 3e38f, INFINITY, NAN}) {
    for (const size_t at : {size_t{0}, size_t{9}, size_t{20}}) {
      std::vector<float> x(21, 0.0f);
      x[at] = -value;
      std::vector<int16_t> codes(CodeStride(21), 99), wanted(CodeStride(21), 98);
      const float scale = table().encode(x.data(), 21, codes.data());
      ExpectSameBits({scale}, {kLayerRef.encode(x.data(), 21, wanted.data())});
      EXPECT_EQ(codes, wanted);
      EXPECT_EQ(std::isnan(scale), !std::isfinite(value));
    }
  }
}

TEST_P(LayerParts, ProductsOfCodesAreExact) {
  Random random(4);
  constexpr int64_t kMostRows = 13;
  struct Range {
    int64_t begin, end;
  };
  struct Case {
    size_t width;
    int64_t height;
    std::vector<Range> ranges;
  };
  std::vector<Case> cases;
  for (const size_t width : kWidths) cases.push_back({width, 11, {{0, 11}, {3, 10}, {4, 5}}});
  for (const size_t width : {63, 512, 513, 960, 1100}) {
    cases.push_back({width, 131, {{0, 131}, {64, 128}, {0, 64}, {1, 18}}});
  }
  for (const auto& [width, height, ranges] : cases) {
    const size_t stride = CodeStride(width);
    std::vector<int8_t> matrix(stride * static_cast<size_t>(height), 0);
    std::vector<int16_t> all_codes(stride * kMostRows, 0);
    for (size_t r = 0; r < static_cast<size_t>(height); ++r) {
      for (size_t i = 0; i < width; ++i) {
        // The extremes as well: -128 is a code that files may have.
        matrix[r * stride + i] =
            r == 0 ? int8_t{-128} : static_cast<int8_t>(random.Between(-128, 127));
      }
    }
    for (size_t r = 0; r < static_cast<size_t>(kMostRows); ++r) {
      for (size_t i = 0; i < width; ++i) {
        all_codes[r * stride + i] =
            r == 0 ? int16_t{-127} : static_cast<int16_t>(random.Between(-127, 127));
      }
    }
    const std::vector<float> matrix_scales = RandomRow(static_cast<size_t>(height), 5);
    const Int8Matrix m{matrix.data(), matrix_scales.data(), height, static_cast<int64_t>(width)};
    for (int64_t rows = 1; rows <= kMostRows; ++rows) {
      std::vector<int16_t> codes(all_codes.begin(),
                                 all_codes.begin() + rows * static_cast<int64_t>(stride));
      std::vector<float> scales = RandomRow(static_cast<size_t>(rows), 6);
      scales.back() = std::vector<float>{1.0f, NAN, INFINITY}[static_cast<size_t>(rows) % 3];
      const Codes coded(table(), codes, scales, width);
      const int64_t y_stride = height + 3;  // what lies between the rows of y stays
      std::vector<float> y(static_cast<size_t>(rows * y_stride), 7.0f), wanted = y;
      for (const auto& [begin, end] : ranges) {
        table().multiply(m, coded.rows(), rows, begin, end, y.data(),
                         static_cast<size_t>(y_stride));
        kLayerRef.multiply(m, coded.rows(), rows, begin, end, wanted.data(),
                           static_cast<size_t>(y_stride));
        ExpectSameBits(y, wanted);
      }
    }
  }
}

TEST_P(LayerParts, NarrowedCodesAreTheCodesAndTheirSum) {
  if (table().narrow == nullptr) return;
  Random random(14);
  for (const size_t width : kWidths) {
    std::vector<int16_t> codes(CodeStride(width), 0);
    int32_t sum = 0;
    for (size_t i = 0; i < width; ++i) {
      codes[i] = i % 5 == 0 ? int16_t{-127} : static_cast<int16_t>(random.Between(-127, 127));
      sum += codes[i];
    }
    std::vector<int8_t> bytes(codes.size(), 99);
    EXPECT_EQ(table().narrow(codes.data(), width, bytes.data()), sum);
    EXPECT_TRUE(std::equal(codes.begin(), codes.end(), bytes.begin()));
  }
}

TEST_P(LayerParts, RotationsHaveTheReferencesBitsAndKeepTheLength) {
  for (const size_t half : {1, 3, 8, 10, 16, 17, 32, 64}) {
    std::vector<float> head = RandomRow(2 * half, 7), wanted = head;
    std::vector<float> cosines(half), sines(half);
    double before = 0.0, after = 0.0;
    for (size_t i = 0; i < half; ++i) {
      cosines[i] = std::cos(static_cast<float>(i) * 0.3f);
      sines[i] = std::sin(static_cast<float>(i) * 0.3f);
    }
    for (const float x : head) before += x * x;
    table().rotate(head.data(), half, cosines.data(), sines.data());
    kLayerRef.rotate(wanted.data(), half, cosines.data(), sines.data());
    ExpectSameBits(head, wanted);
    for (const float x : head) after += x * x;
    EXPECT_NEAR(after, before, before * 1e-5);  // roundings of cosine and sine
  }
}

struct AttentionCase {
  size_t head_dim, group;
  int64_t begin, end;
  float softcap;
};

TEST_P(LayerParts, AttentionHasTheReferencesBits) {
  constexpr size_t kHeads = 2, kPages = 20;
  for (const AttentionCase& c : {AttentionCase{16, 1, 0, 1, 0.0f},
                                 {10, 3, 0, 17, 0.0f},
                                 {64, 2, 0, 300, 0.0f},
                                 {20, 1, 37, 130, 5.0f},
                                 {80, 4, 15, 16, 0.0f},
                                 {72, 3, 5, 262, 0.0f},
                                 {33, 9, 17, 318, 30.0f},
                                 {64, 6, 0, 320, 0.0f},
                                 {128, 1, 16, 33, 0.0f},
                                 {256, 2, 3, 203, 50.0f}}) {
    const size_t value_stride = (c.head_dim + kLanes - 1) / kLanes * kLanes;
    const size_t block = kPagePositions * (c.head_dim + value_stride);
    // What no token has written holds anything: NaN here.
    std::vector<float> cache(kPages * kHeads * block, NAN);
    std::vector<int32_t> pages(kPages);
    for (size_t p = 0; p < kPages; ++p) pages[p] = static_cast<int32_t>((p * 7 + 3) % kPages);
    const std::vector<float> values = RandomRow(block * kPages, 8);
    for (int64_t p = c.begin; p < c.end; ++p) {
      const auto slot = static_cast<size_t>(p) % kPagePositions;
      float* const at =
          &cache[(static_cast<size_t>(pages[static_cast<size_t>(p) / 16]) * kHeads + 1) * block];
      for (size_t d = 0; d < c.head_dim; ++d) {
        at[d * kPagePositions + slot] = values[(static_cast<size_t>(p) * 31 + d) % values.size()];
      }
      for (size_t d = 0; d < value_stride; ++d) {
        at[c.head_dim * kPagePositions + slot * value_stride + d] =
            d < c.head_dim ? values[(static_cast<size_t>(p) * 57 + d) % values.size()] : 0.0f;
      }
    }
    const std::vector<float> queries = RandomRow(c.group * c.head_dim, 9);
    std::vector<float> scores(kHeadsAtOnce * kPages * kPagePositions), out(queries.size());
    std::vector<float> wanted = out;
    Attention attention{.queries = queries.data(),
                        .group = c.group,
                        .head_dim = c.head_dim,
                        .value_stride = value_stride,
                        .cache = cache.data() + block,
                        .page_stride = kHeads * block,
                        .pages = pages.data(),
                        .begin = c.begin,
                        .end = c.end,
                        .scale = 0.2f,
                        .softcap = c.softcap,
                        .scores = scores.data(),
                        .score_stride = kPages * kPagePositions,
                        .out = out.data()};
    table().attend(attention);
    attention.out = wanted.data();
    kLayerRef.attend(attention);
    ExpectSameBits(out, wanted);
    for (const float x : wanted) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST_P(LayerParts, ElementwiseFunctionsHaveTheReferencesBits) {
  for (const size_t width : kWidths) {
    for (const float scale : {0.01f, 3.0f, 60.0f, 1e30f}) {
      const std::vector<float> x = RandomRow(width, 10, scale), y = RandomRow(width, 11);
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        std::vector<float> found = x, wanted = x;
        table().activate(activation, found.data(), y.data(), width);
        kLayerRef.activate(activation, wanted.data(), y.data(), width);
        ExpectSameBits(found, wanted);
      }
      std::vector<float> found = x, wanted = x;
      table().add(found.data(), y.data(), width);
      kLayerRef.add(wanted.data(), y.data(), width);
      ExpectSameBits(found, wanted);
      table().soft_cap(30.0f, found.data(), width);
      kLayerRef.soft_cap(30.0f, wanted.data(), width);
      ExpectSameBits(found, wanted);
    }
  }
}

std::string NameOf(const testing::TestParamInfo<const LayerTable*>& table) {
  constexpr const char* kNames[] = {"ref", "cpu_avx2", "cpu_avx512", "cpu_avx512vnni"};
  return kNames[table.index];
}

INSTANTIATE_TEST_SUITE_P(All, LayerParts, testing::ValuesIn(LayerTables()), NameOf);

}  // namespace
}  // namespace sluice::model
