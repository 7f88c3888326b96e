// What the command writes as .safetensors is what the library's own reader takes.
#include "cli/files/safetensors_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cli/usage_error.h"
#include "model/safetensors.h"
#include "support/mapped_file.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

using cli::RowsTensor;
using cli::SafetensorsWriter;
namespace fs = std::filesystem;

template <typename Call>
std::string UsageErrorOf(const Call& call) {
  try {
    call();
  } catch (const cli::UsageError& error) {
    return error.what();
  }
  return "no error";
}

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  SafetensorsWriterTest() { fs::create_directories(folder_); }
  ~SafetensorsWriterTest() override { fs::remove_all(folder_); }

  std::string Path() const { return (folder_ / "a.safetensors").string(); }
  int64_t Files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  const fs::path folder_ = fs::path(::testing::TempDir()) /
                           (std::string("sluice_safetensors_writer_test_") +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::vector<RowsTensor> tensors_ = {
      {"big", "F32", 5}, {"small", "I32", 3}, {"list", "I32", 0}};
};

template <typename T>
std::vector<T> ValuesOf(const model::StoredTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::ranges::copy(tensor.bytes, std::as_writable_bytes(std::span(values)).begin());
  return values;
}

TEST_F(SafetensorsWriterTest, WritesWhatTheReaderReads) {
  for (const int64_t rows : {0, 1, 7, 1000}) {
    std::vector<float> big(static_cast<size_t>(5 * rows));
    std::vector<int32_t> small(static_cast<size_t>(3 * rows)), list(static_cast<size_t>(rows));
    std::iota(big.begin(), big.end(), 0.5f);
    std::iota(small.begin(), small.end(), -7);
    std::iota(list.begin(), list.end(), 9);
    SafetensorsWriter writer(Path(), tensors_, {{"said", "\"quoted\"\n\u00e9"}});
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      writer.Append(0, std::span<const float>(big).subspan(5 * r, 5));
      writer.Append(1, std::span<const int32_t>(small).subspan(3 * r, 3));
      writer.Append(2, std::span<const int32_t>(list).subspan(r, 1));
    }
    writer.Close();
    EXPECT_EQ(Files(), 1);

    const MappedFile file(Path(), "file", "a file");
    model::StoredTensors read;
    model::AddTensors("a", file.bytes(), read);
    ASSERT_EQ(read.size(), 3u);
    EXPECT_EQ(read.at("big").type_name, "F32");
    EXPECT_EQ(read.at("small").type_name, "I32");
    EXPECT_EQ(read.at("big").shape, (std::vector<int64_t>{rows, 5}));
    EXPECT_EQ(read.at("small").shape, (std::vector<int64_t>{rows, 3}));
    EXPECT_EQ(read.at("list").shape, (std::vector<int64_t>{rows}));
    EXPECT_EQ(ValuesOf<float>(read.at("big")), big);
    EXPECT_EQ(ValuesOf<int32_t>(read.at("small")), small);
    EXPECT_EQ(ValuesOf<int32_t>(read.at("list")), list);
    // Readers map tensors where they lie.
    EXPECT_EQ((read.at("big").bytes.data() - file.bytes().data()) % 8, 0);
    EXPECT_NE(file.text().find(R"("__metadata__":{"said":"\"quoted\"\u000a)"), std::string::npos);
  }
}

TEST_F(SafetensorsWriterTest, LeavesTheFileThatWasThereUntilTheNewOneIsWhole) {
  const std::vector<float> row(5, 1.0f);
  {
    SafetensorsWriter writer(Path(), tensors_, {});
    writer.Close();
  }
  const auto size = fs::file_size(Path());
  {
    SafetensorsWriter writer(Path(), tensors_, {});
    writer.Append(0, std::span(row));
    EXPECT_EQ(fs::file_size(Path()), size);
    EXPECT_EQ(Files(), 2);
  }  // never closed
  EXPECT_EQ(fs::file_size(Path()), size);
  EXPECT_EQ(Files(), 1);
}

TEST_F(SafetensorsWriterTest, NamesAFileThatCannotBeWritten) {
  const std::string nowhere = (folder_ / "no" / "a.safetensors").string();
  EXPECT_EQ(UsageErrorOf([&] { SafetensorsWriter(nowhere, tensors_, {}); }),
            "cannot write " + nowhere + ": No such file or directory");
  fs::create_directories(fs::path(Path()) / "not empty");
  SafetensorsWriter writer(Path(), tensors_, {});
  EXPECT_EQ(UsageErrorOf([&] { writer.Close(); }), "cannot write " + Path() + ": Is a directory");
}

}  // namespace
}  // namespace sluice::test
