// What a config.json leaves out, and what it spells the old way or the new way, is the same model:
// transformers 5 writes other fields than the files on the Hub have.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/model/bad_model.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

using Edits = std::vector<std::pair<std::string, std::string>>;

std::vector<float> HiddenOf(const FilesOfModel& files) {
  // Beyond every window.
  std::vector<int32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 97);
  return HiddenStates(OpenFiles(files), tokens);
}

void ExpectSameModel(const std::string& fixture, const Edits& one, const Edits& other) {
  FilesOfModel files = FilesOf(fixture);
  FilesOfModel same = files;
  for (const auto& [field, value] : one) files.config = WithValue(files.config, field, value);
  for (const auto& [field, value] : other) same.config = WithValue(same.config, field, value);
  ASSERT_NE(files.config, same.config);
  EXPECT_TRUE(SameSequence(HiddenOf(same), HiddenOf(files))) << fixture;
}

TEST(ConfigSpellings, ValuesThatAreLeftOutAreTheDefaults) {
  ExpectSameModel("llama2", {},
                  {{"num_key_value_heads", "5"},
                   {"head_dim", "10"},
                   {"rope_theta", "10000.0"},
                   {"rope_scaling", "null"},
                   {"tie_word_embeddings", "false"},
                   {"attention_bias", "false"},
                   {"mlp_bias", "false"}});
  ExpectSameModel("gemma2", {},
                  {{"layer_types", R"(["sliding_attention", "full_attention",)"
                                   R"( "sliding_attention", "full_attention"])"},
                   {"hidden_activation", "null"},
                   {"tie_word_embeddings", "true"}});
  ExpectSameModel(
      "qwen2_yarn", {},
      {{"rope_scaling", R"({"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,)"
                        R"( "original_max_position_embeddings": 64, "truncate": true})"}});
}

TEST(ConfigSpellings, AWindowOfNullIsNone) {
  ExpectSameModel("mistral", {{"sliding_window", "null"}}, {{"sliding_window", "256"}});
  ExpectSameModel("qwen2", {}, {{"use_sliding_window", "null"}});
  ExpectSameModel("qwen2", {}, {{"use_sliding_window", "true"}, {"max_window_layers", "2"}});
}

TEST(ConfigSpellings, OfRotaryAnglesAreTheSame) {
  ExpectSameModel("llama_linear", {},
                  {{"rope_scaling", R"({"rope_type": "linear", "factor": 4})"}});
  ExpectSameModel(
      "llama3", {},
      {{"rope_theta", "null"},
       {"rope_scaling", "null"},
       {"rope_parameters", R"({"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0,)"
                           R"( "low_freq_factor": 1.0, "high_freq_factor": 4.0,)"
                           R"( "original_max_position_embeddings": 64})"}});
  ExpectSameModel("qwen3", {}, {{"rope_parameters", "null"}, {"rope_theta", "1000000.0"}});
  ExpectSameModel("gemma3_text", {},
                  {{"rope_parameters", "null"},
                   {"layer_types", "null"},
                   {"sliding_window_pattern", "2"},
                   {"rope_theta", "1000000.0"},
                   {"rope_local_base_freq", "10000.0"},
                   {"rope_scaling", R"({"factor": 8.0, "rope_type": "linear"})"}});
}

// Tensors of models of text and images have been named two ways.
TEST(TensorNames, OfTheTextAreFoundUnderEitherPrefix) {
  const FilesOfModel files = FilesOf("gemma3");
  FilesOfModel renamed = files;
  std::vector<StoredTensor> tensors = ParseSafetensors(files.shards[0]);
  for (StoredTensor& tensor : tensors) {
    tensor.name = Replaced(tensor.name, "language_model.model.", "model.language_model.");
  }
  renamed.shards[0] = ToSafetensors(tensors);
  EXPECT_TRUE(SameSequence(HiddenOf(renamed), HiddenOf(files)));
}

}  // namespace
}  // namespace sluice::test
