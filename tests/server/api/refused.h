// Bodies that are refused, and what the client is told.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "server/api/api_error.h"

namespace sluice::test {

// The error of a call that must be refused.
inline server::ApiError RefusalOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const server::ApiFailure& failure) {
    return failure.error();
  }
  ADD_FAILURE() << "it was taken";
  return {};
}

struct BadBody {
  std::string body;
  std::string param;
  std::string in_message;  // a part of it
  std::string code = {};
};

inline void ExpectRefused(const BadBody& bad, const std::function<void(std::string_view)>& parse) {
  SCOPED_TRACE(bad.body.substr(0, 200));
  const server::ApiError error = RefusalOf([&] { parse(bad.body); });
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.param, bad.param);
  EXPECT_EQ(error.code, bad.code);
  EXPECT_NE(error.message.find(bad.in_message), std::string::npos) << error.message;
}

}  // namespace sluice::test
