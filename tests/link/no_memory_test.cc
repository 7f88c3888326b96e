// A client without memory: what it was told is not lost, and only what needs the memory suffers.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <new>
#include <set>

#include "tests/link/fake_engine.h"
#include "tests/link/one_engine.h"
#include "tests/support/counting_allocator.h"

// ZeroMQ has its memory from malloc(), and says so itself when there is none. The linker puts this
// in front of it (--wrap).
static bool zmq_has_memory = true;
extern "C" int __real_zmq_send(void* socket, const void* bytes, size_t size, int flags);
extern "C" int __wrap_zmq_send(void* socket, const void* bytes, size_t size, int flags) {
  if (zmq_has_memory) return __real_zmq_send(socket, bytes, size, flags);
  errno = ENOMEM;
  return -1;
}

namespace sluice::test {
namespace {

// False: it has thrown std::bad_alloc.
template <typename Call>
bool SucceedsWithoutMemory(Call call) {
  try {
    const NoMemory none;
    call();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Under a sanitizer there is always memory.
bool CanRunOut() {
  return !SucceedsWithoutMemory([] { delete new std::string(100, 'x'); });
}

TEST(NoMemory, ARowThatThereIsNoneForLosesItsRequestAlone) {
  if (!CanRunOut()) GTEST_SKIP();
  const Tokenizer letters = Letters();
  OneEngine engine(letters);
  ClientRequest asks = Asks(100'000);
  asks.mode = OutputMode::kCumulative;
  const RequestId lost = engine.Add(asks);
  const RequestId other = engine.Add(asks);
  const std::string many(50'000, 'x');
  const std::vector<int32_t> few_ids = Ids("b");
  const std::vector<int32_t> many_ids = Ids(many);
  engine.Give(lost, 0, "a");
  const OutputRow rows[] = {
      {.address = engine.AddressOf(lost), .first_token = 1, .ids = many_ids},
      {.address = engine.AddressOf(other), .ids = few_ids},
      {.address = engine.AddressOf(lost), .first_token = 50'001, .ids = few_ids},
  };
  EXPECT_TRUE(SucceedsWithoutMemory([&] {
    for (const OutputRow& row : rows) engine.table.Take(0, row);
  }));
  EXPECT_EQ(engine.Collect(), 2u);
  EXPECT_EQ(engine.got[lost].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(engine.got[lost].message, "no memory");
  EXPECT_EQ(engine.got[lost].text, "a");
  EXPECT_EQ(engine.got[lost].ids, Ids("a"));
  EXPECT_EQ(engine.got[other].text, "b");
  EXPECT_EQ(engine.table.counters.gaps, 0);
  // The engine is asked to stop it, and its last row frees the place.
  EXPECT_EQ(engine.table.TakeAborts(0).size(), 1u);
  EXPECT_EQ(engine.table.taken_slots(0), 2);
  engine.Give(lost, 50'002, "", GenerationEnd::kCancelled);
  EXPECT_EQ(engine.table.taken_slots(0), 1);
}

TEST(NoMemory, OutputsThatCannotBeGivenAreGivenLater) {
  if (!CanRunOut()) GTEST_SKIP();
  const Tokenizer letters = Letters();
  OneEngine engine(letters, StopAt::kEngine, 100);
  std::vector<RequestId> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(engine.Add(Asks()));
  for (const RequestId id : ids) engine.Give(id, 0, "ab", GenerationEnd::kLength);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(SucceedsWithoutMemory([&] { engine.table.Outputs(); }));
  }
  EXPECT_EQ(engine.table.live_requests(), 100);
  EXPECT_EQ(engine.Collect(), 100u);
  for (const RequestId id : ids) EXPECT_EQ(engine.got[id].text, "ab");
  EXPECT_EQ(engine.table.live_requests(), 0);
  EXPECT_EQ(engine.table.taken_slots(0), 0);
}

// An engine that is gone takes no memory: nobody waits for it any longer.
TEST(NoMemory, AnEngineThatIsGoneEndsItsRequests) {
  if (!CanRunOut()) GTEST_SKIP();
  const Tokenizer letters = Letters();
  OneEngine engine(letters);
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(engine.Add(Asks(100, {"stop"})));
  for (const RequestId id : ids) engine.Give(id, 0, "sto");
  const std::string why(1000, 'w');
  EXPECT_TRUE(SucceedsWithoutMemory([&] { engine.table.Lose(0, why); }));
  EXPECT_EQ(engine.Collect(), 8u);
  for (const RequestId id : ids) {
    EXPECT_EQ(engine.got[id].end, GenerationEnd::kEngineLost);
    EXPECT_EQ(engine.got[id].message, "no memory");
  }
  EXPECT_EQ(engine.table.taken_slots(0), 0);
}

TEST(NoMemory, AFrameThatCannotBeReadIsReadByTheNextPoll) {
  if (!CanRunOut()) GTEST_SKIP();
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.credits = 2});
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(frontend.Submit(Asks(10'000)));
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 3; }));
  const std::vector<int32_t> letters = Ids(std::string(5000, 'x'));
  std::vector<OutputRow> rows;
  for (const EngineRequest& request : engine.peer().requests) {
    rows.push_back({.address = request.address, .ids = letters});
  }
  engine.SendRows(engine.peer(), rows);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int failures = 0;
  while (failures < 3 && std::chrono::steady_clock::now() < deadline) {
    if (!SucceedsWithoutMemory([&] { frontend->Poll(milliseconds(1)); })) ++failures;
  }
  ASSERT_EQ(failures, 3);
  for (const RequestId id : ids) {
    ASSERT_TRUE(frontend.UntilText(id, std::string(5000, 'x')));
  }
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().credits == 1; }));
  for (size_t i = 0; i < 3; ++i) {
    engine.SendText(engine.peer(), engine.peer().requests[i], 5000, "y", GenerationEnd::kLength);
  }
  for (const RequestId id : ids) ASSERT_TRUE(frontend.UntilEnded(id));
  EXPECT_EQ(frontend->counters().resets, 0);
  EXPECT_EQ(frontend->counters().repeated_frames, 0);
  EXPECT_EQ(frontend->counters().gaps, 0);
}

// What tells of the end of a connection is read once, and the frames in front of it come first.
TEST(NoMemory, AnEngineThatIsGoneMeanwhileIsNoticedByTheNextPoll) {
  if (!CanRunOut()) GTEST_SKIP();
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.stall_timeout = 10 * kPatience});  // which is not what ends it
  const RequestId id = frontend.Submit(Asks(10'000));
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  engine.SendText(engine.peer(), engine.peer().requests[0], 0, std::string(5000, 'x'));
  pollfd here{frontend->event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&here, 1, static_cast<int>(kPatience.count())), 1);
  engine.Kill();
  // Not a promise: time for the news of the end to be there, too.
  std::this_thread::sleep_for(milliseconds(100));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(SucceedsWithoutMemory([&] { frontend->Poll(milliseconds(0)); }));
  }
  ASSERT_TRUE(frontend.UntilEnded(id));
  EXPECT_EQ(frontend.got[id].text, std::string(5000, 'x'));
  EXPECT_EQ(frontend.got[id].end, GenerationEnd::kEngineLost);
}

// Abort is called where nothing may be thrown, as by destructors.
TEST(NoMemory, AbortsThatCannotBeSentAreSentLater) {
  constexpr size_t kRequests = 600;  // in several frames
  FakeEngine engine(InfoOf(Letters(), kRequests));
  Frontend frontend({&engine});
  std::vector<RequestId> ids;
  for (size_t i = 0; i < kRequests; ++i) ids.push_back(frontend.Submit());
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == kRequests; }));
  zmq_has_memory = false;
  for (const RequestId id : ids) EXPECT_NO_THROW(frontend->Abort(id));
  EXPECT_NO_THROW(frontend.Poll());
  zmq_has_memory = true;
  // Of itself, and in front of the next round trip, which is measured every 10 s.
  pollfd wakes{frontend->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&wakes, 1, 5000), 1);
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().aborted.size() >= kRequests; }));
  std::set<int32_t> slots;
  for (const RequestAddress& address : engine.peer().aborted) slots.insert(address.slot);
  EXPECT_EQ(slots.size(), kRequests);
  EXPECT_EQ(engine.peer().aborted.size(), kRequests) << "each of them once";
}

}  // namespace
}  // namespace sluice::test
