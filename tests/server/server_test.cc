// A server as its clients see it: every route, who may ask, and what is refused.
#include <gtest/gtest.h>

#include "sluice/error.hpp"
#include "sluice/version.hpp"
#include "tests/link/collected.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

constexpr char kCompletionsPath[] = "/v1/completions";
constexpr char kChatPath[] = "/v1/chat/completions";

TEST(Server, RefusesOptionsThatCannotBeByName) {
  const auto refused = [](auto change) {
    ServerOptions options;
    options.engines = {"ipc://@nobody"};
    change(options);
    return RefusedFor([&] { const Server server(LettersText(), options); });
  };
  EXPECT_EQ(refused([](auto& o) { o.engines.clear(); }), "engines");
  EXPECT_EQ(refused([](auto& o) { o.threads = 0; }), "threads");
  EXPECT_EQ(refused([](auto& o) { o.engines.emplace_back("vllm+tcp://127.0.0.1:1?ranks=0"); }),
            "endpoint");
  EXPECT_EQ(refused([](auto& o) { o.encode_threads = 0; }), "encode_threads");
  EXPECT_EQ(refused([](auto& o) { o.max_requests = 0; }), "max_requests");
  EXPECT_EQ(refused([](auto& o) { o.max_requests_per_key = -1; }), "max_requests_per_key");
  EXPECT_EQ(refused([](auto& o) { o.max_requests_per_key = 2; }), "max_requests_per_key");
  EXPECT_EQ(refused([](auto& o) { o.api_keys = {"good", "with space"}; }), "api_keys");
  EXPECT_EQ(refused([](auto& o) { o.api_keys = {""}; }), "api_keys");
  EXPECT_EQ(refused([](auto& o) { o.cors_origins = {"https://a.example/"}; }), "cors_origins");
  EXPECT_EQ(refused([](auto& o) { o.cors_origins = {"a.example"}; }), "cors_origins");
  EXPECT_EQ(refused([](auto& o) { o.model_names = {""}; }), "model_names");
  EXPECT_EQ(refused([](auto& o) { o.keep_alive = milliseconds(0); }), "keep_alive");
  EXPECT_EQ(refused([](auto& o) { o.http.connections = 0; }), "http.connections");
  EXPECT_EQ(refused([](auto& o) { o.connect_timeout = milliseconds(1); }), "endpoint");
}

