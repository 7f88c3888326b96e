#include "server/admission/encode_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace sluice::test {
namespace {

using server::EncodePool;

TEST(EncodePool, WorksElsewhereAndGoesOnOnTheLoop) {
  boost::asio::io_context loop;
  auto guard = boost::asio::make_work_guard(loop);
  EncodePool pool(2);
  std::atomic<int> worked{0};
  int done = 0;
  const std::thread::id loop_thread = std::this_thread::get_id();
  for (int i = 0; i < 100; ++i) {
    pool.Run(
        [&] {
          EXPECT_NE(std::this_thread::get_id(), loop_thread);
          ++worked;
        },
        loop.get_executor(),
        [&] {
          EXPECT_EQ(std::this_thread::get_id(), loop_thread);
          if (++done == 100) guard.reset();
        });
  }
  loop.run();
  EXPECT_EQ(worked, 100);
  EXPECT_EQ(done, 100);
}

// As many long jobs as there are threads, which end when a short one has run.
TEST(EncodePool, AShortJobDoesNotWaitForLongOnes) {
  constexpr size_t kLong = size_t{16} << 20;
  boost::asio::io_context loop;
  auto guard = boost::asio::make_work_guard(loop);
  std::promise<void> has_run;
  const std::shared_future<void> of_short = has_run.get_future().share();
  std::atomic<int> in_time{0};
  int done = 0;
  const auto then = [&] {
    if (++done == 4) guard.reset();
  };
  EncodePool pool(3);
  for (int i = 0; i < 3; ++i) {
    pool.Run(
        [&] {
          // Far more than it takes, and an end where it never comes.
          if (of_short.wait_for(std::chrono::minutes(5)) == std::future_status::ready) ++in_time;
        },
        loop.get_executor(), then, kLong);
  }
  pool.Run([&] { has_run.set_value(); }, loop.get_executor(), then);
  loop.run();
  EXPECT_EQ(in_time, 3);
}

// Short ones go first, but not for ever: by their bytes each kind gets its half.
TEST(EncodePool, ALongJobDoesNotWaitForAllShortOnes) {
  boost::asio::io_context loop;
  auto guard = boost::asio::make_work_guard(loop);
  std::promise<void> has_begun, all_wait;
  std::string order;  // of one thread
  EncodePool pool(1);
  const auto run = [&](char name, size_t bytes, uint64_t group) {
    pool.Run([&order, name] { order += name; }, loop.get_executor(), [] {}, bytes, group);
  };
  pool.Run(
      [&] {
        has_begun.set_value();
        all_wait.get_future().wait();
      },
      loop.get_executor(), [] {}, 1, 9);
  has_begun.get_future().wait();
  for (int i = 0; i < 40; ++i) run('s', 100'000, 1);
  for (int i = 0; i < 3; ++i) run('L', 2'000'000, 2);
  pool.Run([] {}, loop.get_executor(), [&] { guard.reset(); }, 90'000'000, 2);
  all_wait.set_value();
  loop.run();
  // A MiB of short ones, and then two megabytes more for those of the long one before.
  EXPECT_EQ(order,
            std::string(11, 's') + "L" + std::string(20, 's') + "L" + std::string(9, 's') + "L");
}

// However many jobs a group has, another's goes after one of them.
TEST(EncodePool, GroupsHaveTheirJobsInTurn) {
  boost::asio::io_context loop;
  auto guard = boost::asio::make_work_guard(loop);
  std::promise<void> has_begun, all_wait;
  std::string order;  // of one thread
  EncodePool pool(1);
  const auto run = [&](std::string_view name, size_t bytes, uint64_t group) {
    pool.Run([&order, name] { order += name; }, loop.get_executor(), [] {}, bytes, group);
  };
  pool.Run(
      [&] {
        has_begun.set_value();
        all_wait.get_future().wait();
      },
      loop.get_executor(), [] {}, 1, 9);
  has_begun.get_future().wait();
  for (int i = 0; i < 4; ++i) run("a", 100'000, 1);
  for (int i = 0; i < 3; ++i) run("b", 40'000, 2);
  for (int i = 0; i < 2; ++i) run("L", 9'000'000, 3);  // a long one goes after all others
  run("M", 2'000'000, 4);
  pool.Run([] {}, loop.get_executor(), [&] { guard.reset(); }, 90'000'000, 3);  // and this one last
  all_wait.set_value();
  loop.run();
  EXPECT_EQ(order, "abbbaaaLML");
}

// A client with one request in hand and another one that waits: each of its jobs is pushed while
// the one before runs, so that the group is never without one when it is looked at.
TEST(EncodePool, AGroupThatComesBackGoesOnFromWhatItHad) {
  boost::asio::io_context loop;
  auto guard = boost::asio::make_work_guard(loop);
  std::promise<void> has_begun, all_wait;
  std::string order;  // of one thread
  int left = 4;
  int done = 0;
  const auto then = [&] {
    if (++done == 24) guard.reset();
  };
  EncodePool pool(1);
  std::function<void()> back = [&] {
    order += "B";
    if (--left > 0) pool.Run(back, loop.get_executor(), then, 900'000, 2);
  };
  pool.Run(
      [&] {
        has_begun.set_value();
        all_wait.get_future().wait();
      },
      loop.get_executor(), [] {}, 1, 9);
  has_begun.get_future().wait();
  for (int i = 0; i < 20; ++i) {
    pool.Run([&] { order += "a"; }, loop.get_executor(), then, 100'000, 1);
  }
  pool.Run(back, loop.get_executor(), then, 900'000, 2);
  all_wait.set_value();
  loop.run();
  // Nine of 100 kB for each of 900 kB.
  EXPECT_EQ(order, "aB" + std::string(8, 'a') + "B" + std::string(9, 'a') + "B" + "aaB");
}

// The job in hand ends the pool's last wait itself, when the pool's end was asked for.
TEST(EncodePool, WaitsForWhatRunsAndDropsTheRest) {
  boost::asio::io_context loop;
  std::promise<void> has_begun;
  std::atomic<bool> ends = false;
  std::atomic<bool> has_worked = false;
  bool goes_on = false;
  const auto dropped = std::make_shared<int>();
  auto pool = std::make_unique<EncodePool>(1);
  pool->Run(
      [&] {
        has_begun.set_value();
        while (!ends) std::this_thread::yield();
        // Not a promise: time for the destructor to have begun, so that this job can see it wait.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        has_worked = true;
      },
      loop.get_executor(), [&] { goes_on = true; });
  pool->Run([dropped] {}, loop.get_executor(), [dropped] {});
  has_begun.get_future().wait();
  ends = true;
  pool.reset();
  EXPECT_TRUE(has_worked);
  EXPECT_EQ(dropped.use_count(), 1);
  loop.run();
  EXPECT_FALSE(goes_on);
}

}  // namespace
}  // namespace sluice::test
