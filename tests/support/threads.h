// A parallel-for of real threads.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "sluice/execution.hpp"

namespace sluice::test {

// So many threads, which take the next index each. They live as long as one call of it.
inline ParallelFor OnThreads(int workers) {
  const auto run = [](void* context, int64_t count, ParallelFor::Task task, void* state) {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int worker = 0; worker < static_cast<int>(reinterpret_cast<intptr_t>(context)); ++worker) {
      threads.emplace_back([&, worker] {
        for (int64_t i = next++; i < count; i = next++) task(state, i, worker);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  return {workers, reinterpret_cast<void*>(static_cast<intptr_t>(workers)), run};
}

}  // namespace sluice::test