TEST(Server, TellsNoKeyInItsErrors) {
  ServerOptions options;
  options.engines = {"ipc://@nobody"};
  options.api_keys = {"my secret"};
  try {
    const Server server(LettersText(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos) << error.what();
  }
}

TEST(Server, RefusesAPortThatIsTaken) {
  RunningHttp running;
  ServerOptions options;
  options.engines = {running.engine().endpoint()};
  options.port = running.server().port();
  EXPECT_EQ(RefusedFor([&] { const Server server(LettersText(), options); }), "port");
}

TEST(Server, SaysWhereItIsAndWhatItServes) {
  RunningHttp running;
  EXPECT_EQ(running.server().url(), "http://127.0.0.1:" + std::to_string(running.server().port()));
  EXPECT_EQ(running.server().info().model, "letters");
  EXPECT_EQ(running.Get("/version").body,
            R"({"version":")" + std::string(kVersionString) + R"("})");
}

TEST(Server, IsHealthyAndReady) {
  const RunningHttp running;
  for (const char* const path : {"/health", "/ready", "/ping"}) {
    const TestResponse response = running.Get(path);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(response["content-type"], "application/json");
    EXPECT_NE(response["x-request-id"], "");
  }
  EXPECT_EQ(running.Get("/health").body, R"({"status":"ok"})");
  TestClient client = running.Connect();
  client.Send(TestClient::Request("HEAD", "/health"));
  const TestResponse head = client.Read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(client.Get("/health").body, R"({"status":"ok"})");  // no body lay in between
}

TEST(Server, ListsItsModels) {
  ServerOptions options;
  options.model_names = {"abc", "org/alias"};
  const RunningHttp running(options);
  const TestResponse list = running.Get("/v1/models");
  EXPECT_EQ(list.status, 200);
  EXPECT_NE(list.body.find(R"("object":"list")"), std::string::npos) << list.body;
  EXPECT_NE(list.body.find(R"("id":"abc")"), std::string::npos);
  EXPECT_NE(list.body.find(R"("id":"org/alias")"), std::string::npos);
  EXPECT_NE(list.body.find(R"("max_model_len":4096)"), std::string::npos);
  for (const char* const path : {"/v1/models/org/alias", "/v1/models/org%2Falias"}) {
    EXPECT_NE(running.Get(path).body.find(R"("id":"org/alias")"), std::string::npos) << path;
  }
  const TestResponse nope = running.Get("/v1/models/nope");
  EXPECT_EQ(nope.status, 404);
  EXPECT_EQ(ErrorOf(nope).code, "model_not_found");
}

TEST(Server, CompletesAsAWholeAndAsAStream) {
  const RunningHttp running;
  const TestResponse whole = running.Post(kCompletionsPath, Asking("c", 4));
  EXPECT_EQ(whole.status, 200) << whole.body;
  const ReadResponse read = ResponseReader::Whole(whole.body);
  EXPECT_EQ(read.choices.at(0).text, "cdef");
  EXPECT_EQ(read.choices.at(0).finish, "length");
  EXPECT_EQ(read.usage, (ReadUsage{1, 4}));
  EXPECT_EQ(read.model, "letters");
  EXPECT_TRUE(read.seed.has_value());

  const TestResponse sent = running.Post(kCompletionsPath, Asking("c", 4, kStreams));
  EXPECT_EQ(sent["content-type"], "text/event-stream; charset=utf-8");
  EXPECT_EQ(sent["cache-control"], "no-cache");
  EXPECT_EQ(sent["x-accel-buffering"], "no");
  const ReadResponse stream = ResponseReader::Stream(sent.body);
  EXPECT_EQ(stream.choices.at(0).text, "cdef");
  EXPECT_TRUE(stream.is_done);
}

TEST(Server, Chats) {
  const RunningHttp running;
  const TestResponse sent = running.Post(
      kChatPath, R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,"stream":true})");
  const ReadResponse stream = ResponseReader::Stream(sent.body);
  EXPECT_EQ(stream.choices.at(0).text, "xyz");
  EXPECT_EQ(stream.roles, 1);
  EXPECT_TRUE(stream.is_done);
}

