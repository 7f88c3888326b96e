// NCCL between ranks that have met in a ShardGroup.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/cuda_check.h"
#include "sluice/cuda/nccl_shards.hpp"
#include "support/check.h"

namespace sluice::cuda {
namespace {

using Clock = std::chrono::steady_clock;

void RequireNccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw Error(ErrorCode::kUnavailable, what, ncclGetErrorString(result), "what NCCL can do");
}

class NcclGroup final : public NcclShardGroup {
 public:
  NcclGroup(ShardGroup& group, std::chrono::milliseconds limit) : group_(group), limit_(limit) {
    struct UniqueId {
      ncclResult_t made;
      ncclUniqueId id;
    };
    // Rank 0's is what all take. Where it has none, all throw: no rank may wait for it in NCCL.
    UniqueId own{ncclSuccess, {}};
    if (rank() == 0) own.made = ncclGetUniqueId(&own.id);
    std::vector<UniqueId> all(static_cast<size_t>(ranks()));
    group_.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    RequireNccl(all[0].made, "an NCCL id");
    Connect(all[0].id);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override {
    if (communicator_ != nullptr) ncclCommAbort(communicator_);
  }

  int32_t rank() const override { return group_.rank(); }
  int32_t ranks() const override { return group_.ranks(); }

  void AllGather(DeviceArray<const std::byte> own, DeviceArray<std::byte> all,
                 void* stream) override {
    if (communicator_ == nullptr) ThrowGivenUp();
    CheckInRange("all.size", all.size, own.size * ranks(), own.size * ranks());
    RequireNccl(ncclAllGather(own.data, all.data, static_cast<size_t>(own.size), ncclInt8,
                              communicator_, static_cast<cudaStream_t>(stream)),
                "an exchange through NCCL");
  }

  void Await(void* stream) override {
    if (communicator_ == nullptr) ThrowGivenUp();
    const auto deadline = Clock::now() + limit_;
    for (;;) {
      const cudaError_t result = cudaStreamQuery(static_cast<cudaStream_t>(stream));
      if (result == cudaSuccess) return;
      if (result != cudaErrorNotReady) {
        // Nothing that is on this device ends any more; the others give up at their limits.
        ncclCommAbort(std::exchange(communicator_, nullptr));
        RequireCuda(result, "a sharded step");
      }
      ncclResult_t state = ncclSuccess;
      const ncclResult_t polled = ncclCommGetAsyncError(communicator_, &state);
      if (polled != ncclSuccess) state = polled;
      if (state != ncclSuccess || Clock::now() > deadline) GiveUp(state);
      std::this_thread::yield();
    }
  }

 private:
  // In two steps: a rank in a blocking meeting waits for ever when another does not come, and a
  // communicator that does not block starts a thread at each call. So the ranks meet without
  // blocking, and split off one that blocks when all have come.
  void Connect(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t meeting = nullptr;
    ncclResult_t state = ncclCommInitRankConfig(&meeting, ranks(), id, rank(), &config);
    try {
      RequireAllWell(Settled(meeting, state));
      config.blocking = 1;
      // On a communicator that does not block this does not either, and may still say that all is
      // well: its own state shows when it is done.
      state = ncclCommSplit(meeting, 0, rank(), &communicator_, &config);
      if (state == ncclSuccess) state = ncclInProgress;
      state = Settled(meeting, state);
      if (state == ncclSuccess && communicator_ == nullptr) state = ncclInternalError;
      RequireAllWell(state);
    } catch (...) {
      if (communicator_ != nullptr) ncclCommAbort(communicator_);
      if (meeting != nullptr) ncclCommAbort(meeting);
      throw;
    }
    ncclCommAbort(meeting);
  }

  // The result of a call on `meeting`; ncclInProgress where it takes longer than the limit.
  ncclResult_t Settled(ncclComm_t meeting, ncclResult_t state) const {
    const auto deadline = Clock::now() + limit_;
    while (state == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const ncclResult_t polled = ncclCommGetAsyncError(meeting, &state);
      if (polled != ncclSuccess) state = polled;
    }
    return state;
  }

  // Throws on every rank, naming the first that has an error or is gone.
  void RequireAllWell(ncclResult_t own) {
    std::vector<ncclResult_t> all(static_cast<size_t>(ranks()));
    group_.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    for (size_t r = 0; r < all.size(); ++r) {
      if (all[r] == ncclSuccess) continue;
      throw Error(ErrorCode::kUnavailable, "an NCCL group, rank " + std::to_string(r),
                  ncclGetErrorString(all[r]),
                  "a connection within " + std::to_string(limit_.count()) + " ms");
    }
  }

  [[noreturn]] static void ThrowGivenUp() {
    throw Error(ErrorCode::kUnavailable, "group", "given up after an error", "a working group");
  }

  // The ranks that are well all come here, and the exchange between their processes names one that
  // does not.
  [[noreturn]] void GiveUp(ncclResult_t state) {
    ncclCommAbort(std::exchange(communicator_, nullptr));
    const std::byte own{};
    std::vector<std::byte> all(static_cast<size_t>(ranks()));
    group_.AllGather({&own, 1}, all);
    throw Error(ErrorCode::kUnavailable, "a sharded step",
                state == ncclSuccess ? "no end of it" : ncclGetErrorString(state),
                "an answer within " + std::to_string(limit_.count()) + " ms");
  }

  ShardGroup& group_;
  std::chrono::milliseconds limit_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<NcclShardGroup> ConnectNcclGroup(ShardGroup& group,
                                                 std::chrono::milliseconds limit) {
  CheckInRange("limit", limit.count(), 1, INT32_MAX);
  return std::make_unique<NcclGroup>(group, limit);
}

}  // namespace sluice::cuda
