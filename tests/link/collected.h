// What a client was given of a request, put together from its outputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sluice/client.hpp"
#include "sluice/error.hpp"
#include "text/normalize/utf8.h"

namespace sluice::test {

struct Collected {
  std::string text = {};
  std::vector<int32_t> ids = {};
  std::vector<float> logprobs = {};
  std::vector<int32_t> ranks = {};
  int32_t width = 0;
  std::vector<int32_t> logprob_ids = {};
  std::vector<float> logprob_values = {};
  std::vector<float> prompt_logprobs = {};
  std::vector<int32_t> prompt_ranks = {};
  std::vector<int32_t> prompt_ids = {};
  std::vector<float> prompt_values = {};
  GenerationEnd end = GenerationEnd::kNone;
  std::string stop = {};
  int32_t stop_token = -1;
  RowStatus status = RowStatus::kOk;
  std::string message = {};
  ErrorCode code = ErrorCode::kInvalidValue;
  std::string parameter = {};
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;

  friend bool operator==(const Collected&, const Collected&) = default;
};

inline std::ostream& operator<<(std::ostream& out, const Collected& what) {
  out << "\"" << what.text << "\" " << what.ids.size() << " ids, " << what.logprobs.size()
      << " logprobs, end " << Name(what.end) << " stop \"" << what.stop << "\" token "
      << what.stop_token << " tokens " << what.output_tokens << " prompt " << what.prompt_tokens;
  return what.message.empty() ? out : out << " (" << what.message << ")";
}

// Checks each output on its way: it is not empty, it is text, nothing comes behind the end.
class Collector {
 public:
  explicit Collector(OutputMode mode = OutputMode::kDelta) : mode_(mode) {}

  void Add(const ClientOutput& output) {
    ++outputs_;
    EXPECT_EQ(all_.end, GenerationEnd::kNone) << "an output behind the end";
    EXPECT_TRUE(text::IsUtf8(output.text));
    const bool is_end = output.end != GenerationEnd::kNone;
    const bool has_prompt = !output.prompt.IsEmpty();
    if (has_prompt) AddPrompt(output.prompt);
    if (mode_ == OutputMode::kDelta) {
      EXPECT_TRUE(is_end || has_prompt || !output.text.empty()) << "an empty output";
      all_.text += output.text;
    } else {
      EXPECT_TRUE(is_end || has_prompt || output.text.size() > all_.text.size()) << "nothing new";
      EXPECT_TRUE(mode_ == OutputMode::kCumulative || is_end) << "more than one output";
      EXPECT_TRUE(output.text.starts_with(all_.text)) << "text was taken back";
      all_.text = output.text;
    }
    Append(output.ids, all_.ids);
    Append(output.logprobs, all_.logprobs);
    Append(output.ranks, all_.ranks);
    Append(output.logprob_ids, all_.logprob_ids);
    Append(output.logprob_values, all_.logprob_values);
    EXPECT_LE(std::ssize(all_.ids), output.output_tokens);
    all_.width = std::max(all_.width, output.logprob_width);
    all_.end = output.end;
    all_.stop = output.stop;
    all_.stop_token = output.stop_token;
    all_.status = output.status;
    all_.message = output.message;
    all_.code = output.code;
    all_.parameter = output.parameter;
    all_.prompt_tokens = output.prompt_tokens;
    EXPECT_GE(output.output_tokens, all_.output_tokens);
    all_.output_tokens = output.output_tokens;
  }

  const Collected& all() const { return all_; }
  int64_t outputs() const { return outputs_; }

 private:
  template <typename T>
  void Append(std::span<const T> added, std::vector<T>& to) const {
    if (mode_ != OutputMode::kDelta) to.clear();
    to.insert(to.end(), added.begin(), added.end());
  }

  // Whole, once, and in front of all text.
  void AddPrompt(const PromptLogprobs& prompt) {
    EXPECT_TRUE(all_.text.empty()) << "the prompt's behind a text";
    EXPECT_TRUE(all_.ids.empty()) << "the prompt's behind a token";
    EXPECT_TRUE(all_.prompt_logprobs.empty()) << "the prompt's again";
    EXPECT_EQ(prompt.first_token, 1);
    EXPECT_EQ(prompt.ids.size(), prompt.ranks.size() * static_cast<size_t>(prompt.width));
    all_.prompt_logprobs.assign(prompt.logprobs.begin(), prompt.logprobs.end());
    all_.prompt_ranks.assign(prompt.ranks.begin(), prompt.ranks.end());
    all_.prompt_ids.assign(prompt.ids.begin(), prompt.ids.end());
    all_.prompt_values.assign(prompt.values.begin(), prompt.values.end());
  }

  OutputMode mode_;
  Collected all_;
  int64_t outputs_ = 0;
};

// The parameter that an Error names; empty: there was none.
template <typename Call>
std::string RefusedFor(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.parameter();
  }
  return "";
}

class Collectors {
 public:
  void Expect(RequestId request, OutputMode mode) {
    EXPECT_TRUE(all_.emplace(request.value, Collector(mode)).second) << "an id came twice";
  }
  void Add(std::span<const ClientOutput> outputs) {
    for (const ClientOutput& output : outputs) {
      const auto found = all_.find(output.request.value);
      ASSERT_NE(found, all_.end()) << "an output of no request";
      found->second.Add(output);
    }
  }
  const Collected& operator[](RequestId request) const { return all_.at(request.value).all(); }
  const Collector& collector(RequestId request) const { return all_.at(request.value); }
  bool HasEnded(RequestId request) const { return (*this)[request].end != GenerationEnd::kNone; }

 private:
  std::map<uint64_t, Collector> all_;
};

}  // namespace sluice::test
