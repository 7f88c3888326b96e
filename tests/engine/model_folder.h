// Files of a model in a folder of this test's own, which goes with it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/engine/tiny_checkpoint.h"

namespace sluice::test {

class ModelFolder {
 public:
  explicit ModelFolder(const TinyFiles& files)
      : path_(std::filesystem::path(::testing::TempDir()) /
              (std::string("sluice_") + Test().test_suite_name() + "_" + Test().name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    const auto write = [&](const char* name, const std::string& bytes) {
      if (!bytes.empty()) std::ofstream(path_ / name, std::ios::binary) << bytes;
    };
    write("config.json", files.config);
    write("model.safetensors", files.weights);
    write("tokenizer.json", files.tokenizer);
    write("generation_config.json", files.generation_config);
    write("tokenizer_config.json", files.tokenizer_config);
    write("chat_template.jinja", files.chat_template);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }

 private:
  static const ::testing::TestInfo& Test() {
    return *::testing::UnitTest::GetInstance()->current_test_info();
  }

  std::filesystem::path path_;
};

}  // namespace sluice::test
