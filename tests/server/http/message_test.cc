#include "server/http/message.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

TEST(HttpRequest, FindsTheFirstFieldInAnyCaseOfLetters) {
  HttpRequest request;
  request.fields = {{"Host", "a"}, {"x-Request-ID", "b"}, {"X-REQUEST-id", "c"}};
  EXPECT_EQ(request.Field("X-Request-Id"), "b");
  EXPECT_EQ(request.Field("X-Request"), std::nullopt);
}

}  // namespace
}  // namespace sluice::server
