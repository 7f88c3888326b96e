// Groups of requests are served in turn: the requests of one do not hold up those of another.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/turns.h"
#include "engine/waiting_heap.h"
#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/one_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

constexpr uint64_t kMany = 11, kOther = 22, kThird = 33;

EngineRequest Of(uint64_t group, EngineRequest request, int32_t priority = 0) {
  request.group = group;
  request.priority = priority;
  return request;
}

CheckingOptions Options(int32_t slots, int64_t pages = 1000) {
  CheckingOptions options;
  options.info.max_requests = slots;
  options.info.max_step_tokens = 64;
  options.info.pages = pages;
  return options;
}

// Steps until the request has its first row.
int64_t StepsTo(OneClient& bench, RequestAddress request) {
  int64_t steps = 0;
  for (; bench.client.Of(request).rows == 0 && steps < 1000; ++steps) {
    bench.client.Take(bench.engine.Step());
  }
  return steps;
}

TEST(EngineTurns, AHundredChoicesOfOneGroupDelayATokenOfAnotherByTwoStepsAtMost) {
  for (const int32_t in_flight : {0, 1}) {
    // Prompts of several steps, too: 16 slots, and 8 prompts of 40 tokens would be 5 of 64.
    for (const size_t prompt : {size_t{1}, size_t{40}}) {
      OneClient bench(Options(16), {.steps_in_flight = in_flight});
      for (int32_t i = 0; i < 32; ++i) {
        bench.client.Submit(Of(kMany, MakeRequest(std::vector<int32_t>(prompt, i), 60)));
      }
      for (int step = 0; step < 3; ++step) bench.client.Take(bench.engine.Step());
      const RequestAddress one = bench.client.Submit(Of(kOther, MakeRequest({1}, 1)));
      EXPECT_LE(StepsTo(bench, one), 1 + in_flight) << "prompts of " << prompt;
      Drain(bench.engine, {&bench.client});
      ExpectIdle(bench.engine, bench.runner);
    }
  }
}

TEST(EngineTurns, AGroupHasAllSlotsButThoseKeptForOthers) {
  OneClient bench(Options(16));
  for (int32_t i = 0; i < 20; ++i) bench.client.Submit(Of(kMany, MakeRequest({i}, 20)));
  for (int step = 0; step < 2; ++step) bench.client.Take(bench.engine.Step());
  // Alone, it leaves one.
  EXPECT_EQ(bench.engine.counters().running, 15);
  const RequestAddress other = bench.client.Submit(Of(kOther, MakeRequest({1}, 60)));
  EXPECT_EQ(StepsTo(bench, other), 1);
  EXPECT_EQ(bench.engine.counters().running, 16);
  // Then an eighth is kept again as soon as its requests end; the next ones wait.
  while (bench.client.ended() < 15) bench.client.Take(bench.engine.Step());
  for (int step = 0; step < 2; ++step) bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.engine.counters().running, 6);
  for (int32_t i = 0; i < 20; ++i) bench.client.Submit(Of(kMany, MakeRequest({i}, 20)));
  for (int step = 0; step < 2; ++step) bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.engine.counters().running, 14);
  // Requests without a group take the others.
  for (int32_t i = 0; i < 5; ++i) bench.client.Submit(MakeRequest({i}, 20));
  for (int step = 0; step < 2; ++step) bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.engine.counters().running, 16);
  Drain(bench.engine, {&bench.client});
  ExpectIdle(bench.engine, bench.runner);
}

