// The default model with grammars, an engine over it, and schemas with a check of each.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/checkpoint.hpp"
#include "sluice/default_model.hpp"
#include "sluice/engine.hpp"
#include "sluice/grammar_service.hpp"
#include "sluice/model_runner.hpp"
#include "sluice/runner_thread.hpp"
#include "tests/engine/engine_client.h"
#include "tests/grammar/grammar_fixture.h"

namespace sluice::test {

inline const Checkpoint& DefaultModel() {
  static const Checkpoint checkpoint = Checkpoint::FromFiles(DefaultModelFiles());
  return checkpoint;
}

inline std::unique_ptr<GrammarService> ServiceOf(const GrammarLibrary& library,
                                                 const GrammarServiceOptions& options = {}) {
  const Checkpoint& model = DefaultModel();
  return std::make_unique<GrammarService>(library, model.tokenizer(), model.end_tokens(),
                                          static_cast<int32_t>(model.vocab()), options);
}

struct GrammarEngine {
  GrammarEngine(GrammarService* service, int32_t steps_in_flight, bool has_thread,
                ModelRunnerOptions options = {.max_requests = 8})
      : model(DefaultModel(), options) {
    if (has_thread) thread = std::make_unique<RunnerThread>(model);
    StepRunner& runner = has_thread ? static_cast<StepRunner&>(*thread) : model;
    engine.emplace(runner, DefaultModel().tokenizer(),
                   EngineOptions{.steps_in_flight = steps_in_flight, .grammars = service});
    client.emplace(*engine, 1024);
  }

  ModelRunner model;
  std::unique_ptr<RunnerThread> thread;
  std::optional<Engine> engine;
  std::optional<EngineClient> client;
};

inline EngineRequest GrammarRequest(std::string schema, uint64_t seed = 1,
                                    int64_t max_tokens = 400) {
  EngineRequest request = MakeRequest(DefaultModel().tokenizer().Encode("Once upon a time"));
  request.params.seed = seed;
  request.max_tokens = max_tokens;
  request.grammar = {.kind = GrammarKind::kJsonSchema, .text = std::move(schema)};
  return request;
}

inline std::string TextOf(const Received& received) {
  std::vector<int32_t> ids = received.ids;
  if (received.end == GenerationEnd::kStopToken) ids.pop_back();
  return DefaultModel().tokenizer().Decode(ids);
}

struct CheckedSchema {
  const char* schema;
  bool (*matches)(simdjson::dom::element value);
};

namespace schemas {
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

inline size_t Length(std::string_view utf8) {
  return static_cast<size_t>(std::ranges::count_if(
      utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}
inline bool IsText(element value, size_t least, size_t most) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS && Length(text) >= least && Length(text) <= most;
}
inline bool IsWhole(element value, int64_t least, int64_t most) {
  int64_t number = 0;
  return value.get(number) == simdjson::SUCCESS && number >= least && number <= most;
}

inline bool Person(element value) {
  object o, inner;
  element name, age, kind, place;
  if (value.get(o) != simdjson::SUCCESS || o.size() != 4) return false;
  if (o["name"].get(name) || o["age"].get(age) || o["kind"].get(kind) || o["place"].get(place)) {
    return false;
  }
  std::string_view word;
  bool flag = false;
  return IsText(name, 1, 12) && IsWhole(age, 0, 120) && !kind.get(word) &&
         (word == "cat" || word == "dog") && !place.get(inner) && inner.size() == 1 &&
         !inner["near"].get(flag);
}
inline bool Numbers(element value) {
  array numbers;
  if (value.get(numbers) != simdjson::SUCCESS) return false;
  if (numbers.size() < 2 || numbers.size() > 5) return false;
  for (const element number : numbers) {
    if (!IsWhole(number, -7, 13)) return false;
  }
  return true;
}
inline bool Code(element value) {
  std::string_view text;
  if (value["code"].get(text) != simdjson::SUCCESS || text.size() != 7) return false;
  for (size_t i = 0; i < 7; ++i) {
    const bool is_right = i == 3  ? text[i] == '-'
                          : i < 3 ? text[i] >= 'A' && text[i] <= 'F'
                                  : text[i] >= '0' && text[i] <= '9';
    if (!is_right) return false;
  }
  return true;
}
inline bool Either(element value) {
  array list;
  object o;
  if (value.get(list) == simdjson::SUCCESS) {
    for (const element flag : list) {
      if (!flag.is_bool()) return false;
    }
    return list.size() <= 3;
  }
  element only;
  return value.get(o) == simdjson::SUCCESS && o.size() == 1 && !o["null"].get(only) &&
         only.is_null();
}
inline bool Tree(element value) {
  object o;
  if (value.get(o) != simdjson::SUCCESS) return false;
  element leaf, children;
  if (o["leaf"].get(leaf) || !IsWhole(leaf, 0, 9)) return false;
  if (o["children"].get(children)) return o.size() == 1;
  array list;
  if (children.get(list) || list.size() > 2) return false;
  return std::ranges::all_of(list, Tree);
}
inline bool Map(element value) {
  object o;
  if (value.get(o) != simdjson::SUCCESS || o.size() > 3) return false;
  return std::ranges::all_of(o, [](const auto& field) { return field.value.is_bool(); });
}
}  // namespace schemas

inline constexpr CheckedSchema kSchemas[] = {
    {R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":12},
         "age":{"type":"integer","minimum":0,"maximum":120},"kind":{"enum":["cat","dog"]},
         "place":{"type":"object","properties":{"near":{"type":"boolean"}},"required":["near"]}},
         "required":["name","age","kind","place"]})",
     schemas::Person},
    {R"({"type":"array","items":{"type":"integer","minimum":-7,"maximum":13},
         "minItems":2,"maxItems":5})",
     schemas::Numbers},
    {R"({"type":"object","properties":{"code":{"type":"string",
         "pattern":"^[A-F]{3}-[0-9]{3}$"}},"required":["code"]})",
     schemas::Code},
    {R"({"anyOf":[{"type":"array","items":{"type":"boolean"},"maxItems":3},
         {"type":"object","properties":{"null":{"type":"null"}},"required":["null"]}]})",
     schemas::Either},
    {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{
         "leaf":{"type":"integer","minimum":0,"maximum":9},
         "children":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},
         "required":["leaf"]}}})",
     schemas::Tree},
    {R"({"type":"object","additionalProperties":{"type":"boolean"},
         "propertyNames":{"type":"string","pattern":"^[a-d]{1,4}$"},"maxProperties":3})",
     schemas::Map},
};

inline void ExpectMatch(const CheckedSchema& schema, const Received& received) {
  static simdjson::dom::parser parser;
  const std::string text = TextOf(received);
  ASSERT_EQ(received.end, GenerationEnd::kStopToken)
      << Name(received.end) << ": " << received.message << " after " << text;
  simdjson::dom::element value;
  ASSERT_EQ(parser.parse(text).get(value), simdjson::SUCCESS) << text;
  ASSERT_TRUE(schema.matches(value)) << text << " of " << schema.schema;
}

// A schema of this many branches; the number makes it another one.
inline std::string WideSchema(int branches, int number) {
  std::string schema = R"({"anyOf":[)";
  for (int i = 0; i < branches; ++i) {
    if (i > 0) schema += ",";
    schema += R"({"type":"object","properties":{"field_)" + std::to_string(number) + "_" +
              std::to_string(i) + R"(":{"type":"integer"}}})";
  }
  return schema + "]}";
}

}  // namespace sluice::test
