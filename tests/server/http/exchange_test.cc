// Requests and their responses, whole and in pieces, one behind the other on one connection.
#include <thread>

#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

class HttpExchange : public HttpTest {};

TEST_F(HttpExchange, RespondsWithWhatTheHandlerSays) {
  Listen();
  handler.handle = [](Exchange& exchange) {
    exchange.Respond({.status = 404,
                      .content_type = "text/plain",
                      .body = "gone",
                      .fields = {{"Allow", "GET"}}});
    return nullptr;
  };
  const Response response =
      Ask("GET /a%20b?c=%20d HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n\r\n");
  EXPECT_TRUE(response.head.starts_with("HTTP/1.1 404 Not Found\r\n")) << response.head;
  EXPECT_EQ(response.Field("Content-Type"), "text/plain");
  EXPECT_EQ(response.Field("Content-Length"), "4");
  EXPECT_EQ(response.Field("Allow"), "GET");
  EXPECT_EQ(response.Field("X-Request-Id"), "mine");
  EXPECT_EQ(response.Field("Date").size(), 29u);
  EXPECT_EQ(response.body, "gone");
  ASSERT_EQ(handler.seen.size(), 1u);
  EXPECT_EQ(handler.seen[0].path, "/a b");
  EXPECT_EQ(handler.seen[0].query, "c=%20d");
  EXPECT_EQ(handler.seen[0].id, "mine");
}

TEST_F(HttpExchange, StreamsPiecesAsChunks) {
  Listen();
  Stream();
  Peer peer = Connect();
  peer.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  exchange_->stream() += "one";
  exchange_->Flush();
  ASSERT_TRUE(peer.ReadUntil("\r\n\r\n00000003\r\none\r\n"));
  exchange_->stream() += "two and";
  exchange_->stream() += " three";
  exchange_->Flush();
  exchange_->Flush();  // nothing: no chunk of length 0, which would be the last one
  ASSERT_TRUE(peer.ReadUntil("0000000d\r\ntwo and three\r\n"));
  exchange_->stream() += "!";
  exchange_->End();
  EXPECT_EQ(log.destroyed, 0);  // not before the call is over
  const Response response = peer.Read();
  EXPECT_EQ(response.body, "onetwo and three!");
  EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
}

}  // namespace
}  // namespace sluice::test