// Both have more than there is room for, and one of them came with ten times as many.
TEST(EngineTurns, GroupsThatWaitHaveAlikeManyTokens) {
  OneClient bench(Options(8));
  std::vector<RequestAddress> many, few;
  for (int32_t i = 0; i < 60; ++i) {
    many.push_back(bench.client.Submit(Of(kMany, MakeRequest({i}, 5))));
  }
  for (int32_t i = 0; i < 6; ++i) {
    few.push_back(bench.client.Submit(Of(kOther, MakeRequest({i}, 50))));
  }
  const auto tokens = [&](const std::vector<RequestAddress>& of) {
    int64_t sum = 0;
    for (const RequestAddress& address : of) sum += std::ssize(bench.client.Of(address).ids);
    return sum;
  };
  for (int step = 0; step < 50; ++step) bench.client.Take(bench.engine.Step());
  ASSERT_LT(bench.client.ended(), 55u);
  EXPECT_NEAR(static_cast<double>(tokens(many)), static_cast<double>(tokens(few)), 60);
  EXPECT_GT(tokens(many) + tokens(few), 50 * 6);
  Drain(bench.engine, {&bench.client});
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineTurns, APriorityOrdersTheRequestsOfItsGroupAlone) {
  OneClient bench(Options(2));
  std::vector<RequestAddress> running;
  for (int32_t i = 0; i < 2; ++i) {
    running.push_back(bench.client.Submit(Of(i == 0 ? kMany : kOther, MakeRequest({i}, 4))));
  }
  bench.client.Take(bench.engine.Step());
  const RequestAddress late = bench.client.Submit(Of(kMany, MakeRequest({3}, 4), 1));
  const RequestAddress soon = bench.client.Submit(Of(kMany, MakeRequest({4}, 4), -5));
  const RequestAddress second = bench.client.Submit(Of(kMany, MakeRequest({5}, 4), -5));
  std::vector<RequestAddress> all = {soon, second, late};
  for (int32_t i = 0; i < 3; ++i) {
    all.push_back(bench.client.Submit(Of(kOther, MakeRequest({6 + i}, 4))));
  }
  std::vector<int64_t> began(all.size());
  for (int64_t step = 1; bench.engine.HasWork(); ++step) {
    bench.client.Take(bench.engine.Step());
    for (size_t i = 0; i < all.size(); ++i) {
      if (began[i] == 0 && bench.client.Of(all[i]).rows > 0) began[i] = step;
    }
  }
  EXPECT_LT(began[0], began[1]);
  EXPECT_LT(began[1], began[2]);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(began[3 + i], began[i]) << "a priority of another group counted";
  }
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineTurns, TwoThatComeToOneThatIsAloneBeginAtOnce) {
  OneClient bench(Options(64, 4000));
  for (int32_t i = 0; i < 128; ++i) bench.client.Submit(Of(kMany, MakeRequest({i}, 200)));
  for (int step = 0; step < 10; ++step) bench.client.Take(bench.engine.Step());
  // Alone, it leaves half of the eighth.
  EXPECT_EQ(bench.engine.counters().running, 60);
  const RequestAddress other = bench.client.Submit(Of(kOther, MakeRequest({1}, 4)));
  const RequestAddress third = bench.client.Submit(Of(kThird, MakeRequest({1}, 4)));
  EXPECT_LE(StepsTo(bench, other), 2);
  EXPECT_LE(StepsTo(bench, third), 2);
  Drain(bench.engine, {&bench.client});
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineTurns, StepTokensThatWereGivenAreTheBoundOfPromptsToo) {
  CheckingOptions options = Options(64, 4000);
  options.info.max_step_tokens = 256;
  options.info.context = 2000;
  for (const int64_t given : {0, 128, 256}) {
    OneClient bench(options, {.step_tokens = given});
    bench.client.Submit(MakeRequest({1}, 1000));
    for (int step = 0; step < 3; ++step) bench.client.Take(bench.engine.Step());
    const RequestAddress one = bench.client.Submit(MakeRequest(std::vector<int32_t>(1270, 1), 1));
    const int64_t each = given == 0 ? 32 : given - 1;
    EXPECT_EQ(StepsTo(bench, one), (1270 + each - 1) / each) << given;
  }
}