TEST(Server, NChoicesEndEachInTheirOwnWay) {
  const RunningHttp running;
  const TestResponse response =
      running.Post(kCompletionsPath, Asking("a", 5, R"(,"n":2,"stop":["d"],"logprobs":1)"));
  const ReadResponse read = ResponseReader::Whole(response.body);
  ASSERT_EQ(read.choices.size(), 2u) << response.body;
  EXPECT_EQ(read.choices.at(1).text, "abc");
  EXPECT_EQ(read.choices.at(1).finish, "stop");
  // Four tokens: the one with the stop counts, and has no text.
  EXPECT_EQ(read.choices.at(0).offsets, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(Server, EchoesAPromptAndNothingElse) {
  const RunningHttp running;
  const TestResponse response = running.Post(kCompletionsPath, Asking("cab", 0, R"(,"echo":true)"));
  const ReadResponse read = ResponseReader::Whole(response.body);
  EXPECT_EQ(read.choices.at(0).text, "cab") << response.body;
  EXPECT_EQ(read.choices.at(0).finish, "length");
  EXPECT_EQ(read.usage, (ReadUsage{3, 0}));
}

struct Wrong {
  const char* path;
  std::string body;
  int status;
  const char* param;
  const char* code;
};

TEST(Server, AnswersWhatIsWrongBeforeAnyStream) {
  const RunningHttp running;
  const Wrong wrongs[] = {
      {kCompletionsPath, Asking("a", 1, R"(,"model":"nope","stream":true)"), 404, "model",
       "model_not_found"},
      {kCompletionsPath, R"({"model":)", 400, "", "json_parse_error"},
      {kCompletionsPath, Asking("a", 1, R"(,"n":0)"), 400, "n", ""},
      {kCompletionsPath, Asking("a", 1, R"(,"stop":"")"), 400, "stop", ""},
      {kCompletionsPath, Asking("a", 1, R"(,"stream_options":{"include_usage":true})"), 400,
       "stream_options", ""},
      {kCompletionsPath, Asking(std::string(5000, 'a'), 1, kStreams), 400, "prompt",
       "context_length_exceeded"},
      {kChatPath, R"({"messages":[]})", 400, "messages", ""},
      {"/tokenize", R"({"prompt":"a","model":"nope"})", 404, "model", "model_not_found"},
      {"/tokenize", R"([])", 400, "", "json_parse_error"},
      {"/detokenize", R"({"tokens":[0,27]})", 400, "tokens", ""},
      {"/detokenize", R"({"tokens":[-1]})", 400, "tokens", ""},
      {"/detokenize", R"({})", 400, "tokens", ""},
      {"/nowhere", "{}", 404, "", "not_found"},
  };
  for (const Wrong& wrong : wrongs) {
    SCOPED_TRACE(wrong.path + wrong.body.substr(0, 100));
    const TestResponse response = running.Post(wrong.path, wrong.body);
    EXPECT_EQ(response.status, wrong.status);
    EXPECT_EQ(response["content-type"], "application/json");
    const ReadError error = ErrorOf(response);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.param, wrong.param) << error.message;
    if (*wrong.code != '\0') {
      EXPECT_EQ(error.code, wrong.code);
    }
  }
}

TEST(Server, SaysWhereItsRoutesAreListed) {
  const RunningHttp running;
  EXPECT_EQ(
      ErrorOf(running.Post("/nowhere", "{}")).message,
      "there is nothing at /nowhere; GET /docs and GET /openapi.json list what the server has");
  EXPECT_EQ(running.Get("/docs").status, 200);
  EXPECT_EQ(running.Get("/openapi.json").status, 200);
}

// It is not read, whatever its size is, and the next bytes are not taken for a request.
TEST(Server, RefusesBodiesThatNothingReads) {
  const RunningHttp running;
  for (const char* const path : {"/health", "/ready", "/metrics", "/v1/models", "/"}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(running.Get(path, "Content-Length: 0\r\n").status, 200);
    for (const char* const field : {"Content-Length: 5\r\n", "Content-Length: 33000000\r\n",
                                    "Transfer-Encoding: chunked\r\n"}) {
      const TestResponse response = running.Get(path, field);
      EXPECT_EQ(response.status, 400);
      EXPECT_EQ(ErrorOf(response).message, "GET " + std::string(path) + " takes no body");
      EXPECT_EQ(response["connection"], "close");
    }
  }
}

TEST(Server, IgnoresWhatItDoesNotKnow) {
  const RunningHttp running;
  EXPECT_EQ(running.Post(kCompletionsPath, Asking("a", 1, R"(,"foo":1)")).status, 200);
  const TestResponse twice = running.Post(kCompletionsPath, Asking("a", 1, R"(,"n":1,"n":2)"));
  EXPECT_EQ(ResponseReader::Whole(twice.body).choices.size(), 1u);
}

TEST(Server, NamesTheMethodsOfARoute) {
  const RunningHttp running;
  TestClient client = running.Connect();
  const auto allowed = [&](std::string_view method, std::string_view path) {
    client.Send(TestClient::Request(method, path));
    const TestResponse response = client.Read();
    EXPECT_EQ(response.status, 405) << method << path;
    return response["allow"];
  };
  EXPECT_EQ(allowed("PUT", kCompletionsPath), "POST");
  EXPECT_EQ(allowed("GET", kChatPath), "POST");
  EXPECT_EQ(allowed("DELETE", "/health"), "GET, HEAD");
  EXPECT_EQ(allowed("OPTIONS", "/v1/models"), "GET, HEAD");
}

// A page of another origin could send anything else without asking first.
TEST(Server, TakesNothingButJson) {
  const RunningHttp running;
  const std::string body = Asking("a", 1);
  for (const char* const type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/jsonp\r\n"}) {
    TestClient client = running.Connect();
    client.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + std::string(type) +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_EQ(client.Read().status, 415) << type;
  }
  TestClient client = running.Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: Application/JSON; "
      "charset=utf-8\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(Server, WantsAKeyWhereItHasSome) {
  ServerOptions options;
  options.api_keys = {"one", "two"};
  const RunningHttp running(options);
  for (const char* const path : {"/health", "/ready", "/version", "/metrics", "/"}) {
    EXPECT_EQ(running.Get(path).status, 200) << path;
  }
  EXPECT_EQ(running.Get("/v1/models", "Authorization: Bearer two\r\n").status, 200);
  for (const char* const field : {"", "Authorization: Bearer no\r\n"}) {
    const TestResponse refused = running.Post(kCompletionsPath, Asking("a", 1), field);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused["www-authenticate"], "Bearer");
    EXPECT_EQ(ErrorOf(refused).code, "invalid_api_key");
    EXPECT_EQ(running.Get("/v1/models", field).status, 401);
  }
  for (const char* const field :
       {"Authorization: Bearer one\r\n", "Authorization: Bearer two\r\n"}) {
    EXPECT_EQ(running.Post(kCompletionsPath, Asking("a", 1), field).status, 200);
  }
}

