// A process a rank, from fork: what the body does on each, and what it throws.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/error.hpp"
#include "sluice/shards.hpp"

namespace sluice::test {

// Generous: the machine may be busy.
inline constexpr std::chrono::milliseconds kLimit{20'000};

// An empty folder of its own.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What `body` answers on each rank: "" when all is well. An Error is answered by its text.
inline std::vector<std::string> AnswersOfRanks(
    int32_t ranks,
    const std::function<std::string(const std::string& folder, int32_t rank)>& body) {
  const TemporaryFolder folder;
  std::vector<pid_t> processes;
  std::vector<int> answers;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t process = fork();
    if (process == 0) {
      std::string answer;
      try {
        answer = body(folder.path(), rank);
      } catch (const std::exception& error) {
        answer = error.what();
      }
      const ssize_t written = write(ends[1], answer.data(), answer.size());
      _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
    }
    close(ends[1]);
    processes.push_back(process);
    answers.push_back(ends[0]);
  }
  std::vector<std::string> texts;
  for (size_t r = 0; r < processes.size(); ++r) {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(answers[r], part, sizeof part)) > 0;) {
      text.append(part, static_cast<size_t>(got));
    }
    close(answers[r]);
    int status = 0;
    waitpid(processes[r], &status, 0);
    if (!WIFEXITED(status)) text += "killed by signal " + std::to_string(WTERMSIG(status));
    // What a sanitizer that stops it ends with.
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      text += "ended with status " + std::to_string(WEXITSTATUS(status));
    }
    texts.push_back(text);
  }
  return texts;
}

// The same with a group of those processes.
inline std::vector<std::string> AnswersOfGroup(int32_t ranks,
                                               const std::function<std::string(ShardGroup&)>& body,
                                               std::chrono::milliseconds limit = kLimit) {
  return AnswersOfRanks(ranks, [&](const std::string& folder, int32_t rank) {
    const auto group = ConnectShardGroup(folder, rank, ranks, limit);
    return body(*group);
  });
}

inline void ExpectAllWell(const std::vector<std::string>& answers) {
  for (size_t r = 0; r < answers.size(); ++r) EXPECT_EQ(answers[r], "") << "rank " << r;
}

}  // namespace sluice::test
