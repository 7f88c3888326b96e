// What writers wrote, read back by a parser that is not theirs.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

namespace sluice::test {

// Stays valid while it lives.
class ParsedJson {
 public:
  explicit ParsedJson(std::string_view json) {
    // Throws what ends the test: there is nothing to look at.
    root_ = parser_.parse(json.data(), json.size());
  }
  ParsedJson(const ParsedJson&) = delete;
  ParsedJson& operator=(const ParsedJson&) = delete;

  // By JSON pointers: "/choices/0/text".
  std::string Text(std::string_view path) const {
    std::string_view text;
    EXPECT_EQ(root_.at_pointer(path).get(text), simdjson::SUCCESS) << path;
    return std::string(text);
  }
  int64_t Integer(std::string_view path) const {
    int64_t number = 0;
    EXPECT_EQ(root_.at_pointer(path).get(number), simdjson::SUCCESS) << path;
    return number;
  }
  double Real(std::string_view path) const {
    double number = 0;
    EXPECT_EQ(root_.at_pointer(path).get(number), simdjson::SUCCESS) << path;
    return number;
  }
  // As it is written, without white space.
  std::string Json(std::string_view path) const {
    simdjson::dom::element element;
    EXPECT_EQ(root_.at_pointer(path).get(element), simdjson::SUCCESS) << path;
    return simdjson::minify(element);
  }
  bool Has(std::string_view path) const {
    return root_.at_pointer(path).error() == simdjson::SUCCESS;
  }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

// Every byte below 0x20, what JSON escapes, what SSE or JavaScript might trip over, and characters
// of each length.
inline std::string HostileText() {
  std::string text;
  for (int byte = 0; byte < 0x20; ++byte) text.push_back(static_cast<char>(byte));
  return text + "\"\\/\x7f" + "é漢\u2028\u2029\uFEFF😀" + R"(\u0041 data: [DONE])" + "\n\n\r\n" +
         std::string(1, '\0') + "end";
}

// The events of a stream: what stands behind `data: `. Fails where the framing is another one.
inline std::vector<std::string> EventsOf(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    const std::string_view event = stream.substr(0, end);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find_first_of("\r\n"), std::string_view::npos) << event;
    events.emplace_back(event.substr(6));
    stream.remove_prefix(end + 2);
  }
  return events;
}

}  // namespace sluice::test
