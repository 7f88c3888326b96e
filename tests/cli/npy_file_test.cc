// The reader of .npy files: what it reads, and that everything else is an Error that names what is
// wrong, never a crash.
#include "cli/files/npy_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "sluice/error.hpp"
#include "tests/support/random.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

std::string Npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return file + header + data;
}

std::string Header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }  \n";
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class NpyFileTest : public ::testing::Test {
 protected:
  NpyFileTest()
      : folder_(fs::temp_directory_path() / ("sluice_npy_" + std::to_string(getpid()))),
        path_((folder_ / "x.npy").string()) {
    fs::create_directories(folder_);
  }
  ~NpyFileTest() override { fs::remove_all(folder_); }

  NpyFile Written(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return NpyFile(path_);
  }

  // what: after "FILE: ".
  void ExpectRefused(const std::string& bytes, const std::string& what, const std::string& value,
                     const std::string& allowed) const {
    try {
      Written(bytes);
      ADD_FAILURE() << "no Error: " << what << " = " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.parameter(), path_ + ": " + what);
      EXPECT_EQ(error.value(), value);
      EXPECT_EQ(error.allowed(), allowed);
      EXPECT_EQ(error.code(), ErrorCode::kInvalidValue);
    }
  }

  fs::path folder_;
  std::string path_;
};

const std::string kSix = Bytes<float>({1, 2, 3, 4, 5, 6});

TEST_F(NpyFileTest, ReadsTheRowThatIsAskedForOfEveryVersion) {
  for (const int version : {1, 2, 3}) {
    NpyFile file = Written(Npy(Header("'<f4'", "(2, 3)"), kSix, version));
    EXPECT_EQ(file.rows(), 2);
    EXPECT_EQ(file.vocab(), 3);
    EXPECT_EQ(file.Shape(), "(2, 3)");
    const std::vector<std::byte> row = file.ReadRow(1);
    EXPECT_EQ(std::memcmp(row.data(), kSix.data() + 12, 12), 0);
    EXPECT_EQ(file.ReadRow(0).size(), 12u);
  }
}

TEST_F(NpyFileTest, KnowsItsTypes) {
  const std::string data(12, '\0');
  EXPECT_EQ(Written(Npy(Header("'<f2'", "(6,)"), data)).dtype(), DType::kF16);
  EXPECT_EQ(Written(Npy(Header("'<V2'", "(6,)"), data)).dtype(), DType::kBf16);
  EXPECT_EQ(Written(Npy(Header("\"bfloat16\"", "(6,)"), data)).dtype(), DType::kBf16);
  EXPECT_EQ(Written(Npy(Header("'<f4'", "(3L,)"), data)).Shape(), "(3,)");
}

TEST_F(NpyFileTest, OneRowMayBeInAnyOrder) {
  EXPECT_EQ(Written(Npy(Header("'<f4'", "(1, 6)", "True"), kSix)).vocab(), 6);
  EXPECT_EQ(Written(Npy(Header("'<f4'", "(6,)", "True"), kSix)).vocab(), 6);
  EXPECT_EQ(Written(Npy("{'shape':(6,),'fortran_order':False,'descr':'<f4'}", kSix)).vocab(), 6);
}

