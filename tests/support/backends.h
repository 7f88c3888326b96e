// Running a test over every backend of this machine, at every dtype.
//
//   class SelectTopK : public BackendTest {};
//   TEST_P(SelectTopK, KeepsSmallerIdOnTie) { ... execution() ... dtype() ... }
//   SLUICE_FOR_EACH_BACKEND(SelectTopK);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"
#include "tests/support/batch.h"

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

#define SLUICE_FOR_EACH_BACKEND(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(                                                        \
      All, suite,                                                                  \
      ::testing::Combine(::testing::ValuesIn(::sluice::test::AvailableBackends()), \
                         ::testing::ValuesIn(::sluice::test::kAllDTypes)),         \
      ::sluice::test::BackendTestName)

}  // namespace sluice::test
