#include "server/admission/access.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "server/http/peer.h"

namespace sluice::server {
namespace {

HttpRequest With(std::string name, std::string value, std::string method = "POST") {
  HttpRequest request;
  request.method = std::move(method);
  request.fields = {{std::move(name), std::move(value)}};
  return request;
}

std::string FieldOf(const std::vector<HttpField>& fields, std::string_view name) {
  for (const HttpField& field : fields) {
    if (field.name == name) return field.value;
  }
  return "";
}

TEST(Access, FindsEachKeyAndNothingElse) {
  const Access access({"first", "second-key"}, {});
  const auto found = [&](std::string value) {
    return access.FindKey(With("authorization", std::move(value)));
  };
  EXPECT_EQ(found("Bearer first"), 0u);
  EXPECT_EQ(found("bearer   second-key"), 1u);
  for (const char* const wrong :
       {"", "Bearer", "Bearer ", "Bearer firs", "Bearer first ", "Bearer firstt", "Bearer FIRST",
        "Basic first", "first", "Bearerfirst", "Bearer first,second-key"}) {
    EXPECT_EQ(found(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(access.FindKey(HttpRequest{}), std::nullopt);
}

// Clients of Anthropic's API send it so; some have a token of another service as well.
TEST(Access, FindsAKeyInXApiKey) {
  const Access access({"first", "second-key"}, {});
  EXPECT_EQ(access.FindKey(With("x-api-key", "second-key")), 1u);
  for (const char* const wrong : {"", "firs", "Bearer first", "first "}) {
    EXPECT_EQ(access.FindKey(With("X-Api-Key", wrong)), std::nullopt) << wrong;
  }
  HttpRequest both = With("Authorization", "Bearer other");
  both.fields.push_back({"X-Api-Key", "first"});
  EXPECT_EQ(access.FindKey(both), 0u);
}

TEST(Access, AKeyThatIsListedTwiceIsOneClient) {
  Access access({"one", "one"}, {});
  const auto shares = [&] {
    return access.FindRequester(With("Authorization", "Bearer one"))->shares;
  };
  EXPECT_FALSE(shares());
  access.SetKeys({"one", "two", "one"});
  EXPECT_TRUE(shares());
  access.SetKeys({"one", "one", "one"});
  EXPECT_FALSE(shares());
}

// An address of IPv6 is one of 2^64 that a client has.
TEST(Peer, IsANetworkOfVersionSix) {
  const auto peer = [](const char* text) {
    sockaddr_storage name{};
    auto& v6 = reinterpret_cast<sockaddr_in6&>(name);
    auto& v4 = reinterpret_cast<sockaddr_in&>(name);
    if (::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
      name.ss_family = AF_INET6;
    } else {
      EXPECT_EQ(::inet_pton(AF_INET, text, &v4.sin_addr), 1);
      name.ss_family = AF_INET;
    }
    return PeerOf(name);
  };
  EXPECT_EQ(peer("2001:db8:1:2:3:4:5:6"), peer("2001:db8:1:2::1"));
  EXPECT_NE(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
  EXPECT_EQ(peer("::ffff:192.0.2.7"), peer("192.0.2.7"));
  EXPECT_NE(peer("192.0.2.7"), peer("192.0.2.8"));
  for (const char* local : {"::1", "127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(peer(local), 0u) << local;
  }
  EXPECT_NE(peer("2001:db8:1:2::1"), 0u);
}

// Zeros behind a key are not the key: what is compared beyond the end of what was given.
TEST(Access, ComparesTheWholeKey) {
  const Access access({std::string("key\0", 4)}, {});
  EXPECT_EQ(access.FindKey(With("Authorization", "Bearer key")), std::nullopt);
}

TEST(Access, SaysNothingOfOriginsByDefault) {
  const Access access({}, {});
  EXPECT_FALSE(access.needs_key());
  std::vector<HttpField> fields;
  access.AddFields(With("Origin", "https://a.example"), fields);
  EXPECT_TRUE(fields.empty());
  HttpRequest asks = With("Origin", "https://a.example", "OPTIONS");
  asks.fields.push_back({"Access-Control-Request-Method", "POST"});
  EXPECT_FALSE(access.Preflight(asks, "POST").has_value());
}

TEST(Access, TellsBrowsersWhichOriginsMayAsk) {
  const Access access({}, {"https://a.example", "http://localhost:3000"});
  std::vector<HttpField> fields;
  access.AddFields(With("Origin", "http://localhost:3000"), fields);
  EXPECT_EQ(FieldOf(fields, "Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(FieldOf(fields, "Vary"), "Origin");
  for (const char* const other : {"https://a.example.evil", "https://a.exampl", "null", ""}) {
    fields.clear();
    access.AddFields(With("Origin", other), fields);
    EXPECT_EQ(FieldOf(fields, "Access-Control-Allow-Origin"), "") << other;
    EXPECT_EQ(FieldOf(fields, "Vary"), "Origin") << other;
  }
}

TEST(Access, AnyOriginIsToldAsSuch) {
  const Access access({}, {"*"});
  std::vector<HttpField> fields;
  access.AddFields(With("Origin", "https://b.example"), fields);
  EXPECT_EQ(FieldOf(fields, "Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(FieldOf(fields, "Vary"), "");
}

TEST(Access, AnswersPreflights) {
  const Access access({}, {"https://a.example"});
  HttpRequest asks = With("Origin", "https://a.example", "OPTIONS");
  EXPECT_FALSE(access.Preflight(asks, "POST").has_value());  // an OPTIONS that asks nothing
  asks.fields.push_back({"Access-Control-Request-Method", "POST"});
  asks.fields.push_back({"Access-Control-Request-Headers", "authorization,x-stainless-os"});
  const auto allowed = access.Preflight(asks, "POST, OPTIONS");
  ASSERT_TRUE(allowed.has_value());
  EXPECT_EQ(allowed->status, 204);
  EXPECT_EQ(allowed->body, "");
  EXPECT_EQ(FieldOf(allowed->fields, "Access-Control-Allow-Methods"), "POST, OPTIONS");
  EXPECT_EQ(FieldOf(allowed->fields, "Access-Control-Allow-Headers"),
            "authorization,x-stainless-os");

  asks.fields.back().value = "x\r\nSet-Cookie: a=b";
  EXPECT_EQ(FieldOf(access.Preflight(asks, "POST")->fields, "Access-Control-Allow-Headers"), "");
  asks.fields[0].value = "https://b.example";
  EXPECT_EQ(access.Preflight(asks, "POST")->status, 403);
}

}  // namespace
}  // namespace sluice::server
