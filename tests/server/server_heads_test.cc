// Requests that are refused for what their heads say, before a body is read.
#include <gtest/gtest.h>

#include "server/admission/host_check.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

TEST(ServerHeads, AnswersToNamesOfThisMachineWhereNobodyNeedsAKey) {
  const auto status = [](const RunningHttp& running, const std::string& host) {
    TestClient client = running.Connect();
    client.Send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.Read();
  };
  ServerOptions options;
  options.allowed_hosts = {"My.Proxy.example"};
  const RunningHttp running(options);
  for (const std::string good :
       {"localhost", "LOCALHOST:8080", "a.localhost", "127.0.0.1:1", "192.0.2.1", "[::1]:8080",
        "[2001:db8::1]", "my.proxy.example:80", "MY.PROXY.EXAMPLE.", ""}) {
    EXPECT_EQ(status(running, good).status, 200) << good;
  }
  for (const std::string bad : {"evil.example:8080", "localhost.evil.example", "127.0.0.1.evil",
                                "xlocalhost", "[evil.example]", "proxy.example"}) {
    const TestResponse response = status(running, bad);
    EXPECT_EQ(response.status, 403) << bad;
    EXPECT_EQ(ErrorOf(response).code, "host_not_allowed");
    EXPECT_NE(ErrorOf(response).message.find("--allowed-host"), std::string::npos);
  }
  for (const std::string bad : {"localhost:80@evil.example", "localhost:8x", "[::1]evil.example",
                                "[::1]:80@evil.example", "127.0.0.1:@evil", "localhost:123456"}) {
    EXPECT_EQ(status(running, bad).status, 403) << bad;
  }
  options = {};
  options.api_keys = {"k"};
  EXPECT_EQ(status(RunningHttp(options), "evil.example").status, 200);
  options = {};
  options.allowed_hosts = {"*"};
  EXPECT_EQ(status(RunningHttp(options), "evil.example").status, 200);
}

// However the address is spelled at which the server listens.
TEST(ServerHeads, ChecksNamesAtEveryLoopbackAddress) {
  const auto passes = [](const std::string& host) {
    ServerOptions options;
    options.host = host;
    return server::HostCheck(options).Passes("evil.example");
  };
  for (const char* loopback : {"localhost", "127.0.0.1", "127.1", "127.255.255.254", "::1",
                               "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_FALSE(passes(loopback)) << loopback;
  }
  for (const char* other : {"0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"}) {
    EXPECT_TRUE(passes(other)) << other;
  }
}

TEST(ServerHeads, TakesNoBodyThatIsEncoded) {
  const RunningHttp running;
  const TestResponse gzip =
      running.Post("/v1/completions", Asking("a", 1), "Content-Encoding: gzip\r\n");
  EXPECT_EQ(gzip.status, 415);
  EXPECT_EQ(ErrorOf(gzip).message,
            "Content-Encoding = \"gzip\" is not allowed: identity, or no such header field");
  EXPECT_EQ(
      running.Post("/v1/completions", Asking("a", 1), "Content-Encoding: Identity\r\n").status,
      200);
  EXPECT_EQ(running
                .Post("/v1/completions", Asking("a", 1),
                      "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n")
                .status,
            415);
}

}  // namespace
}  // namespace sluice::test
