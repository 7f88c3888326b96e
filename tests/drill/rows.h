// The rows of the drill, with what a naive top-a keeps of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice::drill {

struct Case {
  const char* name;
  std::vector<float> row;
  SelectParams params;
  int32_t kept;
  int32_t dropped;  // a token that top-a drops

  LogitsView Logits() const {
    LogitsView view;
    view.data = row.data();
    view.rows = 1;
    view.vocab = view.stride = static_cast<int64_t>(row.size());
    return view;
  }
};

// By the formula, in double: the other rules of the cases drop fewer tokens than top-a, or are
// applied to what it leaves.
inline int32_t NaiveTopA(const std::vector<float>& row, const SelectParams& params) {
  const double max = *std::max_element(row.begin(), row.end());
  std::vector<double> p;
  double total = 0;
  for (const float x : row) p.push_back(std::exp(x - max));
  for (const double w : p) total += w;
  for (double& w : p) w /= total;
  std::sort(p.begin(), p.end(), std::greater<>());
  const double least = params.top_a * p[0] * p[0];
  size_t kept = 0;
  double mass = 0;
  while (kept < p.size() && p[kept] >= least) mass += p[kept++];
  double before = 0;
  size_t nucleus = 0;
  while (nucleus < kept && before < params.top_p * mass) before += p[nucleus++];
  if (params.top_p < 1) kept = nucleus;
  if (params.top_k > 0) kept = std::min<size_t>(kept, static_cast<size_t>(params.top_k));
  return static_cast<int32_t>(kept);
}

inline std::vector<Case> Cases() {
  std::vector<float> flat;
  for (int i = 0; i < 1000; ++i) flat.push_back(static_cast<float>((i * 7919) % 1000) * 0.01f);
  std::vector<float> peaked = flat;
  peaked[413] = 16.0f;
  std::vector<Case> cases = {
      {"top-a", peaked, {.top_a = 0.5f}},
      {"top-a and top-p", peaked, {.top_p = 0.95f, .top_a = 0.5f}},
      {"top-a and min-p", peaked, {.min_p = 1e-8f, .top_a = 0.5f}},
      {"top-a and top-k", peaked, {.top_k = 50, .top_a = 0.5f}},
      {"top-a of a flat row", flat, {.top_a = 0.5f}},
      {"top-a and top-p of a flat row", flat, {.top_p = 0.95f, .top_a = 0.5f}},
      {"top-a and top-k of a flat row", flat, {.top_k = 5, .top_a = 0.5f}},
  };
  for (Case& c : cases) {
    c.kept = NaiveTopA(c.row, c.params);
    c.dropped = static_cast<int32_t>(std::min_element(c.row.begin(), c.row.end()) - c.row.begin());
  }
  return cases;
}

}  // namespace sluice::drill
