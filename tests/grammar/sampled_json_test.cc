// Random logits, the mask of a schema, and Sampler: what comes out is JSON of that schema.
#include <simdjson.h>

#include <random>
#include <set>

#include "sluice/checkpoint.hpp"
#include "sluice/default_model.hpp"
#include "sluice/model_text.hpp"
#include "sluice/sampler.hpp"
#include "tests/grammar/grammar_fixture.h"

namespace sluice {
namespace {

using namespace test;

constexpr std::string_view kSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 8},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["a", "b", null]}, "maxItems": 3},
    "place": {"$ref": "#/$defs/place"}
  },
  "required": ["name", "age", "place"],
  "$defs": {
    "place": {
      "type": "object",
      "properties": {"x": {"type": "boolean"}, "y": {"type": "string", "pattern": "^[a-c]{2}$"}},
      "required": ["x"]
    }
  }
})";

void ExpectObject(simdjson::dom::parser& parser, const std::string& text) {
  simdjson::dom::object object;
  ASSERT_EQ(parser.parse(text).get(object), simdjson::SUCCESS) << text;
  std::string_view name;
  int64_t age = -1;
  bool x = false;
  ASSERT_EQ(object["name"].get(name), simdjson::SUCCESS) << text;
  ASSERT_FALSE(name.empty()) << text;
  ASSERT_EQ(object["age"].get(age), simdjson::SUCCESS) << text;
  ASSERT_TRUE(age >= 0 && age <= 120) << text;
  ASSERT_EQ(object["place"]["x"].get(x), simdjson::SUCCESS) << text;
}

TEST(SampledJson, OfRandomLogitsParses) {
  SLUICE_NEEDS_GRAMMAR(library);
  const CheckpointFiles files = DefaultModelFiles();
  const ModelText model = ModelText::FromFiles(files.text);
  const auto vocab = static_cast<int32_t>(model.tokenizer().size());
  // [structured_output]
  GrammarCompiler compiler(*library, model.tokenizer(), model.end_tokens(), vocab);
  const Grammar grammar = compiler.Compile(GrammarKind::kJsonSchema, kSchema);
  // [structured_output]

  Sampler sampler({.vocab = vocab, .max_requests = 1});
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> logits(static_cast<size_t>(vocab));
  std::vector<int32_t> words(static_cast<size_t>(vocab + 31) / 32);
  simdjson::dom::parser parser;
  std::set<std::string> distinct;
  for (int i = 0; i < 1000; ++i) {
    Request request;
    request.params.seed = static_cast<uint64_t>(i + 1);
    const RequestHandle handle = sampler.Add(request);
    for (float& logit : logits) logit = uniform(random);
    std::vector<int32_t> tokens;
    // [structured_output_loop]
    GrammarMatcher matcher(grammar);
    while (true) {
      const MaskState state = matcher.FillMask(words);
      ASSERT_EQ(state, MaskState::kSome);
      StepRequest step = {.request = handle, .bitmask = words};
      TokenResult result;
      int32_t emitted = 0;
      sampler.Step(
          {.logits = {logits.data(), 1, vocab, vocab, DType::kF32}, .requests = {&step, 1}},
          {.tokens = {&result, 1}, .emitted = {&emitted, 1}});
      ASSERT_TRUE(matcher.Accept(result.id));  // a masked draw is one that may come
      if (matcher.IsTerminated()) break;
      tokens.push_back(result.id);
    }
    // [structured_output_loop]
    const std::string text = model.tokenizer().Decode(tokens);
    distinct.insert(text);
    ExpectObject(parser, text);
    if (HasFatalFailure()) return;
    sampler.Remove(handle);
  }
  EXPECT_GT(distinct.size(), 900U);
}

}  // namespace
}  // namespace sluice