// The tokens of prompts in each step are bounded by the rows that decode in it.
TEST(EngineTurns, AStepReadsAsManyPromptTokensAsRowsDecodeAndUpTo32InAnyCase) {
  CheckingOptions options = Options(64, 4000);
  options.info.max_step_tokens = 256;
  options.info.context = 2000;
  for (const int32_t in_flight : {0, 1}) {
    for (const int64_t decoding : {0, 1, 20, 50}) {
      OneClient bench(options, {.steps_in_flight = in_flight});
      for (int32_t i = 0; i < decoding; ++i) bench.client.Submit(MakeRequest({i}, 1000));
      for (int step = 0; step < 10; ++step) bench.client.Take(bench.engine.Step());
      const int64_t before = bench.engine.counters().prompt_tokens;
      ASSERT_EQ(before, decoding);
      const RequestAddress one = bench.client.Submit(MakeRequest(std::vector<int32_t>(600, 1), 1));
      const int64_t most = decoding == 0 ? 256 : std::max<int64_t>(32, decoding);
      int64_t last = before;
      while (!bench.client.HasEnded(one)) {
        bench.client.Take(bench.engine.Step());
        const int64_t now = bench.engine.counters().prompt_tokens;
        EXPECT_LE(now - last, most) << decoding;
        if (now < before + 600) {
          EXPECT_TRUE(now == last || now - last == most) << now - last;
        }
        last = now;
      }
      EXPECT_EQ(last, before + 600);
    }
  }
}

// The fewest pages with which a prompt of 96 tokens begins at once where the others have begun; -1
// where 1000 are too few.
int64_t FewestPages(CheckingOptions options, const std::vector<EngineRequest>& others) {
  const EngineRequest prompt = Of(kOther, MakeRequest(std::vector<int32_t>(96, 1), 4));
  for (options.info.pages = 24; options.info.pages <= 1000; ++options.info.pages) {
    OneClient bench(options);
    for (const EngineRequest& other : others) bench.client.Submit(other);
    for (int step = 0; step < 2; ++step) bench.client.Take(bench.engine.Step());
    const int64_t running = bench.engine.counters().running;
    bench.client.Submit(prompt);
    bench.client.Take(bench.engine.Step());
    if (running == std::ssize(others) && bench.engine.counters().running > running) {
      return options.info.pages;
    }
  }
  return -1;
}

// A prompt begins where there are pages for it, and for what the others take until it is read: 32
// tokens of it in each step, and a token of each that decodes.
TEST(EngineTurns, APromptWaitsForThePagesThatOthersTakeWhileItIsRead) {
  CheckingOptions options = Options(8);
  options.info.page_tokens = 4;
  options.info.context = 2000;
  const EngineRequest decodes = Of(kThird, MakeRequest({1}, 40));
  EXPECT_EQ(FewestPages(options, {decodes}), 24 + 1 + 1);
  // Drafts give up to five tokens a step. Of three steps two give one token, as far as that is
  // known.
  options.info.max_given_tokens = 5;
  const int64_t has = 2;  // pages, after two steps
  EXPECT_EQ(FewestPages(options, {decodes}), 24 + has + 2);
  // Another prompt has each second turn, so that it takes five steps instead of three.
  options.info.max_given_tokens = 1;
  const EngineRequest reads = Of(kMany, MakeRequest(std::vector<int32_t>(640, 1), 40));
  EXPECT_EQ(FewestPages(options, {decodes, reads}), 24 + 1 + 160 + 2 + 2);
}