TEST(Server, AKeyHasItsShareAndNoMore) {
  ServerOptions options;
  options.api_keys = {"one", "two"};
  options.max_requests_per_key = 1;
  const RunningHttp running(options, AlphabetScript(8, milliseconds(2)));
  TestClient first = running.Connect();
  first.Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 2000, kStreams),
                                 "Authorization: Bearer one\r\n"));
  EXPECT_EQ(first.ReadHead().status, 200);
  const TestResponse second =
      running.Post(kCompletionsPath, Asking("a", 1), "Authorization: Bearer one\r\n");
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second["retry-after"], "1");
  EXPECT_EQ(ErrorOf(second).type, "rate_limit_error");
  EXPECT_EQ(running.Post(kCompletionsPath, Asking("a", 1), "Authorization: Bearer two\r\n").status,
            200);
  first.Reset();
  EXPECT_TRUE(Becomes([&] {
    return running.Post(kCompletionsPath, Asking("a", 1), "Authorization: Bearer one\r\n").status ==
           200;
  }));
}

TEST(Server, IsFullWithAllThreadsTogether) {
  ServerOptions options;
  options.max_requests = 2;
  options.threads = 2;
  const RunningHttp running(options, AlphabetScript(8, milliseconds(2)));
  std::vector<TestClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(running.Connect());
    clients.back().Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 2000, kStreams)));
    EXPECT_EQ(clients.back().ReadHead().status, 200);
  }
  // On whatever thread.
  for (int i = 0; i < 8; ++i) {
    const TestResponse refused = running.Post(kCompletionsPath, Asking("a", 1, kStreams));
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused["retry-after"], "1");
    EXPECT_EQ(ErrorOf(refused).type, "service_unavailable");
    EXPECT_EQ(running.Get("/ready").status, 503);
    EXPECT_EQ(running.Get("/load").body, R"({"server_load":2})");
    EXPECT_EQ(running.Get("/health").status, 200);
  }
  clients.clear();
  EXPECT_TRUE(Becomes([&] { return running.Get("/ready").status == 200; }));
}

