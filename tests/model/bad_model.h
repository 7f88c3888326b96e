// The files of a good model, to be spoilt one way at a time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sluice/error.hpp"
#include "sluice/model.hpp"
#include "tests/model/checkpoint.h"
#include "tests/model/fixture.h"

namespace sluice::test {

struct FilesOfModel {
  std::string config;
  std::vector<FileBytes> shards;
};

inline FilesOfModel FilesOf(const std::string& fixture) {
  const std::string folder = FixtureFolder(fixture);
  return {ReadText(folder + "/config.json"), {ReadBytes(folder + "/model.safetensors")}};
}

inline Model OpenFiles(const FilesOfModel& files, const ModelOptions& options = {}) {
  std::vector<std::span<const std::byte>> shards(files.shards.begin(), files.shards.end());
  return Model::FromFiles({files.config, shards}, options);
}

// What the Error of a call says. No weight is read before everything has been checked: the call
// gets these options, whose progress may not be reported.
inline std::string MessageOf(const std::function<void(const ModelOptions&)>& call) {
  bool has_read = false;
  ModelOptions options;
  options.progress = [](void* context, size_t, size_t) { *static_cast<bool*>(context) = true; };
  options.progress_context = &has_read;
  try {
    call(options);
    return "no Error";
  } catch (const Error& error) {
    EXPECT_FALSE(has_read) << error.what();
    return error.what();
  }
}

inline std::string MessageOf(const FilesOfModel& files) {
  return MessageOf([&](const ModelOptions& options) { OpenFiles(files, options); });
}

}  // namespace sluice::test
