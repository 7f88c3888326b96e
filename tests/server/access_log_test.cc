// The access log: a line for each request, with what its client was sent.
#include "server/access_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/running.h"

namespace sluice::test {
namespace {

using server::AccessLine;

constexpr char kPath[] = "/v1/completions";

server::HttpRequest RequestTo(std::string path) {
  server::HttpRequest request;
  request.method = "GET";
  request.path = std::move(path);
  request.query = "key=secret";
  request.id = "x";
  return request;
}

TEST(AccessLine, IsOneObjectOfJson) {
  const std::chrono::system_clock::time_point at(std::chrono::milliseconds(1'700'000'000'042));
  EXPECT_EQ(AccessLine(RequestTo("/a\"\n"),
                       {.status = 404, .ended = at, .took = std::chrono::milliseconds(1500)}),
            R"({"time":"2023-11-14T22:13:20.042Z","id":"x","method":"GET","path":"/a\"\n",)"
            R"("status":404,"complete":true,"seconds":1.5})");
  // A text that is no UTF-8, or too long, is cut.
  EXPECT_NE(AccessLine(RequestTo("/a\xFF/b"), {.is_complete = false})
                .find(R"("path":"/a","status":0,"complete":false)"),
            std::string::npos);
  EXPECT_LT(AccessLine(RequestTo(std::string(100'000, 'a')), {}).size(), 2000u);
}

class Lines {
 public:
  ServerOptions Options() {
    ServerOptions options;
    options.access_log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }
  int64_t Count(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(AccessLog, HasALineForEachRequest) {
  Lines lines;
  const RunningHttp running(lines.Options(), AlphabetScript(8, milliseconds(2)));
  running.Get("/health?key=secret", "X-Request-Id: one\r\n");
  running.Get("/nowhere", "X-Request-Id: two\r\n");
  running.Post(kPath, Asking("a", 3), "X-Request-Id: three\r\n");
  running.Post(kPath, Asking("a", 3, kStreams), "X-Request-Id: four\r\n");
  running.Post(kPath, "{", "X-Request-Id: five\r\n");
  const auto has = [&](const std::string& id, const std::string& rest) {
    return Becomes([&] { return lines.Count("\"id\":\"" + id + "\"," + rest) == 1; });
  };
  EXPECT_TRUE(has("one", R"("method":"GET","path":"/health","status":200,"complete":true)"));
  EXPECT_TRUE(has("two", R"("method":"GET","path":"/nowhere","status":404,"complete":true)"));
  for (const char* id : {"three", "four"}) {
    EXPECT_TRUE(
        has(id, R"("method":"POST","path":"/v1/completions","status":200,"complete":true)"));
  }
  EXPECT_TRUE(has("five", R"("method":"POST","path":"/v1/completions","status":400,)"));
  EXPECT_EQ(lines.Count("secret"), 0);
  EXPECT_EQ(lines.Count("\"id\""), 5);
}

// What the connection answers itself, before a route is found.
TEST(AccessLog, HasWhatWasReadOfARequestThatWasCutOff) {
  Lines lines;
  ServerOptions options = lines.Options();
  options.cors_origins = {"https://a.example"};
  options.http.header_timeout = milliseconds(200);
  options.http.inflight_bytes = size_t{128} << 10;
  const RunningHttp running(options);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\n"
      "Content-Type: application/json\r\n";
  const auto answer = [&](const std::string& rest) {
    TestClient client = running.Connect();
    client.Send(head + rest);
    return client.Read();
  };
  const auto is_known = [&](const TestResponse& response, int status, const std::string& id) {
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.fields.at("x-request-id"), id);
    EXPECT_EQ(response.fields.at("access-control-allow-origin"), "https://a.example");
    return Becomes([&] {
      return lines.Count("\"id\":\"" + id + R"(","method":"POST","path":"/v1/completions",)" +
                         R"("status":)" + std::to_string(status)) == 1;
    });
  };
  EXPECT_TRUE(is_known(answer("X-Request-Id: long\r\nContent-Length: 65537\r\n\r\n"), 413, "long"));
  EXPECT_TRUE(is_known(answer("X-Request-Id: late\r\nContent-Length: 9\r\n\r\n"), 408, "late"));
  EXPECT_TRUE(is_known(answer("X-Request-Id: twice\r\nHost: localhost\r\n\r\n"), 400, "twice"));
  // A head that did not end has the server's number for it.
  const TestResponse half = answer("X-Other: ");
  EXPECT_EQ(half.status, 408);
  EXPECT_TRUE(Becomes(
      [&] { return lines.Count("\"id\":\"" + half.fields.at("x-request-id") + "\",") == 1; }));
}

TEST(AccessLog, SaysThatAClientWentAway) {
  Lines lines;
  RunningHttp running(lines.Options(), AlphabetScript(8, milliseconds(2)));
  {
    TestClient stream = running.Connect();
    stream.Send(TestClient::Request("POST", kPath, Asking("a", 4000, kStreams)));
    EXPECT_EQ(stream.ReadHead().status, 200);
  }
  EXPECT_TRUE(Becomes([&] { return lines.Count(R"("status":200,"complete":false)") == 1; }));
  {
    TestClient whole = running.Connect();
    whole.Send(TestClient::Request("POST", kPath, Asking("a", 4000)));
    EXPECT_TRUE(Becomes([&] { return running.engine().counters().running > 0; }));
  }
  EXPECT_TRUE(Becomes([&] { return lines.Count(R"("status":499,"complete":false)") == 1; }));
}

}  // namespace
}  // namespace sluice::test
