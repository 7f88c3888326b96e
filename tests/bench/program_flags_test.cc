// The command lines of the programs that measure a GPU: what is wrong is said before anything runs,
// with the flag, the value and what is allowed.
#include "bench/support/program_flags.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

enum class Kind : uint8_t { kOne, kOther };
std::string_view Name(Kind kind) { return kind == Kind::kOne ? "one" : "other"; }

struct Options {
  int64_t vocab = 128256;
  std::vector<int32_t> batches = {1, 8};
  double seconds = 0.0;
  Kind kind = Kind::kOne;
  HeadShape head = {4096, 64};
  std::vector<HeadShape> heads = {{4096, 64}, {8192, 32}};
  std::vector<std::string> tasks;
  std::string path;

  explicit Options(ProgramFlags& flags) {
    flags.Number("--vocab", vocab, {64, 1 << 20}, "tokens of a row");
    flags.Number("--batch", batches, {1, 512}, "rows of a call");
    flags.Number("--seconds", seconds, {1, 60}, "of a call");
    flags.Choice("--kind", kind, ByName(std::vector{Kind::kOne, Kind::kOther}), "of the planes");
    flags.Head("--head", head, "the head");
    flags.Head("--heads", heads, "the heads");
    flags.Names("--task", tasks, {"greedy", "k50-p0.9"}, "only these");
    flags.Text("--rows", path, "FILE", "the rows");
  }
};

Options* ran_with = nullptr;  // of the last run; null where there was none
int result_of_run = 0;
int RunBench(const Options& options) {
  ran_with = new Options(options);
  return result_of_run;
}

class ProgramFlagsTest : public testing::Test {
 protected:
  void TearDown() override { delete std::exchange(ran_with, nullptr); }

  // The exit status.
  int Start(std::vector<std::string> arguments) {
    TearDown();
    arguments.insert(arguments.begin(), "program");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = RunProgram(static_cast<int>(arguments.size()), argv.data(), "program",
                                  "What it is for.", RunBench);
    output_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return status;
  }
  // That nothing runs, and what is said.
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    EXPECT_EQ(Start(arguments), 2);
    EXPECT_EQ(ran_with, nullptr);
    EXPECT_EQ(output_, "");
    return error_;
  }

  std::string output_;
  std::string error_;
};

std::string Text(const std::vector<HeadShape>& heads) {
  std::string text;
  for (const HeadShape& head : heads) {
    text += std::to_string(head.vocab) + "x" + std::to_string(head.dim) + " ";
  }
  return text;
}