// Where pages run out, the group with the most running requests gives some back.
TEST(EngineTurns, AGroupWithOneRequestIsNotPreemptedForAnotherOnesMany) {
  CheckingOptions options = Options(8, 24);
  options.info.page_tokens = 4;
  OneClient bench(options);
  std::vector<EngineRequest> requests;
  std::vector<RequestAddress> addresses;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(Of(kMany, MakeRequest({i, 1}, 30)));
  for (const EngineRequest& request : requests) {
    addresses.push_back(bench.client.Submit(request));
  }
  for (int step = 0; step < 3; ++step) bench.client.Take(bench.engine.Step());
  const RequestAddress one = bench.client.Submit(Of(kThird, MakeRequest({9, 9}, 30)));
  const int64_t first = StepsTo(bench, one);
  EXPECT_LE(first, 1);
  for (int step = 0; step < 29; ++step) bench.client.Take(bench.engine.Step());
  EXPECT_TRUE(bench.client.HasEnded(one));
  EXPECT_GT(bench.engine.counters().preemptions, 0);
  Drain(bench.engine, {&bench.client});
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(bench.client.Of(addresses[i]), ExpectedOf(requests[i], options));
  }
  ExpectIdle(bench.engine, bench.runner);
}

// A request that needs most of the pages begins although others that need few come again and again.
TEST(EngineTurns, ARequestOfManyPagesBeginsAlthoughOthersNeedFew) {
  CheckingOptions options = Options(16, 100);
  options.info.context = 2000;
  OneClient bench(options);
  const int64_t page = bench.runner.info().page_tokens;
  const auto prompt = [&](int64_t pages) {
    return std::vector<int32_t>(static_cast<size_t>(pages * page - 1), 1);
  };
  std::vector<RequestAddress> users(9);
  for (size_t user = 0; user < users.size(); ++user) {
    users[user] = bench.client.Submit(
        Of(100 + user, MakeRequest(prompt(6), 20 + 3 * static_cast<int64_t>(user))));
  }
  for (int step = 0; step < 3; ++step) bench.client.Take(bench.engine.Step());
  const RequestAddress large = bench.client.Submit(Of(kMany, MakeRequest(prompt(60), 1)));
  int64_t steps = 0;
  for (; bench.client.Of(large).rows == 0 && steps < 2000; ++steps) {
    bench.client.Take(bench.engine.Step());
    for (size_t user = 0; user < users.size(); ++user) {
      if (!bench.client.HasEnded(users[user])) continue;
      users[user] = bench.client.Submit(
          Of(100 + user, MakeRequest(prompt(6), 20 + 3 * static_cast<int64_t>(user))));
    }
  }
  EXPECT_LT(steps, 150);
}

// A group that had nothing to read for long is not owed the prompt tokens of that time.
TEST(Turns, TimeWithoutPromptsIsNoCredit) {
  engine::Turns turns(1);
  StopListCache stops;
  std::vector<std::unique_ptr<engine::LiveRequest>> requests;
  const auto join = [&](uint64_t group) -> engine::LiveRequest& {
    EngineRequest request = Of(group, MakeRequest({1}));
    requests.push_back(std::make_unique<engine::LiveRequest>(
        ClientId{0, 0}, request, 8, engine::EngineStop(request, nullptr, stops, {})));
    turns.Join(*requests.back());
    turns.Enqueue(*requests.back(), false);
    return *requests.back();
  };
  engine::LiveRequest& slow = join(kOther);
  engine::Turns::Unlink(slow);  // it runs
  slow.group->served = 3;
  engine::LiveRequest& busy = join(kMany);
  busy.group->served = 1000;
  turns.Serve(*busy.group);
  EXPECT_EQ(join(kOther).group->served, 1000);
  EXPECT_EQ(join(kThird).group->served, 1000);  // one that comes starts there too
  slow.group->served = 500;                     // but one that waits already is owed what it lacks
  EXPECT_EQ(join(kOther).group->served, 500);
}

