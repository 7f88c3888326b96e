// Planes: their size, the file, and every way in which a file may be the wrong one.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "head/certified/plane_file.h"
#include "tests/head/intervals.h"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

class Planes : public ::testing::Test {
 protected:
  Planes()
      : random_(1),
        rows_(MakeHead(HeadKind::kTrained, 70, 200, random_)),
        weight_(rows_, DType::kBf16),
        path_(std::filesystem::temp_directory_path() /
              ("sluice_planes_" + std::to_string(::getpid()))) {}
  ~Planes() override { std::filesystem::remove(path_); }

  HeadPlanes Built(CertificateKind kind = CertificateKind::kDither4) const {
    return HeadPlanes::Build(Matrix(weight_), {.kind = kind, .seed = 5}, {});
  }
  HeadPlanes Loaded(const PlaneChecks& checks = {}) const {
    return HeadPlanes::Load(path_, Matrix(weight_), checks);
  }
  // The file's bytes, changed.
  template <typename Change>
  void Spoil(const Change& change) {
    std::string bytes;
    {
      std::ifstream in(path_, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    change(bytes);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  // With a header that is right about itself.
  template <typename Change>
  void SpoilHeader(const Change& change) {
    Spoil([&](std::string& bytes) {
      PlaneHeader header;
      std::memcpy(&header, bytes.data(), sizeof header);
      change(header);
      header.header_hash = HashOfHeader(header);
      std::memcpy(bytes.data(), &header, sizeof header);
    });
  }
  void ExpectRefused(const std::string& found, const std::string& allowed) {
    ExpectError([&] { Loaded(); }, "planes", "\"" + path_ + "\" (" + found + ")", allowed);
  }

  Random random_;
  Rows rows_;
  Batch weight_;
  std::string path_;
};

TEST_F(Planes, CostAQuarterOfTheHeadOrAHalf) {
  const std::vector<uint16_t> zeros(2000 * 640);
  const MatrixView weight{zeros.data(), 2000, 640, 640, DType::kBf16, {}};
  const double head = 2000.0 * 640.0 * 2.0;
  const auto bytes = [&](CertificateKind kind) {
    return static_cast<double>(HeadPlanes::Build(weight, {.kind = kind}, {}).bytes());
  };
  EXPECT_LE(bytes(CertificateKind::kDither4) / head, 0.27);
  EXPECT_LE(bytes(CertificateKind::kStrict) / head, 0.52);
}

TEST_F(Planes, ComeBackFromAFileByteForByte) {
  for (const CertificateKind kind : {CertificateKind::kDither4, CertificateKind::kStrict}) {
    const HeadPlanes built = Built(kind);
    built.Save(path_);
    const HeadPlanes loaded = Loaded();
    EXPECT_EQ(loaded.kind(), kind);
    EXPECT_EQ(loaded.vocab(), 70);
    EXPECT_EQ(loaded.dim(), 200);
    EXPECT_EQ(std::filesystem::file_size(path_), built.bytes());
    EXPECT_TRUE(SameSequence(PlaneAccess::Bytes(loaded), PlaneAccess::Bytes(built)));
  }
}

TEST_F(Planes, AreTheSameForTheSameSeedOnAnyParallelForAndAnyStride) {
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  const Batch wide(rows_, DType::kBf16, 17);
  const HeadPlanes other = HeadPlanes::Build(Matrix(wide), {.seed = 5}, {3, nullptr, backwards});
  EXPECT_TRUE(SameSequence(PlaneAccess::Bytes(other), PlaneAccess::Bytes(Built())));
  const HeadPlanes unseeded = HeadPlanes::Build(Matrix(weight_), {}, {});
  EXPECT_NE(PlaneAccess::View(unseeded).dither[0], PlaneAccess::View(other).dither[0]);
}

TEST_F(Planes, TellHowFarTheyAre) {
  std::vector<int64_t> rows;
  HeadPlaneOptions options;
  options.progress_context = &rows;
  options.progress = [](void* context, int64_t done, int64_t vocab) {
    EXPECT_EQ(vocab, 70);
    static_cast<std::vector<int64_t>*>(context)->push_back(done);
  };
  HeadPlanes::Build(Matrix(weight_), options, {});
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back(), 70);
}

TEST_F(Planes, RefuseWeightsThatAreNotFinite) {
  const auto build = [&](DType dtype, float x) {
    Rows rows = rows_;
    rows[69][3] = std::numeric_limits<float>::infinity();
    rows[3][199] = x;
    const Batch weight(rows, dtype);
    HeadPlanes::Build(Matrix(weight), {}, {});
  };
  ExpectError([&] { build(DType::kF32, NAN); }, "weight[3][199]", "nan", "a finite number");
  ExpectError([&] { build(DType::kF16, -INFINITY); }, "weight[3][199]", "-inf", "a finite number");
  ExpectError([] { HeadPlanes::Build({}, {}, {}); }, "weight.dim", "0", "[1, 1048576]");
  const MatrixView none{nullptr, 0, 5, 5, DType::kF32, {}};
  ExpectError([&] { HeadPlanes::Build(none, {}, {}); }, "weight.rows", "0", "[1, 8388608]");
  ExpectError([&] { HeadPlanes::Build(Matrix(weight_), {.kind = CertificateKind{7}}, {}); }, "kind",
              "7", "dither4 or strict");
  ExpectError([] { CertificateKindByName("fp3"); }, "kind", "\"fp3\"", "dither4 or strict");
}

TEST_F(Planes, OfOneRowOrOneColumnAreBuiltAndLoaded) {
  for (const auto& [vocab, dim] : {std::pair{1, 1}, std::pair{1, 129}, std::pair{17, 1}}) {
    const Batch weight(MakeHead(HeadKind::kNormal, vocab, dim, random_), DType::kF16);
    HeadPlanes::Build(Matrix(weight), {}, {}).Save(path_);
    EXPECT_EQ(HeadPlanes::Load(path_, Matrix(weight)).dim(), dim);
  }
}

TEST_F(Planes, RefuseAFileThatIsNotTheirs) {
  ExpectRefused("No such file or directory", "a file of planes that can be read");
  std::ofstream(path_) << "short";
  ExpectRefused("truncated: 5 bytes", "at least the 72 bytes of a header");
  std::ofstream(path_) << std::string(100, 'x');
  ExpectRefused("does not begin with SLUICEHP", "a file that HeadPlanes::Save wrote");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // that nobody writes into
  ExpectRefused("not a regular file", "a file of planes that can be read");
  std::filesystem::remove(path_);

  const std::string size = std::to_string(Built().bytes());
  const auto spoiled = [&](const auto& change) {
    Built().Save(path_);
    SpoilHeader(change);
  };
  spoiled([](PlaneHeader& header) { header.version = 2; });
  ExpectRefused("version 2", "version 1: build the planes again");
  spoiled([](PlaneHeader& header) { header.kind = 9; });
  ExpectRefused("kind 9, groups of 128", "a kind and a group of this version");
  spoiled([](PlaneHeader& header) { header.vocab = 71; });
  ExpectRefused("vocab 71", "vocab 70, the weight's");
  spoiled([](PlaneHeader& header) { header.dim = 100; });
  ExpectRefused("dim 100", "dim 200, the weight's");
  spoiled([](PlaneHeader& header) { header.dtype = 2; });
  ExpectRefused("dtype float16", "bfloat16, the weight's");
  spoiled([](PlaneHeader& header) { header.kind = 1; });
  ExpectRefused(size + " bytes", "the bytes of its shape");

  Built().Save(path_);
  Spoil([](std::string& bytes) { bytes[30] ^= 1; });
  ExpectRefused("its header is damaged", "a header with the hash that it says");
  Built().Save(path_);
  Spoil([](std::string& bytes) { bytes.pop_back(); });
  ExpectRefused("truncated: " + std::to_string(Built().bytes() - 1) + " bytes",
                size + " bytes, as its header says");
  Built().Save(path_);
  Spoil([](std::string& bytes) { bytes.push_back(0); });
  ExpectRefused("too long: " + std::to_string(Built().bytes() + 1) + " bytes",
                size + " bytes, as its header says");

  ExpectError([&] { Built().Save("/nowhere/planes"); }, "path",
              "\"/nowhere/planes\" (No such file or directory)", "a file that can be written");
}

TEST_F(Planes, NoticeEveryChangedByteAndEveryOtherWeight) {
  const size_t size = Built().bytes();
  for (int n = 0; n < 50; ++n) {
    Built().Save(path_);
    const auto at =
        static_cast<size_t>(random_.Between(sizeof(PlaneHeader), static_cast<int64_t>(size) - 1));
    const bool is_padding = at >= sizeof(PlaneHeader) && at < 128;
    Spoil([&](std::string& bytes) { bytes[at] ^= 0x10; });
    if (!is_padding) {
      ExpectRefused("its planes are damaged", "planes with the hash that its header says");
    }
  }
  Built().Save(path_);
  weight_.Set(69, 199, weight_.Get(69, 199) + 0.01f);
  ExpectRefused("of other weights", "planes of these weights: build them again");
  EXPECT_NO_THROW(Loaded({.weights = false}));
}

// With the hash left out a flipped nibble is a wrong interval, and the check of intervals sees it.
TEST_F(Planes, AFlippedNibbleMakesAnIntervalWrong) {
  constexpr int64_t kElement = 70;  // in the upper halves
  std::vector<float> state(200, 0.01f);
  state[kElement] = 1.0f;
  const Batch hidden({state}, DType::kF32);
  const semantics::Row row{Matrix(hidden).Row(0), DType::kF32, 200};
  const auto worst = [&] {
    const HeadPlanes planes = Loaded({.weights = true, .planes = false});
    return WorstError(Scored(kScoreRef, planes, {}, Matrix(hidden))[0], Matrix(weight_), {}, row);
  };
  Built().Save(path_);
  EXPECT_LE(worst(), 1.0);
  Spoil([](std::string& bytes) {
    const PlaneLayout layout(CertificateKind::kDither4, 70, 200);
    const size_t of_element = (kElement - 64) / 4 * 4 * kTileRows + (kElement - 64) % 4;
    char& byte = bytes[layout.codes + of_element + 3 * 4];  // row 3
    byte = static_cast<char>(byte ^ 0x80);                  // by eight steps
  });
  EXPECT_GT(worst(), 1.0);
}

}  // namespace
}  // namespace sluice::test
