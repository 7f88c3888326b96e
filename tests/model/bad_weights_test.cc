// Files of weights that lie: an Error naming the file, the tensor and what was expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
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
      {[](StoredTensor& t) { t.name = "other"; }, ""},
      {[](StoredTensor& t) { std::swap(t.shape[0], t.shape[1]); }, ""},
      {[](StoredTensor& t) { t.shape = {72 * 64}; }, ""},
      {[](StoredTensor& t) { t.shape = {72, 64, 1}; }, ""},
      {[](StoredTensor& t) {
         t.shape = {};
         t.data.resize(2);
       },
       ""},
      {[](StoredTensor& t) {
         t.shape = {0, 64};
         t.data.clear();
       },
       ""},
      {[](StoredTensor& t) { t.dtype = "I16"; }, ""},
      {[](StoredTensor& t) {
         t.dtype = "I64";
         t.data.resize(72 * 64 * 8);
       },
       ""},
      {[](StoredTensor& t) {
         t.dtype = "F64";
         t.data.resize(72 * 64 * 8);
       },
       ""},
      {[](StoredTensor& t) {
         t.dtype = "I8";
         t.data.resize(72 * 64);
       },
       ""},
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
      {entry("F32", "2", "0", "16"), ""},
      {entry("F32", "2", "8", "16"), ""},
      {entry("F32", "2", "8", "0"), ""},
      {entry("F32", "2", "-8", "0"), ""},
      {entry("F32", "2", "0", "18446744073709551615"), ""},
      {entry("F32", "2", "0", "8.0"), ""},
      {entry("F32", "3", "0", "8"), ""},
      {entry("F32", "1", "0", "8"), ""},
      {entry("F32", "-2", "0", "8"), ""},
      {entry("F32", "1099511627776,1099511627776", "0", "8"), ""},
      {entry("F32", "4611686018427387904,1", "0", "0"), ""},
      {entry("F32", "2,1,1,1,1,1,1,1,1,1", "0", "8"), ""},
      {entry("F32", "\"2\"", "0", "8"), ""},
      {entry("F33", "2", "0", "8"), ""},
      {entry("F32", "1", "4", "8"), ""},
      {entry("F32", "1", "0", "4"), ""},
      {"{" + HeaderEntry("a", "F32", "1", "0", "4") + "," + HeaderEntry("b", "F32", "2", "0", "8") +
           "}",
       ""},
      {"{" + HeaderEntry("a", "F32", "2", "0", "8") + "," + HeaderEntry("b", "F32", "1", "4", "8") +
           "}",
       ""},
      {"{" + HeaderEntry("t", "F32", "1", "0", "4") + "," + HeaderEntry("t", "F32", "1", "4", "8") +
           "}",
       ""},
      {"{\"t\":7}", ""},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", ""},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", ""},
      {"{\"t\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", ""},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", ""},
      {"{}", ""},
      {"", ""},
      {"[]", ""},
      {"{\"t\":", ""},
      {"{\"\xff\":1}", ""},
  };
  for (const auto& [header, message] : cases) {
    EXPECT_EQ(MessageWith(JoinSafetensors(header, FileBytes(8))), message) << header;
  }
}

TEST_F(BadWeights, HeadersLongerThanTheFile) {
  const auto with_length = [&](uint64_t length) {
    return MessageWith(JoinSafetensors("{}", {}, length));
  };
  EXPECT_EQ(with_length(3), "");
  EXPECT_EQ(with_length(UINT64_MAX), "");
  EXPECT_EQ(with_length(UINT64_MAX - 7), "");
  EXPECT_EQ(with_length(uint64_t{1} << 63), "");
  EXPECT_EQ(MessageWith({}), "");
  EXPECT_EQ(MessageWith(FileBytes(7)), "");
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
  EXPECT_EQ(MessageOf(files_), "");
  files_.shards.clear();
  EXPECT_EQ(MessageOf(files_), "");
}

// A fixture's folder, to be spoilt.
class BadFolder : public testing::Test {
 protected:
  BadFolder()
      : folder_(testing::TempDir() + "sluice_bad_folder_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(FixtureFolder("llama3_sharded"), folder_);
  }
  ~BadFolder() override { std::filesystem::remove_all(folder_); }

  // The Error's text, without the path to the folder.
  std::string Message() const {
    std::string message =
        MessageOf([&](const ModelOptions& options) { Model::Open(folder_, options); });
    if (const size_t at = message.find(folder_ + "/"); at != std::string::npos) {
      message.erase(at, folder_.size() + 1);
    }
    return message;
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  std::string index_ = "model.safetensors.index.json";
};

TEST_F(BadFolder, IsNotThere) {
  folder_ += "/nothing";
  EXPECT_EQ(Message(), "");
}

TEST_F(BadFolder, HasNoConfig) {
  std::filesystem::remove(Path("config.json"));
  EXPECT_EQ(Message(), "");
  std::filesystem::create_directory(Path("config.json"));
  EXPECT_EQ(Message(), "");
}

TEST_F(BadFolder, HasAnEmptyConfig) {
  WriteText(Path("config.json"), "");
  EXPECT_EQ(Message(), "");
}

TEST_F(BadFolder, HasNoWeights) {
  std::filesystem::remove(Path(index_));
  EXPECT_EQ(Message(), "");
}

TEST_F(BadFolder, LacksAShard) {
  std::filesystem::remove(Path("model-00002-of-00003.safetensors"));
  EXPECT_EQ(Message(), "");
}

TEST_F(BadFolder, HasAShardCutShort) {
  std::filesystem::resize_file(Path("model-00002-of-00003.safetensors"), 20000);
  const std::string message = Message();
  EXPECT_EQ(message.find("model-00002-of-00003.safetensors: "), 0u) << message;
  EXPECT_NE(message.find("data_offsets ["), std::string::npos) << message;
}

TEST_F(BadFolder, HasAnIndexThatIsNone) {
  for (const char* text : {"", "{", "[]", "{}", R"({"weight_map": []})"}) {
    WriteText(Path(index_), text);
    EXPECT_EQ(Message(), "") << text;
  }
}

TEST_F(BadFolder, HasAnIndexThatLeadsElsewhere) {
  const std::string good = ReadText(Path(index_));
  const std::string name = "model-00002-of-00003.safetensors";
  for (const char* other : {"../model-00002-of-00003.safetensors", "/etc/passwd", "a/b.safetensors",
                            "..", ".", "", "a\\\\b"}) {
    std::string index = good;
    for (size_t at; (at = index.find(name)) != std::string::npos;) {
      index.replace(at, name.size(), "@");
    }
    for (size_t at; (at = index.find('@')) != std::string::npos;) index.replace(at, 1, other);
    WriteText(Path(index_), index);
    EXPECT_EQ(Message(), "") << other;
  }
}

TEST_F(BadFolder, HasAnIndexThatNamesTooFewShards) {
  std::string index = ReadText(Path(index_));
  const std::string name = "model-00003-of-00003.safetensors";
  for (size_t at; (at = index.find(name)) != std::string::npos;) {
    index.replace(at, name.size(), "model-00001-of-00003.safetensors");
  }
  WriteText(Path(index_), index);
  EXPECT_EQ(Message().find("safetensors: model."), 0u) << Message();
}

}  // namespace
}  // namespace sluice::test