// A group that may begin nothing is looked at once in a step, however often another has its turn.
TEST(Turns, AGroupThatMayNotBeginIsLookedAtOnceInAStep) {
  engine::Turns turns(1);
  StopListCache stops;
  std::vector<std::unique_ptr<engine::LiveRequest>> requests;
  for (uint64_t group = 1; group <= 100; ++group) {
    EngineRequest request = Of(group, MakeRequest({1}));
    requests.push_back(std::make_unique<engine::LiveRequest>(
        ClientId{0, 0}, request, 8, engine::EngineStop(request, nullptr, stops, {})));
    turns.Join(*requests.back());
    turns.Enqueue(*requests.back(), false);
  }
  const engine::Group* const may = requests[42]->group;
  int looks = 0;
  const auto may_begin = [&](const engine::Group& group) {
    ++looks;
    return &group == may;
  };
  for (int step = 1; step <= 2; ++step) {
    turns.BeginStep();
    for (int turn = 0; turn < 10; ++turn) EXPECT_EQ(turns.Next(may_begin), may);
    EXPECT_EQ(looks, step * (99 + 10));
  }
}

// Requests that wait are taken in the order of a sorted list, whatever comes and goes between.
TEST(Turns, RequestsThatWaitAreInOrderOfPriorityAndThenOfTime) {
  engine::Turns turns(1);
  StopListCache stops;
  Random random(7);
  std::vector<std::unique_ptr<engine::LiveRequest>> requests;
  std::vector<engine::LiveRequest*> sorted;
  for (int round = 0; round < 4000; ++round) {
    const bool comes = sorted.empty() || random.Below(100) < (round < 2000 ? 70 : 30);
    if (comes) {
      EngineRequest request =
          Of(kMany, MakeRequest({1}), static_cast<int32_t>(random.Below(9)) - 4);
      requests.push_back(std::make_unique<engine::LiveRequest>(
          ClientId{0, 0}, request, 8, engine::EngineStop(request, nullptr, stops, {})));
      engine::LiveRequest& its = *requests.back();
      turns.Join(its);
      const bool is_first = random.Below(4) == 0;
      turns.Enqueue(its, is_first);
      const auto place = std::ranges::find_if(sorted, [&](const engine::LiveRequest* other) {
        return is_first ? other->priority >= its.priority : other->priority > its.priority;
      });
      sorted.insert(place, &its);
    } else {
      const auto place = random.Below(2) == 0 ? 0 : random.Below(std::ssize(sorted));
      engine::Turns::Unlink(*sorted[static_cast<size_t>(place)]);
      sorted.erase(sorted.begin() + place);
    }
    ASSERT_EQ(turns.AnyWaiting(), sorted.empty() ? nullptr : sorted.front()) << round;
  }
}

// Each of them has a lower priority number than all before it, or a higher one, or one between.
TEST(Turns, NoOrderOfPrioritiesMakesRequestsThatWaitCostMore) {
  constexpr int32_t kRequests = 4096;
  StopListCache stops;
  for (int order = 0; order < 4; ++order) {
    std::vector<std::unique_ptr<engine::LiveRequest>> requests;
    engine::LiveRequest* first = nullptr;
    int64_t compared = 0;
    const auto is_before = [&](const engine::LiveRequest& a, const engine::LiveRequest& b) {
      ++compared;
      return a.priority < b.priority;
    };
    for (int32_t i = 0; i < kRequests; ++i) {
      const int32_t orders[] = {-i, i, i % 2 == 0 ? i : -i, (i * 1103) % kRequests};
      EngineRequest request = Of(kMany, MakeRequest({1}), orders[order]);
      requests.push_back(std::make_unique<engine::LiveRequest>(
          ClientId{0, 0}, request, 8, engine::EngineStop(request, nullptr, stops, {})));
      first = engine::MergeHeaps(first, requests.back().get(), is_before);
    }
    EXPECT_LE(compared, kRequests) << order;
    int32_t last = INT32_MIN;
    for (; first != nullptr; first = engine::TakeOut(first, *first, is_before)) {
      EXPECT_LE(last, first->priority);
      last = first->priority;
    }
    EXPECT_LE(compared, 3 * 12 * kRequests) << order;  // 12: log2(kRequests)
  }
}

}  // namespace
}  // namespace sluice::test