TEST(Server, LetsPagesOfItsOriginsAsk) {
  ServerOptions options;
  options.cors_origins = {"https://a.example"};
  options.api_keys = {"key"};
  const RunningHttp running(options);
  TestClient client = running.Connect();
  client.Send(TestClient::Request("OPTIONS", kCompletionsPath, "",
                                  "Origin: https://a.example\r\n"
                                  "Access-Control-Request-Method: POST\r\n"
                                  "Access-Control-Request-Headers: authorization\r\n"));
  const TestResponse preflight = client.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight["access-control-allow-origin"], "https://a.example");
  EXPECT_EQ(preflight["access-control-allow-methods"], "POST, OPTIONS");
  EXPECT_EQ(preflight["access-control-allow-headers"], "authorization");
  // Also what is refused, and the head of a stream, can be read by the page.
  const char* const fields[] = {"Origin: https://a.example\r\n",
                                "Origin: https://a.example\r\nAuthorization: Bearer key\r\n"};
  for (const char* const field : fields) {
    const TestResponse response = running.Post(kCompletionsPath, Asking("a", 2, kStreams), field);
    EXPECT_EQ(response["access-control-allow-origin"], "https://a.example") << response.status;
    EXPECT_EQ(response["vary"], "Origin");
  }
  EXPECT_EQ(running.Get("/health", "Origin: https://b.example\r\n")["access-control-allow-origin"],
            "");
}

TEST(Server, ReadsAndSpellsTokens) {
  const RunningHttp running;
  EXPECT_NE(running.Post("/tokenize", R"({"prompt":"cab"})").body.find(R"("tokens":[2,0,1])"),
            std::string::npos);
  EXPECT_NE(running
                .Post("/tokenize", R"({"messages":[{"role":"user","content":"be"}],)"
                                   R"("return_token_strs":true})")
                .body.find(R"("token_strs":["b","e"])"),
            std::string::npos);
  EXPECT_EQ(running.Post("/detokenize", R"({"tokens":[2,0,1]})").body, R"({"prompt":"cab"})");
}

TEST(Server, NamesFieldsThatTokenizingDoesNotKnow) {
  ServerOptions strict;
  strict.refuses_unknown_fields = true;
  const RunningHttp ignores, refuses(strict);
  const std::pair<std::string, std::string> requests[] = {
      {"/tokenize", R"({"prompt":"a","promt":"b"})"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"a"}],"promt":"b"})"},
      {"/detokenize", R"({"tokens":[1],"promt":"b"})"}};
  for (const auto& [path, body] : requests) {
    const TestResponse ignored = ignores.Post(path, body);
    EXPECT_EQ(ignored.status, 200);
    EXPECT_EQ(ignored["x-ignored-fields"], "promt");
    const TestResponse refused = refuses.Post(path, body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(ErrorOf(refused).param, "promt");
    EXPECT_EQ(ErrorOf(refused).code, "unknown_parameter");
  }
  EXPECT_EQ(refuses.Post("/tokenize", R"({"prompt":"a"})")["x-ignored-fields"], "");
}

// Encoding is work as well: who may not have one more request may not have that.
TEST(Server, CountsTokenizingAmongTheRequestsInFlight) {
  for (const bool of_key : {false, true}) {
    ServerOptions options;
    if (of_key) {
      options.api_keys = {"one", "two"};
      options.max_requests_per_key = 1;
    } else {
      options.max_requests = 1;
    }
    const RunningHttp running(options, AlphabetScript(8, milliseconds(5)));
    const std::string_view key = of_key ? "Authorization: Bearer one\r\n" : "";
    TestClient stream = running.Connect();
    stream.Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 4000, kStreams), key));
    EXPECT_EQ(stream.ReadHead().status, 200);
    const int refused = of_key ? 429 : 503;
    EXPECT_EQ(running.Post("/tokenize", R"({"prompt":"cab"})", key).status, refused);
    EXPECT_EQ(running.Post("/detokenize", R"({"tokens":[2]})", key).status, refused);
    EXPECT_EQ(running.Get("/v1/models", key).status, 200);
    if (of_key) {
      EXPECT_EQ(
          running.Post("/tokenize", R"({"prompt":"cab"})", "Authorization: Bearer two\r\n").status,
          200);
    }
    stream.Reset();
    EXPECT_TRUE(Becomes(
        [&] { return running.Post("/tokenize", R"({"prompt":"cab"})", key).status == 200; }));
    EXPECT_EQ(running.Post("/tokenize", R"({"prompt":"cab"})", key).status, 200)
        << "the place of one that is answered is free";
  }
}

