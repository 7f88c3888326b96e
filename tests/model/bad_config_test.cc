// A config.json that says what no model of ours is: an Error naming the field, its value and what
// is allowed, whatever the weights are.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/bad_model.h"

namespace sluice::test {
namespace {

// A field of a fixture's config.json, the value that it gets, what the Error says is allowed and,
// where that is not the field with its value, what it says is wrong.
struct BadField {
  const char* fixture;
  std::string field;
  std::string value;
  std::string allowed;
  std::string wrong = {};
};

void ExpectErrors(const std::vector<BadField>& cases) {
  for (const BadField& bad : cases) {
    FilesOfModel files = FilesOf(bad.fixture);
    files.config = WithValue(files.config, bad.field, bad.value);
    const std::string wrong = bad.wrong.empty() ? bad.field + " = " + bad.value : bad.wrong;
    EXPECT_EQ(MessageOf(files), "config.json: " + wrong + " is not allowed: " + bad.allowed);
  }
}

constexpr const char* kHuge = "1152921504606846976";  // 2^60

TEST(BadConfig, SizesOutOfRange) {
  ExpectErrors({
      {"llama3", "num_hidden_layers", kHuge, "[1, 1024]"},
      {"llama3", "num_hidden_layers", "0", "[1, 1024]"},
      {"llama3", "num_hidden_layers", "-1", "[1, 1024]"},
      {"llama3", "num_hidden_layers", "1.5", "[1, 1024]"},
      {"llama3", "num_hidden_layers", "\"2\"", "[1, 1024]"},
      {"llama3", "num_hidden_layers", "null", "[1, 1024]", "num_hidden_layers = missing"},
      {"llama3", "vocab_size", "0", "[1, 8388608]"},
      {"llama3", "vocab_size", "-5", "[1, 8388608]"},
      {"llama3", "vocab_size", "1099511627776", "[1, 8388608]"},
      {"llama3", "hidden_size", "0", "[1, 131072]"},
      {"llama3", "hidden_size", "-64", "[1, 131072]"},
      {"llama3", "hidden_size", "1099511627776", "[1, 131072]"},
      {"llama3", "hidden_size", "66", "a multiple of num_attention_heads, 4"},
      {"llama3", "hidden_size", "[64]", "[1, 131072]"},
      {"llama3", "intermediate_size", "0", "[1, 131072]"},
      {"llama3", "intermediate_size", "1099511627776", "[1, 131072]"},
      {"llama3", "num_attention_heads", "0", "[1, 131072]"},
      {"llama3", "num_attention_heads", "-4", "[1, 131072]"},
      {"llama3", "num_attention_heads", "5", "a divisor of num_attention_heads, 5",
       "num_key_value_heads = 2"},
      {"llama3", "num_key_value_heads", "0", "[1, 4]"},
      {"llama3", "num_key_value_heads", "3", "a divisor of num_attention_heads, 4"},
      {"llama3", "num_key_value_heads", "8", "[1, 4]"},
      {"llama3", "head_dim", "0", "[2, 1024]"},
      {"llama3", "head_dim", "15", "an even number"},
      {"llama3", "head_dim", "-16", "[2, 1024]"},
      {"llama3", "head_dim", "1099511627776", "[2, 1024]"},
      {"llama3", "max_position_embeddings", "0", "[1, 16777216]"},
      {"llama3", "max_position_embeddings", kHuge, "[1, 16777216]"},
      {"mistral", "sliding_window", "0", "[1, 16777216]"},
      {"mistral", "sliding_window", "-24", "[1, 16777216]"},
      {"gemma3_text", "layer_types", "[\"full_attention\"]", "one entry a layer"},
      {"gemma3_text", "layer_types",
       "[\"full_attention\", \"full_attention\", \"full_attention\", \"linear_attention\"]",
       "sliding_attention, full_attention", "layer_types = \"linear_attention\""},
      {"qwen2_yarn", "max_window_layers", "-1", "[0, 1024]"},
  });
}

TEST(BadConfig, NumbersThatNoModelHas) {
  ExpectErrors({
      {"llama3", "rms_norm_eps", "-1", "[0, 1]"},
      {"llama3", "rms_norm_eps", "\"small\"", "[0, 1]"},
      {"llama3", "rope_theta", "0", "[1.000001, 1e+12]"},
      {"llama3", "rope_theta", "-10000.0", "[1.000001, 1e+12]"},
      {"llama3", "rope_theta", "1000000000000000", "[1.000001, 1e+12]"},
      {"llama3", "rope_theta", "\"10000\"", "[1.000001, 1e+12]"},
      {"gemma2", "query_pre_attn_scalar", "0", "[0.001, 1e+06]"},
      {"gemma2", "query_pre_attn_scalar", "-12", "[0.001, 1e+06]"},
      {"gemma2", "attn_logit_softcapping", "-2.0", "[0, 1e+06]"},
      {"gemma2", "final_logit_softcapping", "\"no\"", "[0, 1e+06]"},
      {"llama3", "eos_token_id", "160", "[0, 159]"},
      {"llama3", "eos_token_id", "-1", "[0, 159]"},
      {"llama3", "eos_token_id", "[2, \"</s>\"]", "[0, 159]", "eos_token_id = \"</s>\""},
  });
}

TEST(BadConfig, ScalingsOfPositionsThatAreNotThere) {
  ExpectErrors({
      {"llama3", "rope_scaling", "\"llama3\"", "an object"},
      {"llama3", "rope_scaling", "{\"rope_type\": \"longrope\"}", "default, linear, llama3, yarn",
       "rope_scaling: rope_type = \"longrope\""},
      {"llama3", "rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2.0}",
       "default, linear, llama3, yarn", "rope_scaling: rope_type = \"dynamic\""},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\"}", "[1, 1e+06]",
       "rope_scaling: factor = missing"},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 0}", "[1, 1e+06]",
       "rope_scaling: factor = 0"},
      {"llama3", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": -8.0}", "[1, 1e+06]",
       "rope_scaling: factor = -8.0"},
      {"llama3", "rope_scaling",
       "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4}",
       "more than low_freq_factor, 4", "rope_scaling: high_freq_factor = 4"},
      {"llama3", "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}", "[0.001, 1e+06]",
       "rope_scaling: low_freq_factor = missing"},
      {"llama3", "rope_scaling",
       "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 0}",
       "[1, 1e+08]", "rope_scaling: original_max_position_embeddings = 0"},
      {"llama3", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}",
       "[0.001, 1e+06]", "rope_scaling: beta_fast = 0"},
      {"qwen3", "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": -1}",
       "[1.000001, 1e+12]", "rope_parameters: rope_theta = -1"},
      {"qwen3", "rope_parameters",
       "{\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}", "1",
       "rope_parameters: partial_rotary_factor = 0.5"},
      {"gemma3_text", "rope_parameters", "{\"full_attention\": 3}", "an object",
       "rope_parameters: full_attention = 3"},
  });
}

