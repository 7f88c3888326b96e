// The pool of commands and bindings: every index once, on workers below the number that it states.
#include "support/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <type_traits>
#include <vector>

#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

// Runs body(index, worker) by the ParallelFor.
template <typename Body>
void RunOn(const ParallelFor& parallel, int64_t count, Body&& body) {
  parallel.run(
      parallel.context, count,
      [](void* state, int64_t index, int worker) {
        (*static_cast<std::remove_reference_t<Body>*>(state))(index, worker);
      },
      &body);
}

TEST(ThreadPool, GivesEveryIndexOnceInManyCalls) {
  ThreadPool pool(3);
  ASSERT_EQ(pool.workers(), 3);
  EXPECT_EQ(pool.parallel().workers, 3);
  for (int call = 0; call < 200; ++call) {
    std::vector<std::atomic<int>> taken(17);
    std::atomic<bool> is_worker_known = true;
    RunOn(pool.parallel(), 17, [&](int64_t index, int worker) {
      ++taken[static_cast<size_t>(index)];
      if (worker < 0 || worker >= 3) is_worker_known = false;
    });
    for (const std::atomic<int>& count : taken) ASSERT_EQ(count, 1) << call;
    ASSERT_TRUE(is_worker_known);
  }
}

TEST(ThreadPool, OfOneWorkerIsNoParallelFor) {
  ThreadPool pool(1);
  EXPECT_EQ(pool.parallel().run, nullptr);
}

// A task that uses the pool itself: its call runs on the task's own thread.
TEST(ThreadPool, ServesACallWithinACall) {
  ThreadPool pool(2);
  std::atomic<int> inner = 0;
  RunOn(pool.parallel(), 4, [&](int64_t, int) {
    const pthread_t own = pthread_self();
    RunOn(pool.parallel(), 5, [&](int64_t, int worker) {
      if (worker == 0 && pthread_equal(own, pthread_self()) != 0) ++inner;
    });
  });
  EXPECT_EQ(inner, 20);
}

// A forked process has none of the threads and does the work itself.
TEST(ThreadPool, OfMoreThreadsThanThereIsRoomForThrows) {
  if (kSlowdown > 1) GTEST_SKIP() << "a sanitizer takes more addresses than the limit allows";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{size_t{512} << 20,
                       size_t{512} << 20};  // bytes; a thread has a stack of 8 MiB
    setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(1000);
    } catch (const std::system_error&) {
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ThreadPool, WorksInAForkedProcess) {
  ThreadPool pool(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);  // a call that waits for threads that are not there ends the child
    int done = 0;
    RunOn(pool.parallel(), 3, [&](int64_t, int) { ++done; });
    _exit(done);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace sluice::test