TEST_F(NpyFileTest, RefusesWithTheValueAndWhatIsAllowed) {
  const std::string types = "float32, float16 or bfloat16; convert with x.astype('<f4')";
  const std::string shapes = "(vocabulary,) or (rows, vocabulary)";
  const std::string sizes = "1 to 2147483647 rows of 1 to 8388608 logits";
  const std::string keys = "a dictionary with descr, fortran_order and shape";
  const std::string file = "a .npy file of logits, as numpy.save writes it";
  ExpectRefused("", "first bytes", "a file of 0 bytes", file);
  ExpectRefused("PK\x03\x04 an archive of numpy.savez", "first bytes", "another format", file);
  ExpectRefused(Npy(Header("'<f4'", "(6,)"), kSix, 4), "version", "4.0", "1.0, 2.0 or 3.0");
  ExpectRefused(Npy(Header("'<f8'", "(3,)"), kSix), "dtype", "'<f8' (float64)", types);
  ExpectRefused(Npy(Header("'>f4'", "(6,)"), kSix), "dtype", "'>f4' (big-endian)", types);
  ExpectRefused(Npy(Header("'<i4'", "(6,)"), kSix), "dtype", "'<i4'", types);
  ExpectRefused(Npy(Header("[('a', '<f4')]", "(6,)"), kSix), "dtype", "'[('a', '<f4')]'", types);
  ExpectRefused(Npy(Header("'|V2'", "(12,)"), kSix), "dtype", "'|V2', two bytes of no type",
                "bfloat16 as '<V2'; or x.astype('<f4')");
  ExpectRefused(Npy(Header("'<f4'", "()"), kSix), "shape", "()", shapes);
  ExpectRefused(Npy(Header("'<f4'", "(1, 2, 3)"), kSix), "shape", "(1, 2, 3)", shapes);
  ExpectRefused(Npy(Header("'<f4'", "(0, 3)"), ""), "shape", "(0, 3)", sizes);
  ExpectRefused(Npy(Header("'<f4'", "(2, 0)"), ""), "shape", "(2, 0)", sizes);
  ExpectRefused(Npy(Header("'<f4'", "(0,)"), ""), "shape", "(0,)", sizes);
  ExpectRefused(Npy(Header("'<f4'", "(8388609,)"), kSix), "shape", "(8388609,)", sizes);
  ExpectRefused(Npy(Header("'<f4'", "(2147483647, 8388608)"), kSix), "data", "24 bytes",
                "the 72057594004373504 bytes of shape (2147483647, 8388608)");
  ExpectRefused(Npy(Header("'<f4'", "(18446744073709551615, 18446744073709551615)"), kSix), "shape",
                "(18446744073709551615, 18446744073709551615)", sizes);
  ExpectRefused(Npy(Header("'<f4'", "(2, 3)", "True"), kSix), "fortran_order", "True",
                "rows one after the other: numpy.ascontiguousarray(x)");
  ExpectRefused(Npy(Header("'<f4'", "(7,)"), kSix), "data", "24 bytes",
                "the 28 bytes of shape (7,)");
  ExpectRefused(Npy("", kSix), "header", "''", keys);
  ExpectRefused(Npy("{}", kSix), "header", "'{}'", keys);
  ExpectRefused(Npy("\x01\xff", kSix), "header", "'\x3f\x3f'", keys);
  const std::string whole = Npy(Header("'<f4'", "(6,)"), kSix);
  ExpectRefused(whole.substr(0, 40), "length of the header",
                std::to_string(Header("'<f4'", "(6,)").size()), "within the file, at most 65536");
  ExpectRefused(whole.substr(0, whole.size() - 1), "data", "23 bytes",
                "the 24 bytes of shape (6,)");
  ExpectRefused(whole.substr(0, 7), "first bytes", "a file of 7 bytes", file);
}

TEST_F(NpyFileTest, AHeaderHasItsThreeKeysOnceAndNothingElse) {
  for (const char* header :
       {"{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (6,)}", "{'descr': [[[", "{'",
        "{'descr'"}) {
    SCOPED_TRACE(header);
    EXPECT_THROW(Written(Npy(header, kSix)), Error);
  }
}

TEST_F(NpyFileTest, WhatIsNoFileSaysSo) {
  for (const auto& [path, what] :
       {std::pair<std::string, std::string>{"/no/such.npy", "no such file: /no/such.npy"},
        {folder_.string(), "not a file but a folder: " + folder_.string()},
        {"/dev/null",
         "FILE = \"/dev/null\" (no regular file) is not allowed: a .npy file of "
         "logits, as numpy.save writes it"}}) {
    try {
      NpyFile file(path);
      ADD_FAILURE() << path;
    } catch (const std::exception& error) {
      EXPECT_EQ(error.what(), what);
    }
  }
}

TEST_F(NpyFileTest, ARowOutsideTheFileIsRefused) {
  NpyFile file = Written(Npy(Header("'<f4'", "(2, 3)"), kSix));
  EXPECT_THROW(file.ReadRow(2), Error);
  EXPECT_THROW(file.ReadRow(-1), Error);
}

TEST_F(NpyFileTest, SpoiledFilesAreErrorsOrRows) {
  test::Random random(5);
  int read = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes =
        Npy(Header("'<f4'", "(2, 3)"), kSix, static_cast<int>(random.Between(1, 3)));
    for (int64_t n = random.Between(1, 3); n > 0; --n) {
      const auto at = static_cast<size_t>(random.Below(std::ssize(bytes)));
      switch (random.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Bits());
          break;
        case 1:
          bytes[at] = "{}()[]'\",:0129<>fV "[random.Below(18)];
          break;
        case 2:
          bytes.resize(at + 1);
          break;
        default:
          bytes.insert(at, bytes.substr(at, static_cast<size_t>(random.Between(1, 9))));
      }
    }
    try {
      NpyFile file = Written(bytes);
      const std::vector<std::byte> row = file.ReadRow(file.rows() - 1);
      EXPECT_EQ(row.size(), static_cast<size_t>(file.vocab()) * SizeOf(file.dtype()));
      ++read;
    } catch (const Error& error) {
      EXPECT_FALSE(error.allowed().empty());
    }
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace sluice::cli