// Weights in int8 by row, and activations as given.
std::string Int8Config(const std::string& activations) {
  return "{\"quant_method\": \"compressed-tensors\", \"format\": \"int-quantized\", "
         "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 8, \"symmetric\": true, "
         "\"strategy\": \"channel\"}, \"input_activations\": " +
         activations + "}}}";
}

TEST(BadConfig, ModelsThatAreNotRead) {
  ExpectErrors({
      {"llama3", "model_type", "\"mamba\"",
       "llama, mistral, qwen2, qwen3, gemma2, gemma3_text, gemma3"},
      {"llama3", "model_type", "null", "llama, mistral, qwen2, qwen3, gemma2, gemma3_text, gemma3",
       "model_type = \"\""},
      {"llama3", "model_type", "7", "a string"},
      {"llama3", "hidden_act", "\"relu2\"", "silu, gelu_pytorch_tanh"},
      {"gemma2", "hidden_activation", "\"gelu\"", "silu, gelu_pytorch_tanh"},
      {"llama3", "tie_word_embeddings", "\"yes\"", "true or false"},
      {"llama3", "attention_bias", "1", "true or false"},
      {"gemma3_text", "use_bidirectional_attention", "true", "false"},
      {"llama3", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}",
       "compressed-tensors", "quantization_config: quant_method = \"gptq\""},
      {"llama3", "quantization_config", "{\"load_in_8bit\": true}", "compressed-tensors",
       "quantization_config: quant_method = \"\""},
      {"llama3", "quantization_config",
       "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}",
       "int-quantized: 8 bits, symmetric, weights by channel",
       "quantization_config: format = \"pack-quantized\""},
      {"llama3", "quantization_config",
       Int8Config("{\"num_bits\": 8, \"symmetric\": true, \"strategy\": \"token\", "
                  "\"dynamic\": false}"),
       "true", "quantization_config: config_groups: group_0: input_activations: dynamic = false"},
      {"llama3", "quantization_config",
       Int8Config("{\"num_bits\": 8, \"symmetric\": true, \"strategy\": \"tensor\", "
                  "\"dynamic\": true}"),
       "\"token\"",
       "quantization_config: config_groups: group_0: input_activations: strategy = \"tensor\""},
      {"llama3", "quantization_config", Int8Config("null"), "8 bits, dynamic, by token",
       "quantization_config: config_groups: group_0: input_activations = missing"},
      {"llama3", "quantization_config", "4", "an object"},
      {"gemma3", "text_config", "[]", "an object"},
      {"gemma3", "text_config", "{\"hidden_size\": 32}", "[1, 1024]",
       "text_config: num_hidden_layers = missing"},
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
