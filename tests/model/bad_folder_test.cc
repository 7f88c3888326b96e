// Folders of models that lack something or lead elsewhere: an Error naming the file.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/model/bad_model.h"

namespace sluice::test {
namespace {

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
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(Message(),
            "model = \"config.json\" (No such file or directory) is not allowed: a model's "
            "config.json that can be read");
}

TEST_F(BadFolder, HasNoConfig) {
  std::filesystem::remove(Path("config.json"));
  EXPECT_EQ(Message(),
            "model = \"config.json\" (No such file or directory) is not allowed: a model's "
            "config.json that can be read");
  std::filesystem::create_directory(Path("config.json"));
  EXPECT_EQ(Message(),
            "model = \"config.json\" (not a regular file) is not allowed: a model's config.json "
            "that can be read");
}

TEST_F(BadFolder, HasAnEmptyConfig) {
  WriteText(Path("config.json"), "");
  EXPECT_EQ(Message().find("config.json = malformed ("), 0u) << Message();
}

TEST_F(BadFolder, HasNoWeights) {
  std::filesystem::remove(Path(index_));
  EXPECT_EQ(Message(),
            "model = \"model.safetensors.index.json\" (No such file or directory) is not allowed: "
            "model.safetensors or model.safetensors.index.json that can be read");
}

TEST_F(BadFolder, LacksAShard) {
  std::filesystem::remove(Path("model-00002-of-00003.safetensors"));
  EXPECT_EQ(Message(),
            "model = \"model-00002-of-00003.safetensors\" (No such file or directory) is not "
            "allowed: a file of weights that can be read");
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
    EXPECT_EQ(Message(),
              "model.safetensors.index.json = malformed is not allowed: one JSON object with a "
              "weight_map")
        << text;
  }
}

TEST_F(BadFolder, HasAnIndexThatLeadsElsewhere) {
  const std::string good = ReadText(Path(index_));
  for (const std::string other : {"../model-00002-of-00003.safetensors", "/etc/passwd",
                                  "a/b.safetensors", "..\\\\b.safetensors", ""}) {
    WriteText(Path(index_), Replaced(good, "model-00002-of-00003.safetensors", other));
    const std::string message = Message();
    EXPECT_EQ(message.find("model.safetensors.index.json: model.layers."), 0u) << message;
    const std::string rest = std::string(" = \"").append(other).append(
        "\" is not allowed: the name of a file in the directory of the index");
    EXPECT_TRUE(message.ends_with(rest)) << message;
  }
}

// A folder is no file, its own least of all.
TEST_F(BadFolder, HasAnIndexThatNamesFolders) {
  const std::string good = ReadText(Path(index_));
  for (const std::string other : {".", ".."}) {
    WriteText(Path(index_), Replaced(good, "model-00002-of-00003.safetensors", other));
    EXPECT_EQ(
        Message(),
        std::string("model = \"")
            .append(other)
            .append("\" (not a regular file) is not allowed: a file of weights that can be read"));
  }
}

TEST_F(BadFolder, HasAnIndexThatNamesTooFewShards) {
  const std::string index = ReadText(Path(index_));
  WriteText(Path(index_), Replaced(index, "model-00003-of-00003.safetensors",
                                   "model-00001-of-00003.safetensors"));
  EXPECT_EQ(Message().find("safetensors: "), 0u) << Message();
}

}  // namespace
}  // namespace sluice::test
