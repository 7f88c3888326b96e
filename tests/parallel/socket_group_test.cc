// Ranks that die, stall, stay away or say something else: an Error that names them, never a hang.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>

#include "tests/parallel/ranks.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

// Long enough for the ranks that are well to come, short enough to wait for.
constexpr milliseconds kShortLimit{2'000};

// Between processes: each word that is told is heard once.
class Words {
 public:
  Words() { is_open_ = pipe(ends_) == 0; }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() {
    close(ends_[0]);
    close(ends_[1]);
  }

  bool Tell(int listeners) const {
    for (; listeners > 0; --listeners) {
      if (write(ends_[1], "", 1) != 1) return false;
    }
    return is_open_;
  }
  bool Hear() const {
    char word = 0;
    return read(ends_[0], &word, 1) == 1;
  }

 private:
  int ends_[2];
  bool is_open_ = false;
};

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
  EXPECT_EQ(answers, (std::vector<std::string>{"", "ended with status 66", "killed by signal 9"}));
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
  const Words gone;
  const auto start = std::chrono::steady_clock::now();
  const auto answers = AnswersOfGroup(
      3,
      [&](ShardGroup& group) -> std::string {
        Gather(group, 100);
        if (group.rank() == 1) {  // its sockets are open and silent until the others have gone
          return gone.Hear() && gone.Hear() ? "" : "no pipe";
        }
        std::string answer = "no Error";
        try {
          Gather(group, 100);
        } catch (const Error& error) {
          answer = error.what();
        }
        return gone.Tell(1) ? answer : "no pipe";
      },
      kShortLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const size_t r : {0, 2}) {
    EXPECT_TRUE(answers[r].starts_with("rank = 1, which ")) << answers[r];
  }
}

TEST(SocketGroup, HangsUpOnRanksThatItCannotTellWhy) {
  const Words has_given_up, has_heard;
  const auto answers = AnswersOfRanks(3, [&](const std::string& folder, int32_t rank) {
    // Rank 2 is silent, and rank 0 gives up in the middle of what it sends to rank 1.
    const auto group = ConnectShardGroup(folder, rank, 3, rank == 0 ? kShortLimit : kLimit);
    if (rank == 1) has_given_up.Hear();
    std::string answer;
    try {
      if (rank != 2) Gather(*group, size_t{5} << 20);
    } catch (const Error& error) {
      answer = error.what();
    }
    if (rank == 0) has_given_up.Tell(1);
    if (rank == 1) has_heard.Tell(2);
    if (rank != 1) has_heard.Hear();
    return answer;
  });
  EXPECT_TRUE(answers[0].starts_with("rank = ")) << answers[0];
  EXPECT_TRUE(answers[1].starts_with("rank = 0, which has ended")) << answers[1];
}

TEST(SocketGroup, MeetsWhereAStrangerConnectsAndSaysNothing) {
  const Words has_come, have_met;
  const auto answers =
      AnswersOfRanks(3, [&](const std::string& folder, int32_t rank) -> std::string {
        if (rank == 2) {
          sockaddr_un address{AF_UNIX, ""};
          std::strcpy(address.sun_path, (folder + "/rank0").c_str());
          const int stranger = socket(AF_UNIX, SOCK_STREAM, 0);
          while (connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            usleep(1000);
          }
          return has_come.Tell(1) && have_met.Hear() ? "" : "no pipe";
        }
        if (rank == 1) has_come.Hear();
        std::string answer;
        try {
          Gather(*ConnectShardGroup(folder, rank, 2, kLimit), 10);
        } catch (const Error& error) {
          answer = error.what();
        }
        if (rank == 1) have_met.Tell(1);
        return answer;
      });
  ExpectAllWell(answers);
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
  // The same for every rank, though the last one's name is longer.
  EXPECT_EQ(error_of(std::string(97, 'x'), 0, 1024, kLimit), "directory");
  EXPECT_EQ(error_of(std::string(97, 'x'), 1023, 1024, kLimit), "directory");
  const std::string longest(96, 'x');
  EXPECT_EQ(error_of(longest, 1023, 1024, kLimit), "the socket " + longest + "/rank1023");
  EXPECT_EQ(error_of("/nowhere/at/all", 0, 1, kLimit), "the socket /nowhere/at/all/rank0");
}

}  // namespace
}  // namespace sluice::test
