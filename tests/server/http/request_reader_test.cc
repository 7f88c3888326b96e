// What is a request, what is none, and that it does not matter in which pieces it comes.
#include "server/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace sluice::server {
namespace {

struct Outcome {
  int status = -1;  // -1: it needs more; 0: a request
  HttpRequest request = {};
  size_t taken = 0;
};

// `bytes` in pieces that end where `ends` says.
Outcome Read(std::string_view bytes, const std::vector<size_t>& ends, const HttpLimits& limits) {
  Outcome outcome;
  RequestReader reader(limits, outcome.request);
  std::string input;
  size_t begin = 0;
  for (const size_t end : ends) {
    input += bytes.substr(begin, end - begin);
    begin = end;
    for (size_t count = 1; count > 0 && !reader.is_complete() && reader.problem().status == 0;) {
      count = reader.Read(input);
      input.erase(0, count);
      outcome.taken += count;
    }
    if (reader.problem().status != 0 || reader.is_complete()) {
      outcome.status = reader.problem().status;
      break;
    }
  }
  return outcome;
}

Outcome Read(std::string_view bytes, const HttpLimits& limits = {}) {
  return Read(bytes, {bytes.size()}, limits);
}

int StatusOf(std::string_view fields, std::string_view body = "") {
  return Read("POST / HTTP/1.1\r\nHost: x\r\n" + std::string(fields) + "\r\n" + std::string(body))
      .status;
}

TEST(RequestReader, RefusesAFieldThatIsFoldedIntoTwoLines) {
  EXPECT_EQ(StatusOf("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("X-A: b\r\n\tc\r\nContent-Length: 0\r\n"), 400);
  EXPECT_EQ(StatusOf(" X-A: b\r\n"), 400);
  // In any pieces, and never for what a body has.
  const std::string_view folded = "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n";
  for (size_t end = 1; end < folded.size(); ++end) {
    EXPECT_EQ(Read(folded, {end, folded.size()}, {}).status, 400) << end;
  }
  EXPECT_EQ(StatusOf("Content-Length: 3\r\n", "\n a"), 0);
  // Nor among the fields after the last chunk.
  const auto with_trailer = [](std::string_view trailer) {
    return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
           std::string(trailer) + "\r\n";
  };
  EXPECT_EQ(Read(with_trailer("X-A: b\r\nX-B:\r\n")).status, 0);
  const std::string after = with_trailer("X-A: b\r\n c\r\n");
  for (size_t end = 1; end < after.size(); ++end) {
    EXPECT_EQ(Read(after, {end, after.size()}, {}).status, 400) << end;
  }
}

TEST(RequestReader, RefusesWhatHasTwoReadings) {
  EXPECT_EQ(StatusOf("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "abc"), 400);
  EXPECT_EQ(StatusOf("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "abc"), 400);
  EXPECT_EQ(StatusOf("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400);
  EXPECT_EQ(StatusOf("Content-Length: 3, 4\r\n", "abcd"), 400);
  EXPECT_EQ(StatusOf("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 0);
  for (const char* length : {"-1", "+3", "0x3", "3 ", "3;", "", "99999999999999999999"}) {
    EXPECT_EQ(StatusOf("Content-Length: " + std::string(length) + "\r\n", "abc"),
              length == std::string_view("3 ") ? 0 : 400)
        << length;
  }
  EXPECT_EQ(StatusOf("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(StatusOf("Transfer-Encoding: gzip\r\n"), 501);
  EXPECT_EQ(StatusOf("Transfer-Encoding: gzip, chunked\r\n"), 501);
  EXPECT_EQ(StatusOf("Transfer-Encoding: chunked, identity\r\n"), 501);
  EXPECT_EQ(Read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").status, 400);
  EXPECT_EQ(StatusOf("Content-Length : 3\r\n", "abc"), 400);
  EXPECT_EQ(StatusOf("Host: y\r\n"), 400);
  EXPECT_EQ(Read("GET / HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET / HTTP/1.0\r\n\r\n").status, 0);
}

TEST(RequestReader, RefusesMalformedLines) {
  EXPECT_EQ(Read("\x16\x03\x01\x02").status, 400);  // TLS
  EXPECT_EQ(Read("GET /\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET / HTTP/1.1\nHost: x\n\n").status, 400);
  EXPECT_EQ(Read("GET / FTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET  / HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET here HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET /%2 HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET /%+2 HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET /\xC3\xA4 HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  EXPECT_EQ(Read("GET / HTTP/2.0\r\nHost: x\r\n\r\n").status, 505);
  EXPECT_EQ(Read("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 505);
  EXPECT_EQ(Read("GET / HTTP/0.9\r\n\r\n").status, 505);
  EXPECT_EQ(StatusOf("A field\r\n"), 400);
  EXPECT_EQ(StatusOf("A: b\x01\r\n"), 400);
  EXPECT_EQ(StatusOf(std::string_view("A: b\0c\r\n", 8)), 400);
  EXPECT_EQ(StatusOf("Expect: 200-ok\r\n"), 417);
  EXPECT_EQ(StatusOf("Expect: 100-Continue\r\n"), 0);
}

TEST(RequestReader, RefusesMalformedChunks) {
  const auto status = [](std::string_view body) {
    return StatusOf("Transfer-Encoding: chunked\r\n", body);
  };
  EXPECT_EQ(status("3\r\nabc\r\n0\r\n\r\n"), 0);
  EXPECT_EQ(status("3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n"), 0);
  EXPECT_EQ(status("x\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("-3\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("0x3\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("3\r\nabcd\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("3\nabc\n0\n\n"), -1);                           // the line has not ended
  EXPECT_EQ(status("10000000000000003\r\nabc\r\n0\r\n\r\n"), 400);  // 3, modulo 2^64
}

TEST(RequestReader, HoldsEveryLimitToTheByte) {
  HttpLimits limits;
  limits.request_line_bytes = 100;
  limits.header_bytes = 200;
  limits.header_fields = 5;
  limits.body_bytes = 50;
  const auto line = [&](size_t size) {
    const std::string rest(size - std::string_view("GET / HTTP/1.1\r\n").size(), 'a');
    return Read("GET /" + rest + " HTTP/1.1\r\nHost: x\r\n\r\n", limits).status;
  };
  EXPECT_EQ(line(100), 0);
  EXPECT_EQ(line(101), 414);
  EXPECT_EQ(Read("GET /" + std::string(101, 'a'), limits).status, 414);
  EXPECT_EQ(Read("GET /" + std::string(80, 'a'), limits).status, -1);

  const auto head = [&](size_t size) {
    const std::string rest(size - std::string_view("Host: x\r\nA: \r\n\r\n").size(), 'a');
    return Read("GET / HTTP/1.1\r\nHost: x\r\nA: " + rest + "\r\n\r\n", limits).status;
  };
  EXPECT_EQ(head(200), 0);
  EXPECT_EQ(head(201), 431);
  EXPECT_EQ(Read("GET / HTTP/1.1\r\nA: " + std::string(200, 'a'), limits).status, 431);

  std::string fields = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 4; ++i) fields += "A: b\r\n";
  EXPECT_EQ(Read(fields + "\r\n", limits).status, 0);
  EXPECT_EQ(Read(fields + "A: b\r\n\r\n", limits).status, 431);

  const auto body = [&](const std::string& length, const std::string& text) {
    return Read("POST / HTTP/1.1\r\nHost: x\r\n" + length + "\r\n\r\n" + text, limits).status;
  };
  EXPECT_EQ(body("Content-Length: 50", std::string(50, 'a')), 0);
  EXPECT_EQ(body("Content-Length: 51", ""), 413);
  EXPECT_EQ(body("Transfer-Encoding: chunked", "19\r\n" + std::string(25, 'a') + "\r\n19\r\n" +
                                                   std::string(25, 'a') + "\r\n0\r\n\r\n"),
            0);
  EXPECT_EQ(body("Transfer-Encoding: chunked", "19\r\n" + std::string(25, 'a') + "\r\n1a\r\n"),
            413);
  EXPECT_EQ(body("Transfer-Encoding: chunked", "ffffffffffffffff\r\n"), 413);
  EXPECT_EQ(body("Transfer-Encoding: chunked", "1;" + std::string(300, 'a')), 431);
  EXPECT_EQ(body("Transfer-Encoding: chunked", "0\r\nA: " + std::string(300, 'a')), 431);
}

TEST(RequestReader, ReadsTheSameInAnyPieces) {
  const std::string chunked =
      "POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0000a;e=\"f\"\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";
  const std::string plain =
      "POST http://x/a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\nabc0123456789";
  for (const std::string& bytes : {chunked, plain}) {
    const std::string with_next = bytes + "GET / HTTP/1.1\r\n";
    std::vector<size_t> each;
    for (size_t end = 1; end <= with_next.size(); ++end) each.push_back(end);
    std::vector<std::vector<size_t>> splits = {each};
    for (const size_t end : each) splits.push_back({end, with_next.size()});
    for (const auto& split : splits) {
      const Outcome outcome = Read(with_next, split, {});
      ASSERT_EQ(outcome.status, 0) << bytes << split[0];
      EXPECT_EQ(outcome.taken, bytes.size());
      EXPECT_EQ(outcome.request.path, "/a");
      EXPECT_EQ(outcome.request.query, "b");
      EXPECT_EQ(outcome.request.fields.size(), 2u);  // without the trailer
      EXPECT_EQ(outcome.request.body, "abc0123456789");
      EXPECT_GE(outcome.request.body.capacity(), outcome.request.body.size() + 64);
    }
  }
}

TEST(RequestReader, EndsOnDamagedRequestsWhateverTheyAre) {
  const std::string seeds[] = {
      "POST /v1/x?y=%20z HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: "
      "100-continue\r\n\r\nabcd",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcd\r\n0\r\nA: "
      "b\r\n\r\n",
      "GET * HTTP/1.0\r\nConnection: keep-alive, a\r\nA:\r\n b\r\n\r\n"};
  std::mt19937 random(1);
  const std::string_view bytes = "\r\n :;,%0aFf\t\"x\0\xff/";
  int requests = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seeds[random() % std::size(seeds)];
    for (auto changes = random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, random() % 8, byte);
          break;
        default:
          text.erase(at, random() % 8);
      }
      if (text.empty()) text.push_back('G');
    }
    std::vector<size_t> ends = {text.size()};
    for (auto pieces = random() % 5; pieces > 0; --pieces) ends.push_back(random() % text.size());
    std::ranges::sort(ends);
    const Outcome whole = Read(text);
    const Outcome parts = Read(text, ends, {});
    // A byte that is wrong may be seen before what is missing before it.
    if (whole.status == 0) {
      EXPECT_EQ(parts.status, 0) << text;
    }
    EXPECT_EQ(whole.request.body, parts.request.body) << text;
    requests += whole.status == 0;
  }
  EXPECT_GT(requests, 2000);
}

}  // namespace
}  // namespace sluice::server
