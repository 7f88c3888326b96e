// Ranks that die, stall, stay away or say something else: an Error that names them, never a hang.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "tests/parallel/ranks.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Long enough for the ranks that are well to come, short enough to wait for.
constexpr milliseconds kShortLimit{2'000};

std::string Gather(ShardGroup& group, size_t bytes) {
  std::vector<std::byte> own(bytes, static_cast<std::byte>(group.rank() + 1));
  std::vector<std::byte> all(bytes * static_cast<size_t>(group.ranks()));
  group.AllGather(own, all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != static_cast<std::byte>(i / bytes + 1)) return "wrong byte " + std::to_string(i);
  }
  return "";
}

TEST(AnswersOfRanks, SayWithWhichStatusOrSignalARankEnded) {
  const auto answers = AnswersOfRanks(3, [](const std::string&, int32_t rank) -> std::string {
    if (rank == 1) _exit(66);
    if (rank == 2) raise(SIGKILL);
    return "";
  });
  EXPECT_EQ(answers,
            (std::vector<std::string>{"", "ended with status 66", "killed by signal 9"}));
}

TEST(SocketGroup, GathersWhatEveryRankSendsUpToSizesThatNoSocketHolds) {
  for (const int32_t ranks : {1, 2, 3, 5}) {
    ExpectAllWell(AnswersOfGroup(ranks, [](ShardGroup& group) -> std::string {
      for (const size_t bytes : {size_t{1}, size_t{0}, size_t{777}, size_t{5} << 20, size_t{3}}) {
        const std::string answer = Gather(group, bytes);
        if (!answer.empty()) return std::to_string(bytes) + " bytes: " + answer;
      }
      return "";
    }));
  }
}

TEST(SocketGroup, NamesTheRankThatDiedOnAllOthers) {
  const auto answers = AnswersOfGroup(4, [](ShardGroup& group) -> std::string {
    Gather(group, 100);
    if (group.rank() == 2) raise(SIGKILL);
    for (;;) Gather(group, 100);
  });
  for (const size_t r : {0, 1, 3}) {
    EXPECT_TRUE(answers[r].starts_with("rank = 2, which ")) << answers[r];
    EXPECT_TRUE(answers[r].ends_with("a rank that answers within 20000 ms")) << answers[r];
  }
}

TEST(SocketGroup, NamesTheRankThatStallsWithinTheLimit) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto start = std::chrono::steady_clock::now();
  const auto answers = AnswersOfGroup(
      3,
      [&](ShardGroup& group) -> std::string {
        Gather(group, 100);
        char word = 0;
        if (group.rank() == 1) {  // its sockets are open and silent until the others have gone
          for (int gone = 0; gone < 2;) gone += read(ends[0], &word, 1) == 1 ? 1 : 0;
          return "";
        }
        std::string answer = "no Error";
        try {
          Gather(group, 100);
        } catch (const Error& error) {
          answer = error.what();
        }
        return write(ends[1], &word, 1) == 1 ? answer : "no pipe";
      },
      kShortLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const size_t r : {0, 2}) {
    EXPECT_TRUE(answers[r].starts_with("rank = 1, which ")) << answers[r];
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(SocketGroup, IsOfNoUseAfterAnError) {
  const auto answers = AnswersOfGroup(2, [](ShardGroup& group) -> std::string {
    if (group.rank() == 1) return "";
    std::string first;
    try {
      Gather(group, 10);
    } catch (const Error& error) {
      first = error.what();
    }
    try {
      Gather(group, 10);
    } catch (const Error& error) {
      return error.what() == first && error.code() == ErrorCode::kUnavailable ? "" : error.what();
    }
    return "no Error";
  });
  ExpectAllWell(answers);
}

TEST(SocketGroup, NamesTheRankThatSendsAnotherNumberOfBytes) {
  const auto answers = AnswersOfGroup(2, [](ShardGroup& group) -> std::string {
    return Gather(group, group.rank() == 0 ? 16 : 24);
  });
  EXPECT_TRUE(answers[0].starts_with("rank = 1, which sent 24 bytes where this one sends 16"))
      << answers[0];
}

TEST(SocketGroup, NamesTheRankThatDoesNotCome) {
  const auto answers =
      AnswersOfRanks(3, [](const std::string& folder, int32_t rank) -> std::string {
        if (rank == 1) return "";
        ConnectShardGroup(folder, rank, 3, kShortLimit);
        return "all came";
      });
  // Rank 2 asks rank 1 itself; rank 0 may instead see rank 2 come and rank 1 not.
  for (const size_t r : {0, 2}) {
    EXPECT_EQ(answers[r],
              "rank = 1, which did not come is not allowed: a rank that answers within "
              "2000 ms");
  }
}

TEST(SocketGroup, RefusesGroupsOfOtherSizes) {
  const auto answers =
      AnswersOfRanks(2, [](const std::string& folder, int32_t rank) -> std::string {
        ConnectShardGroup(folder, rank, rank == 0 ? 3 : 2, kShortLimit);
        return "all came";
      });
  EXPECT_EQ(answers[0], "ranks = 2 on rank 1 is not allowed: 3, as on rank 0");
}

TEST(SocketGroup, RefusesRanksAndFoldersThatCannotBe) {
  auto error_of = [](std::string_view folder, int32_t rank, int32_t ranks, milliseconds limit) {
    try {
      ConnectShardGroup(folder, rank, ranks, limit);
    } catch (const Error& error) {
      return error.parameter();
    }
    return std::string("none");
  };
  EXPECT_EQ(error_of("/tmp", 2, 2, kLimit), "rank");
  EXPECT_EQ(error_of("/tmp", 0, 0, kLimit), "ranks");
  EXPECT_EQ(error_of("/tmp", 0, 1, milliseconds(0)), "limit");
  EXPECT_EQ(error_of(std::string(200, 'x'), 0, 1, kLimit), "directory");
  EXPECT_EQ(error_of("/nowhere/at/all", 0, 1, kLimit), "the socket /nowhere/at/all/rank0");
}

}  // namespace
}  // namespace sluice::test
