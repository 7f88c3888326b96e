// Files of weights that lie: an Error naming the file, the tensor and what was expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/model/bad_model.h"

namespace sluice::test {
namespace {

constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";  // [72, 64] of BF16

class BadWeights : public testing::Test {
 protected:
  BadWeights() : files_(FilesOf("llama3")), tensors_(ParseSafetensors(files_.shards[0])) {}

  StoredTensor& Up() {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [](const StoredTensor& tensor) { return tensor.name == kUp; });
  }
  // What is said of the model with these bytes for its weights.
  std::string MessageWith(FileBytes shard) const {
    FilesOfModel files = files_;
    files.shards = {std::move(shard)};
    return MessageOf(files);
  }

  FilesOfModel files_;
  std::vector<StoredTensor> tensors_;
};

TEST_F(BadWeights, TakenApartAndPutTogetherTheModelIsTheSame) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const std::vector<float> expected = HiddenStates(OpenFixture("llama3"), tokens);
  std::reverse(tensors_.begin(), tensors_.end());
  files_.shards = {ToSafetensors(tensors_)};
  EXPECT_EQ(HiddenStates(OpenFiles(files_), tokens), expected);

  // At an odd address.
  FileBytes shifted(1);
  shifted.insert(shifted.end(), files_.shards[0].begin(), files_.shards[0].end());
  const std::span<const std::byte> odd = std::span(shifted).subspan(1);
  EXPECT_EQ(HiddenStates(Model::FromFiles({files_.config, {&odd, 1}}), tokens), expected);
}

