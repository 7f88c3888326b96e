// What a client reads when a request fails.
#include "server/api/api_error.h"

#include <gtest/gtest.h>

#include "tests/server/api/parsed_json.h"

namespace sluice::server {
namespace {

TEST(ApiError, HasTheFourMembersAndNullForThoseThatAreEmpty) {
  EXPECT_EQ(ErrorBody({.message = "no", .param = "n", .code = "c"}),
            R"({"error":{"message":"no","type":"invalid_request_error","param":"n","code":"c"}})");
  EXPECT_EQ(
      ErrorBody({.message = "no"}),
      R"({"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}})");
}

TEST(ApiError, AnyBytesBecomeJson) {
  const std::string text = test::HostileText();
  const test::ParsedJson json(ErrorBody({.message = text, .param = text, .code = text}));
  EXPECT_EQ(json.Text("/error/message"), text);
  EXPECT_EQ(json.Text("/error/param"), text);
  EXPECT_EQ(json.Text("/error/code"), text);
  const test::ParsedJson invalid(ErrorBody({.message = "a\xff\xe2\x82z\xed\xa0\x80"}));
  EXPECT_TRUE(invalid.Text("/error/message").starts_with("a\uFFFD"));
}

TEST(ApiError, AnErrorOfTheLibraryHasAStatusByItsCode) {
  for (const ErrorCode code : {ErrorCode::kInvalidValue, ErrorCode::kInvalidType}) {
    const ApiError error = ToApiError(Error(code, "top_p", "0", "(0, 1]"));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.param, "top_p");
    EXPECT_EQ(error.message, "top_p = 0 is not allowed: (0, 1]");
    EXPECT_EQ(error.retry_after_seconds, 0);
  }
  for (const ErrorCode code : {ErrorCode::kExhausted, ErrorCode::kUnavailable}) {
    const ApiError error = ToApiError(Error(code, "slots", "none", "one"));
    EXPECT_EQ(error.status, 503);
    EXPECT_EQ(error.type, "service_unavailable");
    EXPECT_GT(error.retry_after_seconds, 0);
  }
  EXPECT_EQ(InternalError("x").status, 500);
  EXPECT_EQ(InternalError("x").type, "server_error");
  EXPECT_GT(Unavailable("x").retry_after_seconds, 0);
}

}  // namespace
}  // namespace sluice::server