TEST(Server, ReadsLongTextsElsewhere) {
  const RunningHttp running;
  const std::string text(100'000, 'b');
  const TestResponse response = running.Post("/tokenize", R"({"prompt":")" + text + R"("})");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find(R"("count":100000)"), std::string::npos);
  const TestResponse wrong =
      running.Post("/tokenize", R"({"prompt":")" + text + R"(","model":"nope"})");
  EXPECT_EQ(wrong.status, 404);
  // Nobody waits for these.
  for (int i = 0; i < 20; ++i) {
    TestClient client = running.Connect();
    client.Send(TestClient::Request("POST", "/tokenize", R"({"prompt":")" + text + R"("})"));
    client.Reset();
  }
  EXPECT_EQ(running.Get("/health").status, 200);
}

TEST(Server, HasAPageOfItsOwnAndNothingElseRunsInIt) {
  const RunningHttp running;
  const TestResponse page = running.Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page["content-type"], "text/html; charset=utf-8");
  const std::string policy = page["content-security-policy"];
  EXPECT_TRUE(policy.starts_with("default-src 'none';")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  const size_t nonce = policy.find("'nonce-") + 7;
  const std::string number = policy.substr(nonce, policy.find('\'', nonce) - nonce);
  EXPECT_GE(number.size(), 20u);
  EXPECT_NE(page.body.find("<script nonce=\"" + number + "\">"), std::string::npos);
  EXPECT_NE(page.body.find("<style nonce=\"" + number + "\">"), std::string::npos);
  for (const char* const foreign : {"{{", "http://", "https://", "src=", "onclick", "style=\""}) {
    EXPECT_EQ(page.body.find(foreign), std::string::npos) << foreign;
  }
  EXPECT_NE(running.Get("/")["content-security-policy"], policy);
}

TEST(Server, RefusesWhatIsTooLargeForItsEngineAndTheOthersDoNotNotice) {
  const AlphabetEngine engine(AlphabetScript(64, milliseconds(1)),
                              {.listen = LocalEndpoint(), .max_frame_bytes = 2000});
  ServerOptions options;
  options.engines = {engine.endpoint()};
  const RunningHttp running(options);
  TestClient streams = running.Connect();
  streams.Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 500, kStreams)));
  const TestResponse refused =
      running.Post(kCompletionsPath, Asking(std::string(3000, 'a'), 1, kStreams));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(ErrorOf(refused).message.find("at most 2000 bytes"), std::string::npos) << refused.body;
  const ReadResponse read = ResponseReader::Stream(streams.Read().body);
  EXPECT_FALSE(read.error.has_value());
  EXPECT_EQ(read.choices.at(0).text.size(), 500u);
}

TEST(Server, GivesBackARequestsIdentity) {
  const RunningHttp running;
  TestClient client = running.Connect();
  EXPECT_EQ(client.Get("/health", "X-Request-Id: mine-1\r\n")["x-request-id"], "mine-1");
  EXPECT_EQ(client.Get("/nowhere", "X-Request-Id: mine-2\r\n")["x-request-id"], "mine-2");
  EXPECT_EQ(client.Post(kCompletionsPath, Asking("a", 1, kStreams),
                        "X-Request-Id: mine-3\r\n")["x-request-id"],
            "mine-3");
}

TEST(Server, AnswersManyRequestsOfOneConnectionInTheirOrder) {
  const RunningHttp running;
  TestClient client = running.Connect();
  for (int i = 0; i < 100; ++i) {
    const std::string prompt(1, static_cast<char>('a' + i % 26));
    const TestResponse response =
        client.Post(kCompletionsPath, Asking(prompt, 1, i % 2 == 0 ? kStreams : ""));
    const ReadResponse read =
        i % 2 == 0 ? ResponseReader::Stream(response.body) : ResponseReader::Whole(response.body);
    ASSERT_EQ(read.choices.at(0).text, prompt);
  }
  client.Send(TestClient::Request("POST", kCompletionsPath, Asking("p", 3)) +
              TestClient::Request("GET", "/version"));
  EXPECT_EQ(ResponseReader::Whole(client.Read().body).choices.at(0).text, "pqr");
  EXPECT_NE(client.Read().body.find("version"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
