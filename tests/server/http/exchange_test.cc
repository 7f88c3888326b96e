// Requests and their responses, whole and in pieces, one behind the other on one connection.
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

TEST_F(HttpExchange, KeepsAConnectionForTheNextRequests) {
  Listen();
  Peer peer = Connect();
  const auto request = [](int i) {
    return "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nb";
  };
  for (int i = 0; i < 100; ++i) {
    peer.Send(request(i));
    EXPECT_EQ(peer.Read().body, "POST /" + std::to_string(i) + " b");
  }
  peer.Send(request(100) + "\r\n" + request(101));
  EXPECT_EQ(peer.Read().body, "POST /100 b");
  EXPECT_EQ(peer.Read().body, "POST /101 b");
  EXPECT_EQ(counters.connections_seen, 1);
}

TEST_F(HttpExchange, AnswersPipelinedRequestsInOrder) {
  Listen();
  std::vector<Exchange*> waiting;
  handler.handle = [&](Exchange& exchange) {
    waiting.push_back(&exchange);
    return std::make_unique<LoggedAnswer>(log);
  };
  Peer peer = Connect();
  peer.Send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHo");
  ASSERT_TRUE(Until([&] { return waiting.size() == 1; }));
  peer.Send("st: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(Until([&] { return waiting.size() == i; }));
    RunFor(milliseconds(5));  // the next one does not begin before this one is over
    ASSERT_EQ(waiting.size(), i);
    EXPECT_EQ(log.destroyed, static_cast<int>(i) - 1);
    waiting.back()->Respond({.body = waiting.back()->request().path});
    EXPECT_EQ(peer.Read().body, "/" + std::to_string(i));
  }
}

TEST_F(HttpExchange, AnswersAThousandRequestsOfOnePacket) {
  Listen();
  Peer peer = Connect();
  std::string requests;
  for (int i = 0; i < 1000; ++i) {
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  peer.Send(requests);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(peer.Read().body, "GET /" + std::to_string(i) + " ");
}

TEST_F(HttpExchange, ClosesWhenOneOfBothWants) {
  Listen();
  Peer peer = Connect();
  peer.Send(
      "GET /1 HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  const Response response = peer.Read();
  EXPECT_EQ(response.body, "GET /1 ");
  EXPECT_EQ(response.Field("Connection"), "close");
  EXPECT_TRUE(peer.IsClosed());
  EXPECT_EQ(handler.seen.size(), 1u);

  handler.handle = [](Exchange& exchange) {
    exchange.Respond({.body = "bye", .closes = true});
    return nullptr;
  };
  Peer other = Connect();
  other.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(other.Read().Field("Connection"), "close");
  EXPECT_TRUE(other.IsClosed());
}

TEST_F(HttpExchange, SpeaksHttp10) {
  Listen();
  Peer once = Connect();
  once.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(once.Read().Field("Connection"), "close");
  EXPECT_TRUE(once.IsClosed());

  Peer kept = Connect();
  kept.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.Read().Field("Connection"), "keep-alive");

  Stream();  // without chunks, which it does not know
  kept.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  exchange_->stream() += "one ";
  exchange_->Flush();
  exchange_->stream() += "two";
  exchange_->End();
  const Response response = kept.Read();
  EXPECT_EQ(response.Field("Transfer-Encoding"), "");
  EXPECT_EQ(response.Field("Connection"), "close");
  EXPECT_EQ(response.body, "one two");
  EXPECT_TRUE(kept.IsClosed());
}

TEST_F(HttpExchange, SendsNoBodyWhereThereIsNone) {
  Listen();
  Peer peer = Connect();
  peer.Send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const Response head = peer.Read(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Field("Content-Length"), "13");  // of "HEAD /health "

  handler.handle = [](Exchange& exchange) {
    exchange.Respond({.status = 204, .body = "no"});
    return nullptr;
  };
  peer.Send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
  const Response none = peer.Read();
  EXPECT_EQ(none.status, 204);
  EXPECT_EQ(none.Field("Content-Length"), "");

  handler.handle = [&](Exchange& exchange) -> std::unique_ptr<Answer> {
    exchange.Begin({});
    exchange.stream() += "unseen";
    exchange.Flush();
    exchange.stream() += "unseen";
    exchange.End();
    return std::make_unique<LoggedAnswer>(log);
  };
  peer.Send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(peer.Read(false).Field("Transfer-Encoding"), "chunked");
  EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
  handler.handle = {};
  peer.Send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(peer.Read().body, "GET /next ");
}

TEST_F(HttpExchange, ContinuesOnlyWhereTheHeadMayPass) {
  Listen();
  handler.refuse = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.path == "/no") return HttpResponse{.status = 401, .body = "who are you"};
    return std::nullopt;
  };
  const std::string rest =
      " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
  Peer peer = Connect();
  peer.Send("POST /yes" + rest);
  EXPECT_EQ(peer.Read().status, 100);
  peer.Send("body");
  EXPECT_EQ(peer.Read().body, "POST /yes body");

  peer.Send("POST /no" + rest);
  const Response refused = peer.Read();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Field("Connection"), "close");
  EXPECT_TRUE(peer.IsClosed());

  limits.body_bytes = 3;
  Listen();
  Peer large = Connect();
  large.Send("POST /yes" + rest);
  EXPECT_EQ(large.Read().status, 413);
  EXPECT_TRUE(large.IsClosed());
  EXPECT_EQ(handler.seen.size(), 1u);
}

