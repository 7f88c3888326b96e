// Messages and responses over HTTP, byte for byte: their heads, errors, streams, and what the
// server counts of them.
#include "tests/server/running.h"

namespace sluice::test {
namespace {

constexpr std::string_view kMessages = "/v1/messages";
constexpr std::string_view kCount = "/v1/messages/count_tokens";
constexpr std::string_view kResponses = "/v1/responses";

std::string Message(std::string_view more = "") {
  return R"({"max_tokens":3,"messages":[{"role":"user","content":"x"}])" + std::string(more) + "}";
}
std::string Response(std::string_view more = "") {
  return R"({"max_output_tokens":3,"input":"x")" + std::string(more) + "}";
}
bool Has(const TestResponse& response, std::string_view part) {
  return response.body.find(part) != std::string::npos;
}

TEST(ServerApis, AnswerAsAWholeAndAsAStream) {
  const RunningHttp running;
  const TestResponse message = running.Post(kMessages, Message());
  EXPECT_EQ(message.status, 200);
  EXPECT_TRUE(
      Has(message, R"("content":[{"type":"text","text":"xyz"}],"stop_reason":"max_tokens")"))
      << message.body;
  EXPECT_EQ(running.Post(kCount, R"({"messages":[{"role":"user","content":"xyz"}]})").body,
            R"({"input_tokens":3})");
  const TestResponse response = running.Post(kResponses, Response());
  EXPECT_TRUE(Has(response, R"("text":"xyz","annotations":[])")) << response.body;

  const TestResponse events = running.Post(kMessages, Message(kStreams));
  EXPECT_EQ(events["content-type"], "text/event-stream; charset=utf-8");
  EXPECT_TRUE(events.body.starts_with("event: message_start\ndata: {")) << events.body;
  EXPECT_TRUE(events.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  const TestResponse items = running.Post(kResponses, Response(kStreams));
  EXPECT_TRUE(items.body.starts_with("event: response.created\ndata: {")) << items.body;
  EXPECT_TRUE(Has(items, "event: response.incomplete\n"));
  EXPECT_FALSE(Has(items, "[DONE]"));
}

// Clients append a query of their own.
TEST(ServerApis, AQueryIsNoPartOfTheRoute) {
  const RunningHttp running;
  EXPECT_EQ(running.Post("/v1/messages?beta=true", Message()).status, 200);
}

TEST(ServerApis, ErrorsOfMessagesHaveTheirOwnForm) {
  ServerOptions options;
  options.api_keys = {"one"};
  const RunningHttp running(options);
  const std::string key = "X-Api-Key: one\r\nX-Request-Id: r1\r\n";
  EXPECT_EQ(running.Post(kMessages, Message(), key).status, 200);
  const auto expect = [&](const TestResponse& response, int status, std::string_view type) {
    EXPECT_EQ(response.status, status);
    EXPECT_TRUE(response.body.starts_with(R"({"type":"error","error":{"type":")" +
                                          std::string(type) + R"(","message":")"))
        << response.body;
    EXPECT_TRUE(response.body.ends_with(R"("request_id":")" + response["x-request-id"] + "\"}"))
        << response.body;
    EXPECT_EQ(response["request-id"], response["x-request-id"]);
  };
  for (const std::string_view path : {kMessages, kCount}) {
    expect(running.Post(path, Message()), 401, "authentication_error");
    expect(running.Get(path, key), 405, "invalid_request_error");
    expect(running.Post(path, "{", key), 400, "invalid_request_error");
    expect(running.Post(path, Message(R"(,"model":"other")"), key), 404, "not_found_error");
    expect(running.Post(path, Message(), key + "Content-Encoding: gzip\r\n"), 415,
           "invalid_request_error");
  }
  const TestResponse other = running.Post(kResponses, Response(R"(,"background":true)"), key);
  EXPECT_EQ(ErrorOf(other).param, "background");
  EXPECT_EQ(other["request-id"], "");
}

TEST(ServerApis, AreCountedByTheirRoutes) {
  const RunningHttp running;
  const TestResponse message = running.Post(kMessages, Message(R"(,"foo":1)"));
  EXPECT_EQ(message["x-ignored-fields"], "foo");
  EXPECT_EQ(running.Post(kCount, Message(R"(,"foo":1)"))["x-ignored-fields"], "foo");
  EXPECT_EQ(running.Post(kResponses, Response(R"(,"foo":1,"stream":true)"))["x-ignored-fields"],
            "foo");
  running.Post(kResponses, "{}");
  const TestResponse metrics = running.Get("/metrics");
  for (const std::string_view line :
       {R"(sluice_http_requests_total{code="200",route="/v1/messages"} 1)",
        R"(sluice_http_requests_total{code="200",route="/v1/messages/count_tokens"} 1)",
        R"(sluice_http_requests_total{code="200",route="/v1/responses"} 1)",
        R"(sluice_http_requests_total{code="400",route="/v1/responses"} 1)",
        "sluice_unknown_fields_total 3"}) {
    EXPECT_TRUE(Has(metrics, line)) << line;
  }
}

}  // namespace
}  // namespace sluice::test
