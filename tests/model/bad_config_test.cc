// A config.json that says what no model of ours is: an Error naming the field, its value and what
// is allowed, whatever the weights are.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/bad_model.h"

namespace sluice::test {
namespace {

// A field of a fixture's config.json, the value that it gets, and what the Error says.
struct BadField {
  const char* fixture;
  const char* field;
  const char* value;
  const char* message;
};

std::string FieldMessage(const BadField& bad) {
  FilesOfModel files = FilesOf(bad.fixture);
  files.config = WithValue(files.config, bad.field, bad.value);
  return MessageOf(files);
}

void ExpectMessages(const std::vector<BadField>& cases) {
  for (const BadField& bad : cases) {
    EXPECT_EQ(FieldMessage(bad), bad.message) << bad.field << ": " << bad.value;
  }
}

constexpr const char* kHuge = "1152921504606846976";  // 2^60

TEST(BadConfig, SizesOutOfRange) {
  ExpectMessages({
      {"llama3", "num_hidden_layers", kHuge, ""},
      {"llama3", "num_hidden_layers", "0", ""},
      {"llama3", "num_hidden_layers", "-1", ""},
      {"llama3", "num_hidden_layers", "1.5", ""},
      {"llama3", "num_hidden_layers", "\"2\"", ""},
      {"llama3", "num_hidden_layers", "null", ""},
      {"llama3", "num_hidden_layers", "99999999999999999999", ""},
      {"llama3", "vocab_size", "0", ""},
      {"llama3", "vocab_size", "-5", ""},
      {"llama3", "vocab_size", "1099511627776", ""},
      {"llama3", "hidden_size", "0", ""},
      {"llama3", "hidden_size", "-64", ""},
      {"llama3", "hidden_size", "1099511627776", ""},
      {"llama3", "hidden_size", "66", ""},
      {"llama3", "hidden_size", "[64]", ""},
      {"llama3", "intermediate_size", "0", ""},
      {"llama3", "intermediate_size", "1099511627776", ""},
      {"llama3", "num_attention_heads", "0", ""},
      {"llama3", "num_attention_heads", "-4", ""},
      {"llama3", "num_attention_heads", "5", ""},
      {"llama3", "num_key_value_heads", "0", ""},
      {"llama3", "num_key_value_heads", "3", ""},
      {"llama3", "num_key_value_heads", "8", ""},
      {"llama3", "head_dim", "0", ""},
      {"llama3", "head_dim", "15", ""},
      {"llama3", "head_dim", "-16", ""},
      {"llama3", "head_dim", "1099511627776", ""},
      {"llama3", "max_position_embeddings", "0", ""},
      {"llama3", "max_position_embeddings", kHuge, ""},
      {"mistral", "sliding_window", "0", ""},
      {"mistral", "sliding_window", "-24", ""},
      {"gemma3_text", "layer_types", "[\"full_attention\"]", ""},
      {"gemma3_text", "layer_types",
       "[\"full_attention\", \"full_attention\", \"full_attention\", \"linear_attention\"]", ""},
      {"qwen2_yarn", "max_window_layers", "-1", ""},
  });
}

TEST(BadConfig, NumbersThatNoModelHas) {
  ExpectMessages({
      {"llama3", "rms_norm_eps", "-1e-5", ""},
      {"llama3", "rms_norm_eps", "\"small\"", ""},
      {"llama3", "rope_theta", "0", ""},
      {"llama3", "rope_theta", "-10000.0", ""},
      {"llama3", "rope_theta", "1e300", ""},
      {"llama3", "rope_theta", "\"10000\"", ""},
      {"gemma2", "query_pre_attn_scalar", "0", ""},
      {"gemma2", "query_pre_attn_scalar", "-12", ""},
      {"gemma2", "attn_logit_softcapping", "-2.0", ""},
      {"gemma2", "final_logit_softcapping", "\"no\"", ""},
      {"llama3", "eos_token_id", "160", ""},
      {"llama3", "eos_token_id", "-1", ""},
      {"llama3", "eos_token_id", "[2, \"</s>\"]", ""},
  });
}

TEST(BadConfig, ScalingsOfPositionsThatAreNotThere) {
  ExpectMessages({
      {"llama3", "rope_scaling", "\"llama3\"", ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"longrope\"}", ""},
      {"llama3", "rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2.0}", ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\"}", ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 0}", ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": -8.0}", ""},
      {"llama3", "rope_scaling",
       "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4}",
       ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}", ""},
      {"llama3", "rope_scaling",
       "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 0}", ""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}", ""},
      {"qwen3", "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": -1}", ""},
      {"qwen3", "rope_parameters",
       "{\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}", ""},
      {"gemma3_text", "rope_parameters", "{\"full_attention\": 3}", ""},
  });
}

TEST(BadConfig, ModelsThatAreNotRead) {
  ExpectMessages({
      {"llama3", "model_type", "\"mamba\"", ""},
      {"llama3", "model_type", "null", ""},
      {"llama3", "model_type", "7", ""},
      {"llama3", "hidden_act", "\"relu2\"", ""},
      {"gemma2", "hidden_activation", "\"gelu\"", ""},
      {"llama3", "tie_word_embeddings", "\"yes\"", ""},
      {"llama3", "attention_bias", "1", ""},
      {"gemma3_text", "use_bidirectional_attention", "true", ""},
      {"llama3", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}", ""},
      {"llama3", "quantization_config", "{\"load_in_8bit\": true}", ""},
      {"llama3", "quantization_config",
       "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}", ""},
      {"llama3", "quantization_config", "4", ""},
      {"gemma3", "text_config", "[]", ""},
      {"gemma3", "text_config", "{\"hidden_size\": 32}", ""},
  });
}

TEST(BadConfig, FieldsThatMustBeThere) {
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size",
                            "num_attention_heads", "max_position_embeddings", "model_type"}) {
    FilesOfModel files = FilesOf("llama3");
    files.config = WithoutKey(files.config, field);
    const std::string message = MessageOf(files);
    EXPECT_NE(message.find(std::string("config.json: ") + field + " = "), std::string::npos)
        << message;
  }
}

TEST(BadConfig, TextThatIsNoObject) {
  const std::string good = FilesOf("llama3").config;
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{}{}"), good.substr(0, good.size() / 2), "{\"a\": " + deep + "}",
        WithValue(good, "rope_theta", "NaN"), WithValue(good, "rope_theta", "1e999"),
        "\xff" + good}) {
    FilesOfModel files = FilesOf("llama3");
    files.config = text;
    const std::string message = MessageOf(files);
    EXPECT_EQ(message.find("config.json = malformed ("), 0u) << message;
    EXPECT_NE(message.find(") is not allowed: one JSON object"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sluice::test
