// Weights in eight bits: rounded on loading, or stored as compressed-tensors does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "semantics/widen.h"
#include "tests/model/bad_model.h"
#include "tests/model/fixture.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

constexpr const char* kStoredAsInt8 =
    R"({"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"],
          "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
          "input_activations": {"num_bits": 8, "symmetric": true, "strategy": "token",
                                "dynamic": true}}}})";

std::vector<float> ValuesOf(const StoredTensor& tensor) {
  const DType dtype = tensor.dtype == "F32"    ? DType::kF32
                      : tensor.dtype == "BF16" ? DType::kBf16
                                               : DType::kF16;
  std::vector<float> values(tensor.data.size() / SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = semantics::Load(tensor.data.data(), dtype, static_cast<int64_t>(i));
  }
  return values;
}

// The matrix in eight bits, and behind it its scales.
void AppendAsInt8(const StoredTensor& tensor, std::vector<StoredTensor>& out) {
  const size_t columns = static_cast<size_t>(tensor.shape[1]);
  const std::vector<float> values = ValuesOf(tensor);
  std::vector<int8_t> codes(values.size());
  std::vector<float> scales(values.size() / columns);
  for (size_t row = 0; row < scales.size(); ++row) {
    const float* from = values.data() + row * columns;
    float largest = 0.0f;
    for (size_t i = 0; i < columns; ++i) largest = std::max(largest, std::fabs(from[i]));
    scales[row] = largest / 127.0f;
    for (size_t i = 0; i < columns; ++i) {
      codes[row * columns + i] = static_cast<int8_t>(std::nearbyint(from[i] * (127.0f / largest)));
    }
  }
  StoredTensor matrix{tensor.name, "I8", tensor.shape, {}};
  matrix.SetValues(codes);
  StoredTensor scale{tensor.name + "_scale", "F32", {tensor.shape[0], 1}, {}};
  scale.SetValues(scales);
  out.push_back(std::move(matrix));
  out.push_back(std::move(scale));
}

class Int8Weights : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Int8Weights, testing::ValuesIn(kFixtures),
                         [](const auto& test) { return std::string(test.param); });

// The root mean square of what the logits move by, in terms of their own. A weight moves by up to
// half a step, 1 / 127 of its row's largest, and so does what it is multiplied with: 0.8 % of a
// product's deviation, for each of a layer's seven products, and random weights pass all of it on.
// The fixtures move by 4 to 8 %, and always by the same. With another row's scales it is all of it.
constexpr double kTolerance = 0.1;

TEST_P(Int8Weights, GiveLogitsNearThoseOfTheFloats) {
  const std::vector<int32_t> tokens = ExpectedOf(GetParam()).prompt;
  const Model floats = OpenFixture(GetParam());
  const Model rounded = OpenFixture(GetParam(), WeightFormat::kInt8);
  const std::vector<float> a = LogitsOf(floats, HiddenStates(floats, tokens), Backend::kRef);
  const std::vector<float> b = LogitsOf(rounded, HiddenStates(rounded, tokens), Backend::kRef);
  double squares = 0.0;
  double differences = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += static_cast<double>(a[i]) * a[i];
    differences += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  const double relative = std::sqrt(differences / squares);
  EXPECT_LT(relative, kTolerance);
  EXPECT_GT(relative, 1e-4) << "nothing was rounded";
  RecordProperty("relative_difference", std::to_string(relative));
}

TEST_P(Int8Weights, TakeAByteEach) {
  const ModelInfo floats = OpenFixture(GetParam()).info();
  const ModelInfo rounded = OpenFixture(GetParam(), WeightFormat::kInt8).info();
  EXPECT_EQ(rounded.parameters, floats.parameters);
  EXPECT_LT(rounded.weight_bytes, floats.weight_bytes);
}

// What a file stores in eight bits is what rounding on loading makes.
TEST(StoredInt8, HasTheBitsOfRoundingOnLoading) {
  FilesOfModel files = FilesOf("llama3");
  files.config = WithValue(files.config, "quantization_config", kStoredAsInt8);
  std::vector<StoredTensor> stored;
  for (const StoredTensor& tensor : ParseSafetensors(files.shards[0])) {
    if (tensor.name.find("_proj.weight") == std::string::npos) {
      stored.push_back(tensor);
    } else {
      AppendAsInt8(tensor, stored);
    }
  }
  files.shards[0] = ToSafetensors(stored);
  const Model model = OpenFiles(files);
  const Model rounded = OpenFixture("llama3", WeightFormat::kInt8);
  EXPECT_EQ(model.info().parameters, rounded.info().parameters);
  EXPECT_EQ(model.info().weight_bytes, rounded.info().weight_bytes);
  const std::vector<int32_t> tokens = ExpectedOf("llama3").prompt;
  const std::vector<float> expected = HiddenStates(rounded, tokens);
  for (const Backend backend : AvailableBackends()) {
    EXPECT_TRUE(SameSequence(HiddenStates(model, tokens, backend), expected));
  }
}

