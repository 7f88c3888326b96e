// Handshakes of TLS that do not come to their end: they have a time and a number.
#include "server/tls/tls.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

using namespace std::string_view_literals;

// The head of a handshake's first message, of 512 bytes that do not come.
constexpr std::string_view kHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"sv;
// One that says it has 100 KB.
constexpr std::string_view kLongHello = "\x16\x03\x01\x40\x00\x01\x01\x86\xa0\x03\x03"sv;

std::string TextOf(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

class TlsTest : public HttpTest {
 protected:
  // Skips the test where there is no command openssl, or no TLS in this build.
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "sluice_tls_XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const std::string cert = folder + "/cert";
    const std::string key = folder + "/key";
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -out " +
        cert + " -keyout " + key + " 2>/dev/null";
    const bool is_made = std::system(command.c_str()) == 0;
    const std::string cert_text = TextOf(cert);
    const std::string key_text = TextOf(key);
    std::filesystem::remove_all(folder);
    if (!is_made) GTEST_SKIP() << "the command openssl makes no certificate";
    try {
      tls = std::make_unique<server::TlsContext>(cert_text, key_text);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  void ListenWithTls() {
    listener =
        std::make_unique<server::HttpListener>(loop, server::ListenAddress{.host = "127.0.0.1"},
                                               limits, handler, counters, nullptr, tls.get());
    listener->Start();
  }
  Peer ConnectAndSend(std::string_view bytes) {
    Peer peer = Connect();
    peer.Send(bytes);
    return peer;
  }
  int64_t connections() { return counters.connections.load(); }

  std::unique_ptr<server::TlsContext> tls;
};

TEST_F(TlsTest, AHandshakeHasTheTimeOfAHead) {
  limits.header_timeout = milliseconds(100);
  ListenWithTls();
  Peer silent = Connect();
  Peer slow = ConnectAndSend(kHello);
  EXPECT_TRUE(Until([&] { return connections() == 2; }));
  // A byte now and then makes no difference.
  EXPECT_TRUE(Until([&] {
    RunFor(milliseconds(10));
    (void)::send(slow.fd(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return connections() == 0;
  }));
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_EQ(counters.timeouts, 2);
  EXPECT_TRUE(handler.seen.empty());
}

TEST_F(TlsTest, TheOldestOfTooManyHandshakesEnds) {
  limits.handshakes = 2;
  ListenWithTls();
  Peer silent = Connect();  // which has no session yet
  Peer first = ConnectAndSend(kHello);
  EXPECT_TRUE(Until([&] { return connections() == 2; }));
  RunFor(milliseconds(20));
  Peer second = ConnectAndSend(kHello);
  EXPECT_TRUE(Until([&] { return connections() == 3; }));
  RunFor(milliseconds(20));
  EXPECT_EQ(counters.refused_connections, 0);
  Peer third = ConnectAndSend(kHello);
  EXPECT_TRUE(first.IsClosed());
  EXPECT_EQ(counters.refused_connections, 1);
  EXPECT_EQ(connections(), 3);
  third.Reset();
  EXPECT_TRUE(Until([&] { return connections() == 2; }));
  Peer fourth = ConnectAndSend(kHello);
  EXPECT_TRUE(Until([&] { return connections() == 3; }));
  RunFor(milliseconds(20));
  EXPECT_EQ(counters.refused_connections, 1);
  EXPECT_TRUE(second.Pull());
}

TEST_F(TlsTest, AFirstMessageThatSaysItIsTooLongIsRefused) {
  limits.header_timeout = std::chrono::hours(1);
  ListenWithTls();
  Peer peer = ConnectAndSend(kLongHello);
  peer.ReadAll();  // maybe an alert
  EXPECT_EQ(counters.malformed_requests, 1);
}

TEST_F(TlsTest, APeerWithoutTlsReadsASentence) {
  ListenWithTls();
  for (const std::string_view request : {"GET / HTTP/1.1\r\nHost: a\r\n\r\n"sv, "x"sv, "\0"sv}) {
    const Response response = Ask(request);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.body, "this port takes TLS alone: the URL begins with https://");
  }
  EXPECT_TRUE(handler.seen.empty());
}

}  // namespace
}  // namespace sluice::test
