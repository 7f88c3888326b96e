// Ranks that do not come to NCCL's own meeting. One GPU is enough: only one rank goes there.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <thread>

#include "sluice/cuda/nccl_shards.hpp"
#include "tests/parallel/ranks.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortLimit{3'000};

// Takes part in the ranks' first exchange, where rank 0 tells NCCL's id, and in nothing behind it.
void MeetOnly(ShardGroup& group) {
  struct UniqueId {
    ncclResult_t made;
    ncclUniqueId id;
  } own{};
  std::vector<UniqueId> all(static_cast<size_t>(group.ranks()));
  group.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
}

std::vector<std::string> AnswersWhereTheSecondRank(
    const std::function<std::string(ShardGroup&)>& second) {
  return AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
    if (group.rank() == 1) return second(group);
    // Asked in the child: a CUDA context does not survive a fork.
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      MeetOnly(group);
      return "no GPU";
    }
    cuda::ConnectNcclGroup(group, kShortLimit);
    return "connected";
  });
}

TEST(NcclGroup, ExchangesOnceAllHaveMet) {
  // One rank a GPU, on as many as are here: already one goes through the whole meeting.
  const auto devices = AnswersOfRanks(1, [](const std::string&, int32_t) {
    int count = 0;
    return std::to_string(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  });
  const int ranks = std::stoi(devices[0]);
  if (ranks == 0) GTEST_SKIP() << "no GPU";
  ExpectAllWell(AnswersOfGroup(ranks, [](ShardGroup& group) -> std::string {
    cudaSetDevice(group.rank());
    const auto nccl = cuda::ConnectNcclGroup(group, kLimit);
    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    std::vector<std::byte> all(static_cast<size_t>(group.ranks()) * 100);
    std::byte* memory = nullptr;
    cudaMalloc(&memory, all.size() + 100);
    cudaMemsetAsync(memory, group.rank() + 1, 100, stream);
    nccl->AllGather({memory, 100}, {memory + 100, std::ssize(all)}, stream);
    nccl->Await(stream);
    cudaMemcpy(all.data(), memory + 100, all.size(), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<std::byte>(i / 100 + 1)) return "wrong byte " + std::to_string(i);
    }
    return "";
  }));
}

TEST(NcclGroup, NamesARankThatEndsBeforeNcclMeets) {
  const auto answers = AnswersWhereTheSecondRank([](ShardGroup& group) -> std::string {
    MeetOnly(group);
    return "";
  });
  if (answers[0] == "no GPU") GTEST_SKIP() << "no GPU";
  EXPECT_EQ(answers[1], "");
  EXPECT_NE(answers[0].find("rank = 1, which has ended"), std::string::npos) << answers[0];
}

TEST(NcclGroup, GivesUpAtItsLimitWhereARankStalls) {
  const auto answers = AnswersWhereTheSecondRank([](ShardGroup& group) -> std::string {
    MeetOnly(group);
    std::this_thread::sleep_for(2 * kShortLimit);  // then says that it is well
    const ncclResult_t own = ncclSuccess;
    std::vector<ncclResult_t> all(2);
    group.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return "";
  });
  if (answers[0] == "no GPU") GTEST_SKIP() << "no GPU";
  EXPECT_NE(answers[0].find("rank 0"), std::string::npos) << answers[0];
  EXPECT_NE(answers[0].find("within 3000 ms"), std::string::npos) << answers[0];
}

TEST(NcclGroup, SaysOnEveryRankThatTwoRanksCannotShareAGpu) {
  const auto answers = AnswersOfGroup(2, [](ShardGroup& group) -> std::string {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return "no GPU";
    cuda::ConnectNcclGroup(group, kShortLimit);
    return "connected";
  });
  if (answers[0] == "no GPU") GTEST_SKIP() << "no GPU";
  for (const std::string& answer : answers) {
    EXPECT_NE(answer.find("an NCCL group, rank 0"), std::string::npos) << answer;
  }
}

}  // namespace
}  // namespace sluice::test