// Embeddings and head in eight bits are the floats that the products of codes and scales are.
TEST(StoredInt8, EmbeddingsAndHeadAreTheirProducts) {
  for (const bool has_powers_of_two : {true, false}) {
    FilesOfModel files = FilesOf("llama3");
    std::vector<StoredTensor> stored;
    std::vector<StoredTensor> products;
    for (const StoredTensor& tensor : ParseSafetensors(files.shards[0])) {
      const bool is_table =
          tensor.name == "lm_head.weight" || tensor.name.ends_with("tokens.weight");
      if (!is_table) {
        stored.push_back(tensor);
        products.push_back(tensor);
        continue;
      }
      AppendAsInt8(tensor, stored);
      std::vector<float> scales = stored.back().Values<float>();
      const std::vector<int8_t> codes = stored[stored.size() - 2].Values<int8_t>();
      for (float& scale : scales) {
        if (has_powers_of_two) scale = std::exp2(std::round(std::log2(scale)));
      }
      stored.back().SetValues(scales);
      std::vector<float> values(codes.size());
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(codes[i]) * scales[i / static_cast<size_t>(tensor.shape[1])];
      }
      products.push_back({tensor.name, "F32", tensor.shape, {}});
      products.back().SetValues(values);
    }
    const FilesOfModel files_of_products = {files.config, {ToSafetensors(products)}};
    const Model expected = OpenFiles(files_of_products);
    files.shards[0] = ToSafetensors(stored);
    files.config = WithValue(files.config, "quantization_config", kStoredAsInt8);
    const Model model = OpenFiles(files);
    const std::vector<int32_t> tokens = ExpectedOf("llama3").prompt;
    const std::vector<float> hidden = HiddenStates(model, tokens);
    EXPECT_TRUE(SameSequence(hidden, HiddenStates(expected, tokens)));
    EXPECT_TRUE(SameSequence(LogitsOf(model, hidden, Backend::kRef),
                             LogitsOf(expected, hidden, Backend::kRef)));
  }
}

TEST(StoredInt8, BadScalesAreErrors) {
  const std::string matrix = "model.layers.0.mlp.down_proj.";
  struct {
    std::function<void(StoredTensor&)> spoil;
    const char* message;
  } const cases[] = {
      {[](StoredTensor& scale) { scale.name = "other"; },
       "weight = dtype I8 is not allowed: F32, BF16, F16, or I8 with a weight_scale"},
      {[](StoredTensor& scale) { scale.shape = {1, 64}; },
       "weight_scale = shape [1, 64] is not allowed: [64, 1]"},
      {[](StoredTensor& scale) { scale.dtype = "I32"; },
       "weight_scale = dtype I32 is not allowed: F32, BF16, F16, or I8 with a weight_scale"},
  };
  for (const auto& [spoil, message] : cases) {
    FilesOfModel files = FilesOf("llama3");
    files.config = WithValue(files.config, "quantization_config", kStoredAsInt8);
    std::vector<StoredTensor> stored;
    for (const StoredTensor& tensor : ParseSafetensors(files.shards[0])) {
      if (tensor.name == matrix + "weight") {
        AppendAsInt8(tensor, stored);
        spoil(stored.back());
      } else {
        stored.push_back(tensor);
      }
    }
    files.shards[0] = ToSafetensors(stored);
    EXPECT_EQ(MessageOf(files), "safetensors[0]: " + matrix + message);
  }
}

// Rows of zeros, and rows that are not finite, which give NaN where they are used.
TEST(Int8Rows, OfZerosAndOfNanAreRounded) {
  for (const bool is_nan : {false, true}) {
    FilesOfModel files = FilesOf("llama2");
    std::vector<StoredTensor> tensors = ParseSafetensors(files.shards[0]);
    for (StoredTensor& tensor : tensors) {
      if (tensor.name != "model.layers.1.mlp.down_proj.weight") continue;
      std::vector<float> values = tensor.Values<float>();
      const size_t columns = static_cast<size_t>(tensor.shape[1]);
      std::fill_n(values.begin(), columns, is_nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
      tensor.SetValues(values);
    }
    files.shards[0] = ToSafetensors(tensors);
    const Model model = OpenFiles(files, {.weights = WeightFormat::kInt8});
    const std::vector<int32_t> tokens = {1, 2, 3};
    const std::vector<float> expected = HiddenStates(model, tokens);
    EXPECT_EQ(std::isnan(expected[0]), is_nan);
    for (const Backend backend : AvailableBackends()) {
      EXPECT_TRUE(SameSequence(HiddenStates(model, tokens, backend), expected));
    }
  }
}

}  // namespace
}  // namespace sluice::test