TEST_F(BadWeights, TensorsThatAreNotWhatTheConfigAsksFor) {
  struct {
    std::function<void(StoredTensor&)> spoil;
    const char* message;
  } const cases[] = {
      {[](StoredTensor& t) { t.name = "other"; },
       "safetensors: model.layers.1.mlp.up_proj.weight = missing is not allowed: a tensor of shape "
       "[72, 64]"},
      {[](StoredTensor& t) { std::swap(t.shape[0], t.shape[1]); },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = shape [64, 72] is not allowed: [72, "
       "64]"},
      {[](StoredTensor& t) { t.shape = {72 * 64}; },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = shape [4608] is not allowed: [72, 64]"},
      {[](StoredTensor& t) { t.shape = {72, 64, 1}; },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = shape [72, 64, 1] is not allowed: [72, "
       "64]"},
      {[](StoredTensor& t) {
         t.shape = {};
         t.data.resize(2);
       },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = shape [] is not allowed: [72, 64]"},
      {[](StoredTensor& t) {
         t.shape = {0, 64};
         t.data.clear();
       },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = shape [0, 64] is not allowed: [72, "
       "64]"},
      {[](StoredTensor& t) { t.dtype = "I16"; },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = dtype I16 is not allowed: F32, BF16, "
       "F16"},
      {[](StoredTensor& t) {
         t.dtype = "I64";
         t.data.resize(72 * 64 * 8);
       },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = dtype I64 is not allowed: F32, BF16, "
       "F16"},
      {[](StoredTensor& t) {
         t.dtype = "F64";
         t.data.resize(72 * 64 * 8);
       },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = dtype F64 is not allowed: F32, BF16, "
       "F16"},
      {[](StoredTensor& t) {
         t.dtype = "I8";
         t.data.resize(72 * 64);
       },
       "safetensors[0]: model.layers.1.mlp.up_proj.weight = dtype I8 is not allowed: F32, BF16, "
       "F16"},
  };
  for (const auto& [spoil, message] : cases) {
    std::vector<StoredTensor> tensors = tensors_;
    spoil(Up());
    EXPECT_EQ(MessageWith(ToSafetensors(tensors_)), message);
    tensors_ = tensors;
  }
}

TEST_F(BadWeights, EveryTensorIsNeeded) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<StoredTensor> without = tensors_;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string message = MessageWith(ToSafetensors(without));
    EXPECT_EQ(message.find("safetensors: " + tensors_[i].name + " = missing is not allowed: "), 0u)
        << message;
  }
}

// A header with one entry, before 8 bytes of data.
TEST_F(BadWeights, EntriesThatDoNotFitTheFile) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& begin, const std::string& end) {
    return "{" + HeaderEntry("t", dtype, shape, begin, end) + "}";
  };
  struct {
    std::string header;
    const char* message;
  } const cases[] = {
      {entry("F32", "2", "0", "16"),
       "safetensors[0]: t = data_offsets [0, 16] is not allowed: ascending, within the file's 8 "
       "bytes of data"},
      {entry("F32", "2", "8", "16"),
       "safetensors[0]: t = data_offsets [8, 16] is not allowed: ascending, within the file's 8 "
       "bytes of data"},
      {entry("F32", "2", "8", "0"),
       "safetensors[0]: t = data_offsets [8, 0] is not allowed: ascending, within the file's 8 "
       "bytes of data"},
      {entry("F32", "2", "-8", "0"),
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {entry("F32", "2", "0", "18446744073709551615"),
       "safetensors[0]: t = data_offsets [0, 18446744073709551615] is not allowed: ascending, "
       "within the file's 8 bytes of data"},
      {entry("F32", "2", "0", "8.0"),
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {entry("F32", "3", "0", "8"),
       "safetensors[0]: t = shape [3] of F32 is not allowed: the 8 bytes of its data_offsets"},
      {entry("F32", "1", "0", "8"),
       "safetensors[0]: t = shape [1] of F32 is not allowed: the 8 bytes of its data_offsets"},
      {entry("F32", "-2", "0", "8"),
       "safetensors[0]: t = shape [-2] of F32 is not allowed: the 8 bytes of its data_offsets"},
      {entry("F32", "1099511627776,1099511627776", "0", "8"),
       "safetensors[0]: t = shape [1099511627776,1099511627776] of F32 is not allowed: the 8 bytes "
       "of its data_offsets"},
      {entry("F32", "4611686018427387904,1", "0", "0"),
       "safetensors[0]: t = shape [4611686018427387904,1] of F32 is not allowed: the 0 bytes of "
       "its data_offsets"},
      {entry("F32", "2,1,1,1,1,1,1,1,1,1", "0", "8"),
       "safetensors[0]: t = shape [2,1,1,1,1,1,1,1,1,1] of F32 is not allowed: the 8 bytes of its "
       "data_offsets"},
      {entry("F32", "\"2\"", "0", "8"),
       "safetensors[0]: t = shape [\"2\"] of F32 is not allowed: the 8 bytes of its data_offsets"},
      {entry("F33", "2", "0", "8"),
       "safetensors[0]: t = dtype \"F33\" is not allowed: a known dtype"},
      {entry("F32", "1", "4", "8"),
       "safetensors[0]: data_offsets = a gap or an overlap at byte 0 is not allowed: tensors one "
       "after the other, to the end of the file"},
      {entry("F32", "1", "0", "4"),
       "safetensors[0]: data_offsets = a gap or an overlap at byte 4 is not allowed: tensors one "
       "after the other, to the end of the file"},
      {"{" + HeaderEntry("a", "F32", "1", "0", "4") + "," + HeaderEntry("b", "F32", "2", "0", "8") +
           "}",
       "safetensors[0]: data_offsets = a gap or an overlap at byte 4 is not allowed: tensors one "
       "after the other, to the end of the file"},
      {"{" + HeaderEntry("a", "F32", "2", "0", "8") + "," + HeaderEntry("b", "F32", "1", "4", "8") +
           "}",
       "safetensors[0]: data_offsets = a gap or an overlap at byte 8 is not allowed: tensors one "
       "after the other, to the end of the file"},
      {"{" + HeaderEntry("t", "F32", "1", "0", "4") + "," + HeaderEntry("t", "F32", "1", "4", "8") +
           "}",
       "safetensors[0]: t = there twice is not allowed: one tensor of a name"},
      {"{\"t\":7}",
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}",
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}",
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {"{\"t\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}",
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}",
       "safetensors[0]: t = an incomplete entry is not allowed: dtype, shape and two data_offsets "
       "of at least 0"},
      {"{}",
       "safetensors[0]: data_offsets = a gap or an overlap at byte 0 is not allowed: tensors one "
       "after the other, to the end of the file"},
  };
  for (const auto& [header, message] : cases) {
    EXPECT_EQ(MessageWith(JoinSafetensors(header, FileBytes(8))), message) << header;
  }
  for (const char* header : {"", "[]", "7", "{\"t\":", "{\"\xff\":1}"}) {
    const std::string message = MessageWith(JoinSafetensors(header, FileBytes(8)));
    EXPECT_EQ(message.find("safetensors[0]: header = malformed ("), 0u) << message;
    EXPECT_NE(message.find(") is not allowed: one JSON object"), message.npos) << message;
  }
}

TEST_F(BadWeights, HeadersLongerThanTheFile) {
  const auto with_length = [&](uint64_t length) {
    return MessageWith(JoinSafetensors("{}", {}, length));
  };
  EXPECT_EQ(with_length(3), "safetensors[0]: header length = 3 is not allowed: [2, 2]");
  EXPECT_EQ(with_length(UINT64_MAX),
            "safetensors[0]: header length = 18446744073709551615 is not allowed: [2, 2]");
  EXPECT_EQ(with_length(UINT64_MAX - 7),
            "safetensors[0]: header length = 18446744073709551608 is not allowed: [2, 2]");
  EXPECT_EQ(with_length(uint64_t{1} << 63),
            "safetensors[0]: header length = 9223372036854775808 is not allowed: [2, 2]");
  EXPECT_EQ(MessageWith({}), "safetensors[0] = 0 bytes is not allowed: at least 8 bytes");
  EXPECT_EQ(MessageWith(FileBytes(7)), "safetensors[0] = 7 bytes is not allowed: at least 8 bytes");
}

// Wherever a file ends too early.
TEST_F(BadWeights, FilesThatAreCutShort) {
  const FileBytes whole = files_.shards[0];
  for (const size_t size : {size_t{1}, size_t{8}, size_t{9}, size_t{100}, size_t{4000},
                            whole.size() / 2, whole.size() - 1}) {
    const std::string message =
        MessageWith({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    EXPECT_EQ(message.find("safetensors[0]"), 0u) << message;
  }
  FileBytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_NE(MessageWith(longer).find("to the end of the file"), std::string::npos);
}

TEST_F(BadWeights, ShardsThatAreNotThereOrThereTwice) {
  files_.shards.push_back(files_.shards[0]);
  EXPECT_EQ(MessageOf(files_),
            "safetensors[1]: lm_head.weight = there twice is not allowed: one tensor of a name");
  files_.shards.clear();
  EXPECT_EQ(MessageOf(files_),
            "safetensors: model.embed_tokens.weight = missing is not allowed: a tensor of shape "
            "[160, 64]");
}

}  // namespace
}  // namespace sluice::test
