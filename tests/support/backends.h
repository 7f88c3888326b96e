// Running a test over every backend of this machine, at every dtype; with a sanitizer at some.
//
//   class SelectTopK : public BackendTest {};
//   TEST_P(SelectTopK, KeepsSmallerIdOnTie) { ... execution() ... dtype() ... }
//   SLUICE_FOR_EACH_BACKEND(SelectTopK);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"
#include "tests/support/batch.h"
#include "tests/support/slowdown.h"

namespace sluice::test {

inline std::vector<Backend> AvailableBackends() {
  std::vector<Backend> backends;
  for (const BackendInfo& info : Backends()) {
    if (info.available) backends.push_back(info.backend);
  }
  return backends;
}

class BackendTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {
 protected:
  Backend backend() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

// As a part of a test's name.
inline std::string TestNameOf(Backend backend) {
  std::string name;
  for (const BackendInfo& known : Backends()) {
    if (known.backend == backend) name = known.name;
  }
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::string BackendTestName(
    const ::testing::TestParamInfo<std::tuple<Backend, DType>>& info) {
  return TestNameOf(std::get<0>(info.param)) + "_" + std::string(Name(std::get<1>(info.param)));
}

// All of them; with a sanitizer every backend and, of the first one, every dtype: the vector code
// of the others is the same source for fewer lanes, and reads a dtype by the same functions.
inline std::vector<std::tuple<Backend, DType>> TestedBackends() {
  const std::vector<Backend> backends = AvailableBackends();
  std::vector<std::tuple<Backend, DType>> tested;
  for (size_t i = 0; i < backends.size(); ++i) {
    for (size_t j = 0; j < std::size(kAllDTypes); ++j) {
      if (kSlowdown == 1 || i == 0 || j == (i + 1) % std::size(kAllDTypes)) {
        tested.emplace_back(backends[i], kAllDTypes[j]);
      }
    }
  }
  return tested;
}

#define SLUICE_FOR_EACH_BACKEND(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(All, suite, ::testing::ValuesIn(::sluice::test::TestedBackends()), \
                           ::sluice::test::BackendTestName)

}  // namespace sluice::test
