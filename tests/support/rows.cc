#include "tests/support/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/batch.h"

namespace sluice::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// N(-2, 1.6) and some tens of tokens above it, the first `top` above the body's mean.
std::vector<float> BodyWithOutliers(int64_t vocab, double top, double spread, Random& random) {
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& x : row) x = static_cast<float>(-2.0 + 1.6 * random.Normal());
  const int64_t outliers = std::min<int64_t>(40, vocab);
  for (int64_t i = 0; i < outliers; ++i) {
    random.Pick(row) =
        static_cast<float>(-2.0 + top - spread * static_cast<double>(i) * (0.5 + random.Uniform()));
  }
  return row;
}

}  // namespace

std::string_view Name(RowKind kind) {
  switch (kind) {
    case RowKind::kPeaked:
      return "peaked";
    case RowKind::kMid:
      return "mid";
    case RowKind::kFlat:
      return "flat";
    case RowKind::kNormal:
      return "normal";
    case RowKind::kBf16Rounded:
      return "bf16_rounded";
    case RowKind::kFewDistinct:
      return "few_distinct";
    case RowKind::kRamp:
      return "ramp";
    case RowKind::kMasked:
      return "masked";
  }
  return "unknown";
}

std::vector<float> MakeRow(RowKind kind, int64_t vocab, Random& random) {
  const double jitter = random.Uniform();  // a calibrated row would sit on its own boundary
  switch (kind) {
    case RowKind::kPeaked:
      return BodyWithOutliers(vocab, 14.0 + 2.0 * jitter, 1.0, random);
    case RowKind::kMid:
      return BodyWithOutliers(vocab, 11.0 + 2.0 * jitter, 0.1, random);
    case RowKind::kFlat:
      return BodyWithOutliers(vocab, 8.0 + 2.0 * jitter, 0.1, random);
    case RowKind::kNormal: {
      std::vector<float> row(static_cast<size_t>(vocab));
      for (float& x : row) x = static_cast<float>(random.Normal());
      return row;
    }
    case RowKind::kBf16Rounded: {
      std::vector<float> row = MakeRow(RowKind::kMid, vocab, random);
      for (float& x : row) x = Widened(Narrowed(x, DType::kBf16), DType::kBf16);
      return row;
    }
    case RowKind::kFewDistinct: {
      std::vector<float> row(static_cast<size_t>(vocab));
      for (float& x : row) x = static_cast<float>(random.Below(8)) * 0.5f;
      return row;
    }
    case RowKind::kRamp: {
      std::vector<float> row(static_cast<size_t>(vocab));
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = static_cast<float>(i) * 12.0f / static_cast<float>(vocab);
      }
      return row;
    }
    case RowKind::kMasked: {
      std::vector<float> row = MakeRow(RowKind::kMid, vocab, random);
      for (float& x : row) x = random.Coin(0.9) ? -kInf : x;
      random.Pick(row) = 1.0f;
      return row;
    }
  }
  return {};
}

std::vector<HostileRow> HostileRows(int64_t vocab) {
  const size_t n = static_cast<size_t>(vocab);
  const float denormal = 0x1p-24f;  // the smallest fp16 denormal
  auto all = [n](float x) { return std::vector<float>(n, x); };
  auto with = [](std::vector<float> row, size_t at, float x) {
    row[at % row.size()] = x;
    return row;
  };
  std::vector<float> ramp(n);
  for (size_t i = 0; i < n; ++i) ramp[i] = static_cast<float>(i) * 0.125f;
  std::vector<float> falling(ramp.rbegin(), ramp.rend());
  std::vector<float> signed_zeros(n);
  for (size_t i = 0; i < n; ++i) signed_zeros[i] = i % 2 == 0 ? 0.0f : -0.0f;
  std::vector<float> denormals(n);
  for (size_t i = 0; i < n; ++i) {
    denormals[i] = (i % 3 == 0 ? -denormal : denormal) * static_cast<float>(i % 7);
  }
  std::vector<float> two_values(n);
  for (size_t i = 0; i < n; ++i) two_values[i] = i % 2 == 0 ? 100.0f : -100.0f;
  std::vector<float> plateaus(n);
  for (size_t i = 0; i < n; ++i) plateaus[i] = static_cast<float>(i / 8 % 4);
  std::vector<float> finite_masks(n, -65504.0f);
  finite_masks[n / 2] = 1.0f;
  finite_masks[n / 3] = 0.5f;
  std::vector<float> sparse(n, -kInf);
  for (size_t i = 0; i < n; i += 3) sparse[i] = static_cast<float>(i % 5);

  return {
      {"all_equal", all(1.5f)},
      {"all_zero_of_both_signs", signed_zeros},
      {"all_masked", all(-kInf)},
      {"one_finite", with(all(-kInf), n / 2, 2.0f)},
      {"two_finite_tied", with(with(all(-kInf), n - 1, 2.0f), 0, 2.0f)},
      {"nan_first", with(ramp, 0, kNan)},
      {"nan_last", with(ramp, n - 1, kNan)},
      {"negative_nan", with(ramp, n / 2, -kNan)},
      {"pos_inf", with(ramp, n / 2, kInf)},
      {"pos_inf_and_nan", with(with(ramp, 1, kInf), 2, kNan)},
      {"all_pos_inf", all(kInf)},
      {"nan_among_masked", with(all(-kInf), 0, kNan)},
      {"denormals", denormals},
      {"finite_masks", finite_masks},
      {"spike_above_rest", with(all(-700.0f), n - 1, 0.0f)},
      {"lowest_and_highest", with(with(ramp, 0, 65504.0f), 1, -65504.0f)},
      {"two_values", two_values},
      {"plateaus", plateaus},
      {"ascending", ramp},
      {"descending", falling},
      {"sparse", sparse},
      {"one_token", {3.0f}},
      {"one_masked_token", {-kInf}},
      {"two_tokens_tied", {1.0f, 1.0f}},
      {"odd_width", std::vector<float>(ramp.begin(), ramp.begin() + static_cast<long>(n / 2 | 1))},
  };
}

}  // namespace sluice::test
