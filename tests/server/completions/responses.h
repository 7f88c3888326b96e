// A response as a client of OpenAI's schema reads it, whole or from the events of a stream. Checks
// the grammar of a stream on the way: one role and one finish a choice, nothing of a choice behind
// its finish, usage behind all of them, [DONE] last.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::test {

struct ReadChoice {
  std::string text = {};
  std::string finish = {};       // empty: none
  std::string stop_reason = {};  // JSON, "null"
  std::vector<int64_t> ids = {};
  std::vector<double> logprobs = {};
  std::vector<int64_t> offsets = {};
  std::vector<std::string> deltas = {};  // of a stream

  friend bool operator==(const ReadChoice& a, const ReadChoice& b) {
    return a.text == b.text && a.finish == b.finish && a.stop_reason == b.stop_reason &&
           a.ids == b.ids && a.logprobs == b.logprobs && a.offsets == b.offsets;
  }
};

inline std::ostream& operator<<(std::ostream& out, const ReadChoice& choice) {
  return out << "\"" << choice.text << "\" finish " << choice.finish << " stop_reason "
             << choice.stop_reason << ", " << choice.ids.size() << " ids, "
             << choice.logprobs.size() << " logprobs";
}

struct ReadUsage {
  int64_t prompt = 0;
  int64_t completion = 0;
  friend bool operator==(const ReadUsage&, const ReadUsage&) = default;
};

struct ReadError {
  std::string message = {};
  std::string type = {};
  std::string param = {};
  std::string code = {};
};

struct ReadResponse {
  std::map<int64_t, ReadChoice> choices = {};
  std::optional<ReadUsage> usage = {};  // of a stream: the last one
  std::vector<ReadUsage> usages = {};   // of a stream: all
  std::optional<ReadError> error = {};
  std::string id = {};
  std::string model = {};
  std::optional<uint64_t> seed = {};
  int64_t roles = 0;
  int64_t comments = 0;
  bool is_done = false;
};

class ResponseReader {
 public:
  static ReadResponse Whole(std::string_view body) {
    ResponseReader reader;
    reader.ReadObject(body, false);
    reader.read_.is_done = true;
    return reader.read_;
  }
  // All of a stream so far; a partial event at its end is an error.
  static ReadResponse Stream(std::string_view sent) {
    ResponseReader reader;
    while (!sent.empty()) {
      const size_t end = sent.find("\n\n");
      if (end == std::string_view::npos) {
        ADD_FAILURE() << "half an event: " << sent;
        break;
      }
      reader.ReadEvent(sent.substr(0, end));
      sent.remove_prefix(end + 2);
    }
    return reader.read_;
  }

 private:
  using Element = simdjson::dom::element;

  void ReadEvent(std::string_view event) {
    EXPECT_FALSE(read_.is_done) << "behind [DONE]: " << event;
    if (event.starts_with(":")) {
      ++read_.comments;
      return;
    }
    constexpr std::string_view kData = "data: ";
    ASSERT_TRUE(event.starts_with(kData)) << event;
    event.remove_prefix(kData.size());
    if (event == "[DONE]") {
      read_.is_done = true;
    } else {
      EXPECT_FALSE(read_.error.has_value()) << "behind an error: " << event;
      ReadObject(event, true);
    }
  }

  static std::string Text(const Element& element) {
    std::string_view text;
    return element.get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
  }

  void ReadObject(std::string_view json, bool is_event) {
    Element object;
    ASSERT_EQ(parser_.parse(simdjson::padded_string(json)).get(object), simdjson::SUCCESS) << json;
    Element value;
    if (object["error"].get(value) == simdjson::SUCCESS) {
      read_.error = ReadError{Text(value["message"].value()), Text(value["type"].value()),
                              Text(value["param"].value()), Text(value["code"].value())};
      return;
    }
    const std::string id = Text(object["id"].value());
    EXPECT_TRUE(read_.id.empty() || read_.id == id) << json;
    read_.id = id;
    read_.model = Text(object["model"].value());
    uint64_t seed = 0;
    if (object["seed"].get(seed) == simdjson::SUCCESS) read_.seed = seed;
    bool has_choice = false;
    for (const Element choice : object["choices"].get_array()) {
      ReadOne(choice, json, is_event);
      has_choice = true;
    }
    if (object["usage"].get(value) != simdjson::SUCCESS || value.is_null()) return;
    if (is_event && !has_choice) {
      for (const auto& [index, choice] : read_.choices) EXPECT_NE(choice.finish, "") << index;
    }
    read_.usage =
        ReadUsage{value["prompt_tokens"].get_int64(), value["completion_tokens"].get_int64()};
    read_.usages.push_back(*read_.usage);
    EXPECT_EQ(int64_t{value["total_tokens"].get_int64()},
              read_.usage->prompt + read_.usage->completion);
  }

  void ReadOne(const Element& json, std::string_view event, bool is_event) {
    ReadChoice& choice = read_.choices[json["index"].get_int64()];
    EXPECT_EQ(choice.finish, "") << "behind the finish: " << event;
    Element value;
    std::string text;
    if (json["delta"].get(value) == simdjson::SUCCESS ||
        json["message"].get(value) == simdjson::SUCCESS) {
      Element part;
      if (value["role"].get(part) == simdjson::SUCCESS) {
        EXPECT_EQ(Text(part), "assistant");
        ++read_.roles;
      }
      if (value["content"].get(part) == simdjson::SUCCESS) text = Text(part);
    } else {
      text = Text(json["text"].value());
    }
    choice.text += text;
    if (is_event && !text.empty()) choice.deltas.push_back(text);
    choice.finish = Text(json["finish_reason"].value());
    if (is_event && !choice.finish.empty()) {
      EXPECT_EQ(text, "") << "a finish with text: " << event;
    }
    if (json["stop_reason"].get(value) == simdjson::SUCCESS) {
      choice.stop_reason = simdjson::minify(value);
    }
    if (json["token_ids"].get(value) == simdjson::SUCCESS && !value.is_null()) {
      for (const Element token : value.get_array()) choice.ids.push_back(token.get_int64());
    }
    if (json["logprobs"].get(value) == simdjson::SUCCESS && !value.is_null()) {
      ReadLogprobs(value, choice);
    }
  }

  static void ReadLogprobs(const Element& json, ReadChoice& choice) {
    Element list;
    const auto number = [](const Element& value) { return value.is_null() ? 0.0 : double(value); };
    if (json["content"].get(list) == simdjson::SUCCESS) {
      for (const Element token : list.get_array()) {
        choice.logprobs.push_back(number(token["logprob"].value()));
      }
      return;
    }
    for (const Element value : json["token_logprobs"].get_array()) {
      choice.logprobs.push_back(number(value));
    }
    for (const Element value : json["text_offset"].get_array()) {
      choice.offsets.push_back(value.get_int64());
    }
  }

  simdjson::dom::parser parser_;
  ReadResponse read_;
};

}  // namespace sluice::test
