// The cases of text_cases.h as one script that an engine runs, and what clients must get of each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sluice/script_runner.hpp"
#include "tests/link/collected.h"
#include "tests/link/text_cases.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {

// All cases in one vocabulary and one script: a case's tokens are those from its own place on.
struct TextScript {
  TextScript() {
    const auto add = [this](const TestToken& token) {
      if (ids.emplace(token.text, std::ssize(tokens)).second) tokens.push_back(token);
    };
    for (const char* const special : {kEndOfText, kStartOfTurn, kEndOfSentence}) {
      add(Special(special));
    }
    add(Added(" sp "));
    for (const TextCase& one : cases) {
      for (const std::string& token : one.tokens) {
        if (token != "<unknown>") add({token});
      }
      for (const std::string& token : one.prompt) add({token});
    }
    for (const TextCase& one : cases) begins.push_back(Append(one));
    // A place in the script is named by an id, so there must be that many.
    for (size_t i = 0; tokens.size() < script.size(); ++i) {
      add({"filler " + std::to_string(i)});
    }
    vocab = std::ssize(tokens) + 16;
    for (int32_t& id : script) {
      if (id < 0) id = static_cast<int32_t>(vocab) - 7;  // behind the tokenizer's last one
    }
  }

  int32_t Append(const TextCase& one) {
    const auto begin = static_cast<int32_t>(script.size());
    for (const std::string& token : one.tokens) {
      script.push_back(token == "<unknown>" ? -1 : ids.at(token));
    }
    return begin;
  }

  ClientRequest Request(size_t number, OutputMode mode) const {
    const TextCase& one = cases[number];
    ClientRequest request;
    request.prompt = {begins[number]};
    for (const std::string& token : one.prompt) request.prompt.push_back(ids.at(token));
    // An engine that does not see the stop goes on for a while, with other cases' tokens.
    const int64_t surplus = one.end == GenerationEnd::kLength || one.is_full ? 0 : 50;
    request.max_tokens = std::ssize(one.tokens) + surplus;
    request.params.logprobs = 1;
    request.params.min_tokens = one.min_tokens;
    for (const std::string& token : one.stop_tokens) {
      request.params.stop_token_ids.push_back(ids.at(token));
    }
    request.text = {.stops = one.stops,
                    .include_stop = one.include_stop,
                    .detokenizer = {.skip_special_tokens = one.skips_special},
                    .incomplete = one.incomplete};
    request.mode = mode;
    return request;
  }

  Collected Expected(size_t number) const {
    const TextCase& one = cases[number];
    Collected all;
    for (const std::string& delta : one.deltas) all.text += delta;
    if (one.deltas.empty() && one.end == GenerationEnd::kLength) {
      for (const std::string& token : one.tokens) all.text += token;
    }
    all.end = one.end;
    all.stop = one.stop;
    if (!one.stop_token.empty()) all.stop_token = ids.at(one.stop_token);
    all.prompt_tokens = std::ssize(one.prompt) + 1;
    all.output_tokens = one.output_tokens > 0 ? one.output_tokens : std::ssize(one.tokens);
    all.width = 2;
    for (int64_t i = 0; i < all.output_tokens; ++i) {
      const int32_t id = script[static_cast<size_t>(begins[number] + i)];
      all.ids.push_back(id);
      all.logprobs.push_back(ScriptLogprob(id));
      all.ranks.push_back(ScriptRank(id));
    }
    return all;
  }

  EngineInfo Info(const Tokenizer& tokenizer) const {
    EngineInfo info;
    info.model = "script";
    info.tokenizer_hash = TokenizerHash(tokenizer);
    info.end_tokens = {ids.at(kEndOfText)};
    info.has_text = true;
    return info;
  }

  std::vector<TextCase> cases = TextCases();
  std::vector<TestToken> tokens;
  std::map<std::string, int32_t> ids;
  std::vector<int32_t> script;
  std::vector<int32_t> begins;  // of each case
  int64_t vocab = 0;
};

}  // namespace sluice::test