TEST_F(ProgramFlagsTest, LeavesDefaultsWhereNothingIsGiven) {
  ASSERT_EQ(Start({}), 0);
  ASSERT_NE(ran_with, nullptr);
  EXPECT_EQ(ran_with->vocab, 128256);
  EXPECT_EQ(ran_with->batches, (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(ran_with->seconds, 0.0);
  EXPECT_EQ(ran_with->kind, Kind::kOne);
  EXPECT_EQ(Text({ran_with->head}), "4096x64 ");
  EXPECT_EQ(Text(ran_with->heads), "4096x64 8192x32 ");
  EXPECT_TRUE(ran_with->tasks.empty());
  EXPECT_EQ(ran_with->path, "");
}

TEST_F(ProgramFlagsTest, TakesEachKindOfValueUpToTheEndsOfItsRange) {
  ASSERT_EQ(Start({"--vocab", "1048576", "--seconds", "1.5", "--kind", "other", "--head", "64x1",
                   "--task", "k50-p0.9", "--rows", "some file"}),
            0);
  EXPECT_EQ(ran_with->vocab, 1 << 20);
  EXPECT_EQ(ran_with->seconds, 1.5);
  EXPECT_EQ(ran_with->kind, Kind::kOther);
  EXPECT_EQ(Text({ran_with->head}), "64x1 ");
  EXPECT_EQ(ran_with->tasks, (std::vector<std::string>{"k50-p0.9"}));
  EXPECT_EQ(ran_with->path, "some file");
  EXPECT_EQ(Start({"--vocab=64"}), 0);
  EXPECT_EQ(ran_with->vocab, 64);
}

TEST_F(ProgramFlagsTest, AListReplacesItsDefaultAndIsSeparatedByCommasOrFlags) {
  ASSERT_EQ(Start({"--batch", "1,512", "--batch", "3", "--heads", "100x8", "--heads",
                   "200x16,300x32", "--task", "greedy,k50-p0.9"}),
            0);
  EXPECT_EQ(ran_with->batches, (std::vector<int32_t>{1, 512, 3}));
  EXPECT_EQ(Text(ran_with->heads), "100x8 200x16 300x32 ");
  EXPECT_EQ(ran_with->tasks, (std::vector<std::string>{"greedy", "k50-p0.9"}));
}

TEST_F(ProgramFlagsTest, RefusesNumbersThatAreNoneOrOutOfRange) {
  for (const char* value :
       {"0", "513", "x", "1x", "1.5", "1e2", " 1", "-1", "99999999999999999999"}) {
    EXPECT_EQ(ErrorOf({"--batch", value}),
              "program: --batch = \"" + std::string(value) + "\" is not allowed: [1, 512]\n");
  }
  EXPECT_EQ(ErrorOf({"--batch", "8,0"}), "program: --batch = \"0\" is not allowed: [1, 512]\n");
  EXPECT_EQ(ErrorOf({"--batch", ""}), "program: --batch = \"\" is not allowed: [1, 512]\n");
  EXPECT_EQ(ErrorOf({"--vocab", "63"}),
            "program: --vocab = \"63\" is not allowed: [64, 1048576]\n");
  EXPECT_EQ(ErrorOf({"--vocab", "64,128"}),
            "program: --vocab = \"64,128\" is not allowed: [64, 1048576]\n");
  for (const char* value : {"0.99", "60.01", "nan", "inf", "1s"}) {
    EXPECT_EQ(ErrorOf({"--seconds", value}),
              "program: --seconds = \"" + std::string(value) + "\" is not allowed: [1, 60]\n");
  }
}

TEST_F(ProgramFlagsTest, RefusesNamesThatThereAreNot) {
  EXPECT_EQ(ErrorOf({"--kind", "two"}), "program: --kind = \"two\" is not allowed: one, other\n");
  EXPECT_EQ(ErrorOf({"--kind", "one,other"}),
            "program: --kind = \"one,other\" is not allowed: one, other\n");
  EXPECT_EQ(ErrorOf({"--task", "greedy,gready"}),
            "program: --task = \"gready\" is not allowed: greedy, k50-p0.9\n");
  EXPECT_EQ(ErrorOf({"--rows", ""}), "program: --rows = \"\" is not allowed: FILE\n");
}

TEST_F(ProgramFlagsTest, RefusesShapesThatAreNone) {
  for (const char* value :
       {"4096", "4096x", "x64", "4096x64x", "4096X64", "63x64", "4096x0", "9999999x64", "x", ""}) {
    EXPECT_EQ(ErrorOf({"--head", value}),
              "program: --head = \"" + std::string(value) +
                  "\" is not allowed: VOCABxDIM in [64, 8388608] and [1, 1048576]\n");
  }
  EXPECT_NE(ErrorOf({"--heads", "4096x64,1"}).find("--heads = \"1\""), std::string::npos);
}

TEST_F(ProgramFlagsTest, NamesAFlagThatThereIsNot) {
  for (const char* flag : {"--batches", "-b", "--batches=3", "8"}) {
    EXPECT_EQ(ErrorOf({"--vocab", "64", flag}),
              "program: flag = \"" + std::string(flag) +
                  "\" is not allowed: --help, --vocab, --batch, --seconds, --kind, --head, "
                  "--heads, --task, --rows\n");
  }
}

TEST_F(ProgramFlagsTest, NamesAFlagWithoutAValueOrWithTwo) {
  EXPECT_EQ(ErrorOf({"--batch"}), "program: --batch takes one value: rows of a call: [1, 512]\n");
  EXPECT_EQ(ErrorOf({"--rows"}), "program: --rows takes one value: the rows\n");
  EXPECT_EQ(ErrorOf({"--vocab", "64", "--vocab", "65"}),
            "program: --vocab takes one value: tokens of a row: [64, 1048576]\n");
  EXPECT_EQ(ErrorOf({"--vocab", "--batch", "1"}),
            "program: --vocab = \"--batch\" is not allowed: [64, 1048576]\n");
}

TEST_F(ProgramFlagsTest, HelpTellsEveryFlagWithItsDefaultAndRangeAndRunsNothing) {
  ASSERT_EQ(Start({"--help"}), 0);
  EXPECT_EQ(ran_with, nullptr);
  EXPECT_EQ(error_, "");
  for (const char* said : {"What it is for.", "tokens of a row: [64, 1048576]", "one, other",
                           "greedy, k50-p0.9", "--rows FILE"}) {
    EXPECT_NE(output_.find(said), std::string::npos) << said;
  }
  // CLI11 writes a default after = up to version 2.1, then in brackets.
  const auto has_default = [this](const std::string& flag, const std::string& value) {
    return output_.find(flag + "=" + value) != std::string::npos ||
           output_.find(flag + " [" + value) != std::string::npos;
  };
  EXPECT_TRUE(has_default("--vocab N", "128256")) << output_;
  EXPECT_TRUE(has_default("--batch N", "1,8")) << output_;
  EXPECT_TRUE(has_default("--kind NAME", "one")) << output_;
  EXPECT_TRUE(has_default("--head VOCABxDIM", "4096x64")) << output_;
  EXPECT_TRUE(has_default("--heads VOCABxDIM", "4096x64,8192x32")) << output_;
  EXPECT_FALSE(has_default("--seconds N", "")) << output_;  // 0 is none of its range
}

TEST_F(ProgramFlagsTest, EndsAsTheRunDoes) {
  result_of_run = 1;
  EXPECT_EQ(Start({}), 1);
  EXPECT_EQ(error_, "");
  result_of_run = 0;
  ProgramFlags flags("program", "About.");
  char name[] = "program";
  char* argv[] = {name, nullptr};
  testing::internal::CaptureStderr();
  EXPECT_EQ(
      RunProgram(1, argv, "program", flags, []() -> int { throw std::runtime_error("no device"); }),
      1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "program: no device\n");
}

}  // namespace
}  // namespace sluice::bench