TEST_F(HttpExchange, KeepsAConnectionWhoseHeadAloneWasRefused) {
  Listen();
  handler.refuse = [](const HttpRequest&) { return HttpResponse{.status = 404, .body = "no"}; };
  Peer peer = Connect();
  for (int i = 0; i < 2; ++i) {
    peer.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const Response response = peer.Read();
    EXPECT_EQ(response.status, 404);
    EXPECT_NE(response.Field("X-Request-Id"), "");
  }
  EXPECT_EQ(handler.seen.size(), 0u);
}

TEST_F(HttpExchange, TakesIdsThatAreShortAndPrintable) {
  Listen();
  const auto id = [&](const std::string& given) {
    return Ask("GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + given + "\r\n\r\n")
        .Field("X-Request-Id");
  };
  EXPECT_EQ(id(std::string(128, 'a')), std::string(128, 'a'));
  EXPECT_TRUE(id(std::string(129, 'a')).starts_with("req-"));
  EXPECT_TRUE(id("\xC3\xA4").starts_with("req-"));
  const std::string first = id("");
  EXPECT_TRUE(first.starts_with("req-"));
  EXPECT_NE(first, id(""));
}

TEST_F(HttpExchange, RespondsLaterAndInsideOfHandle) {
  Listen();
  Exchange* waiting = nullptr;
  handler.handle = [&](Exchange& exchange) {
    waiting = &exchange;
    if (exchange.request().path == "/now") exchange.Respond({.body = "now"});
    return std::make_unique<LoggedAnswer>(log);
  };
  Peer peer = Connect();
  peer.Send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(peer.Read().body, "now");
  EXPECT_EQ(log.destroyed, 1);
  waiting = nullptr;
  peer.Send("POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nyes");
  ASSERT_TRUE(Until([&] { return waiting != nullptr; }));
  EXPECT_EQ(waiting->TakeBody().text, "yes");
  waiting->Respond({.body = std::string(1 << 20, 'x')});
  waiting->Respond({.body = "not this too"});
  EXPECT_EQ(log.destroyed, 1);  // not before the call is over
  EXPECT_EQ(peer.Read().body.size(), size_t{1} << 20);
  EXPECT_EQ(log.destroyed, 2);
}

TEST_F(HttpExchange, GivesExceptionsAStatus) {
  Listen();
  handler.handle = [](Exchange& exchange) -> std::unique_ptr<Answer> {
    if (exchange.request().path == "/memory") throw std::bad_alloc();
    throw std::runtime_error("broken");
  };
  EXPECT_EQ(Ask("GET /memory HTTP/1.1\r\nHost: x\r\n\r\n").status, 503);
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").status, 500);
}

}  // namespace
}  // namespace sluice::test
