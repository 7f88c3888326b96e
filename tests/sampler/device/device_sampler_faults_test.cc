// What a DeviceSampler's host side does when the device answers late, or not at all: with a
// run-time library of the test's own, of which any call can fail.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "sampler/device/device_buffers.h"
#include "sampler/device/device_resources.h"
#include "sluice/cuda/sampler.hpp"
#include "tests/sampler/device/fake_runtime.h"

namespace sluice::test {
namespace {

constexpr cuda::DeviceSamplerOptions kOptions{.vocab = 64,
                                              .max_requests = 8,
                                              .max_drafts = 2,
                                              .max_tokens = 256,
                                              .max_graphs = cuda::DeviceSampler::kStepsKept};

// Steps of the first requests, on memory in which kernels write nothing.
class DeviceSamplerFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeCuda() = {};
    Begin(kOptions);
  }
  void Begin(const cuda::DeviceSamplerOptions& options) {
    sampler_.reset();
    requests_.clear();
    memory_.assign(cuda::DeviceSamplerBytes(options) + 256, std::byte{0});
    void* data = memory_.data();
    size_t room = memory_.size();
    data_ = static_cast<std::byte*>(std::align(256, room - 256, data, room));
    sampler_.emplace(options, cuda::DeviceArray<std::byte>{data_, static_cast<int64_t>(room)});
    options_ = options;
  }
  RequestHandle Add(const SamplingParams& params = {}) {
    requests_.push_back({.request = sampler_->Add({.params = params})});
    return requests_.back().request;
  }
  // Of a request with a processor, which notes that it is called.
  RequestHandle AddProcessed(const SamplingParams& params = {}, bool argmax_invariant = false) {
    const cuda::DeviceLogitsProcessor processor{
        this,
        [](void* self, const cuda::ProcessorRows& rows, void*) {
          auto& test = *static_cast<DeviceSamplerFaults*>(self);
          test.processed_rows_ += rows.logits.rows;
          if (test.processor_throws_) throw std::runtime_error("of a processor");
        },
        argmax_invariant};
    requests_.push_back({.request = sampler_->Add({.params = params}, {&processor, 1})});
    return requests_.back().request;
  }
  cuda::StepHandle Step(int64_t rows, const cuda::LogitsSource& source = {}) {
    const LogitsView logits{memory_.data(), rows,        options_.vocab,
                            options_.vocab, DType::kF32, {DeviceKind::kCuda, 0}};
    return sampler_->Step({logits, {requests_.data(), static_cast<size_t>(rows)}}, nullptr, source);
  }
  // What all steps will have given: id 0, or none.
  void GiveTokens(bool gives) {
    const cuda::DeviceBuffers buffers = cuda::BuffersOf(data_, options_);
    const size_t bytes = cuda::OutputsOf(nullptr, cuda::LargestOutput(options_)).bytes;
    std::memset(buffers.outputs, gives ? 0 : 0xff, bytes);
  }
  // Calls with the n-th call of the run-time library failing, for every n; answers how often it
  // failed. The last one succeeds.
  template <typename Call>
  static int64_t FailEverywhere(Call call) {
    for (int64_t n = 1;; ++n) {
      FakeCuda().calls = 0;
      FakeCuda().failing = n;
      bool has_failed = false;
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
        has_failed = true;
      }
      FakeCuda().failing = 0;
      if (!has_failed) return n - 1;
    }
  }

  cuda::DeviceSamplerOptions options_;
  std::vector<std::byte> memory_;
  std::byte* data_ = nullptr;
  std::optional<cuda::DeviceSampler> sampler_;
  std::vector<StepRequest> requests_;
  int64_t processed_rows_ = 0;
  bool processor_throws_ = false;
};

constexpr cuda::DeviceSamplerOptions kProcessed{
    .vocab = 64, .max_requests = 8, .max_tokens = 256, .max_processed_rows = 2};

TEST_F(DeviceSamplerFaults, CountsWhatAStepGaveThatNobodyReads) {
  const RequestHandle request = Add();
  GiveTokens(false);
  for (int64_t step = 0; step < 2 * options_.max_tokens; ++step) Step(1);  // no tokens, so room
  GiveTokens(true);
  for (int step = 0; step < 20; ++step) Step(1);
  EXPECT_EQ(sampler_->Waits(), 0);
  FakeCuda().are_events_over = false;
  Step(1).Get();
  EXPECT_EQ(sampler_->Waits(), 1);  // of the step before the three that are kept
  FakeCuda().are_events_over = true;
  EXPECT_THROW(sampler_->Rollback(request, 1), Error);  // three are unread
  for (int step = 0; step < cuda::DeviceSampler::kStepsKept; ++step) Step(1).Get();
  EXPECT_THROW(sampler_->Rollback(request, 26), Error);
  sampler_->Rollback(request, 25);
}

TEST_F(DeviceSamplerFaults, KeepsTheGraphsThatAreInUse) {
  for (int i = 0; i < 8; ++i) Add();
  for (int64_t rows = 2; rows < 5; ++rows) {
    Step(1).Get();
    for (int i = 0; i < 2; ++i) Step(rows).Get();
  }
  EXPECT_EQ(FakeCuda().graphs, 4);
  for (int64_t rows = 5; rows < 8; ++rows) {
    for (int i = 0; i < 2; ++i) Step(rows).Get();
    Step(1).Get();  // it stays in use
  }
  EXPECT_EQ(FakeCuda().graphs, 7);
  for (int64_t rows = 2; rows < 6; ++rows) Step(rows).Get();  // once each: without graphs
  EXPECT_EQ(FakeCuda().graphs, 7);
  EXPECT_EQ(sampler_->Waits(), 0);
}

TEST_F(DeviceSamplerFaults, CapturesASourceOfLogitsOnceForAGraph) {
  struct Head {
    int calls = 0;
    bool fails = false;
    static void Enqueue(void* context, void*) {
      Head& head = *static_cast<Head*>(context);
      ++head.calls;
      if (head.fails) throw Error(ErrorCode::kUnavailable, "head", "1", "2");
    }
  };
  Head first, second{.fails = true};
  Add();
  Add();
  for (int i = 0; i < 3; ++i) Step(2, {Head::Enqueue, &first}).Get();
  EXPECT_EQ(first.calls, 1);
  Step(1, {Head::Enqueue, &first}).Get();
  EXPECT_EQ(first.calls, 2);
  const int64_t held = FakeCuda().held;
  EXPECT_THROW(Step(2, {Head::Enqueue, &second}), Error);
  EXPECT_EQ(FakeCuda().held, held);
  second.fails = false;
  for (int i = 0; i < 3; ++i) Step(2, {Head::Enqueue, &second}).Get();
  EXPECT_EQ(second.calls, 2);
  for (int i = 0; i < 3; ++i) Step(2).Get();
  EXPECT_EQ(first.calls + second.calls, 4);
}

// A step with processors has two graphs; the logits are computed in the first.
TEST_F(DeviceSamplerFaults, ComputesLogitsOnceInAStepWithProcessors) {
  Begin(kProcessed);
  int calls = 0;
  const cuda::LogitsSource source{[](void* context, void*) { ++*static_cast<int*>(context); },
                                  &calls};
  Add();
  AddProcessed();
  for (int i = 0; i < 3; ++i) Step(2, source).Get();
  EXPECT_EQ(processed_rows_, 3);
  EXPECT_EQ(calls, 1);
}

TEST_F(DeviceSamplerFaults, RefusesCallsFromASourceOfLogits) {
  Add();
  const cuda::LogitsSource source{
      [](void* context, void*) { static_cast<cuda::DeviceSampler*>(context)->Add({}); },
      &*sampler_};
  EXPECT_THROW(Step(1, source), Error);
  EXPECT_EQ(sampler_->FreeSlots(), 7);
  Add();
  Step(2).Get();
}

TEST_F(DeviceSamplerFaults, TakesNoSlotForARequestThatWasNotSent) {
  EXPECT_GE(FailEverywhere([&] {
              EXPECT_EQ(sampler_->FreeSlots(), 8);
              Add({.top_k = 5});
            }),
            2);
  EXPECT_EQ(sampler_->FreeSlots(), 7);
}

TEST_F(DeviceSamplerFaults, KeepsTheOldNumbersWhenAnUpdateFails) {
  const RequestHandle request = Add();
  Step(1).Get();
  FakeCuda().failing = FakeCuda().calls + 1;
  EXPECT_THROW(sampler_->Update(request, {.temperature = 0.0f}), Error);
  Step(1).Get();
  EXPECT_EQ(FakeCuda().graphs, 1);  // of random draws
  sampler_->Update(request, {.temperature = 0.0f});
  for (int i = 0; i < 2; ++i) Step(1).Get();
  EXPECT_EQ(FakeCuda().graphs, 2);
}

TEST_F(DeviceSamplerFaults, CountsTheTokensThatWereSent) {
  const RequestHandle request = Add();
  FakeCuda().failing = FakeCuda().calls + 3;  // of 64 tokens each
  EXPECT_THROW(sampler_->Accept(request, std::vector<int32_t>(200, 7)), Error);
  EXPECT_THROW(sampler_->Rollback(request, 129), Error);
  FakeCuda().failing = FakeCuda().calls + 1;
  EXPECT_THROW(sampler_->Rollback(request, 100), Error);
  sampler_->Rollback(request, 128);
}

TEST_F(DeviceSamplerFaults, SendsTheTablesAgainWhenNobodyKnowsWhatArrived) {
  Add();
  Add();
  const cuda::DeviceBuffers buffers = cuda::BuffersOf(data_, options_);
  auto sent = [&] {
    int64_t count = 0;
    for (const FakeRuntime::Copy& copy : FakeCuda().copies) {
      count += copy.to == buffers.tables ? 1 : 0;
    }
    return count;
  };
  Step(1).Get();
  Step(1).Get();
  EXPECT_EQ(sent(), 1);
  const int64_t failures = FailEverywhere([&] { Step(2).Get(); });
  EXPECT_GT(failures, 5);
  FakeCuda().copies.clear();
  // The copy of other tables arrives, and the event behind it fails.
  FakeCuda().failing = FakeCuda().calls + 2;
  EXPECT_THROW(Step(1), Error);
  EXPECT_EQ(sent(), 1);
  Step(2).Get();
  EXPECT_EQ(sent(), 2);
}

TEST(PinnedRing, KeepsWhatMayBeOnItsWay) {
  FakeCuda() = {};
  {
    cuda::PinnedRing ring(100);
    ring.Take(60);
    ring.NotSent(nullptr);
    FakeCuda().are_events_over = false;
    ring.Take(60);
    EXPECT_EQ(ring.waits(), 1);
    EXPECT_EQ(FakeCuda().event_waits, 1);
  }
  EXPECT_EQ(FakeCuda().held, 0);
}

TEST_F(DeviceSamplerFaults, AcceptsNothingOfAStepThatFails) {
  const RequestHandle request = Add();
  for (int i = 0; i < 2; ++i) Step(1).Get();  // its graph is there from now on
  int64_t launches = 0;
  const int64_t failures = FailEverywhere([&] {
    launches = FakeCuda().launches;
    try {
      Step(1).Get();
    } catch (const Error&) {
      EXPECT_LE(FakeCuda().launches - launches, 1);  // what prepares, and not what accepts
      throw;
    }
  });
  EXPECT_GT(failures, 5);
  EXPECT_EQ(FakeCuda().launches - launches, 2);
  EXPECT_THROW(sampler_->Rollback(request, 4), Error);
  sampler_->Rollback(request, 3);
}

TEST_F(DeviceSamplerFaults, RunsProcessorsBetweenTwoGraphs) {
  Begin(kProcessed);
  Add();
  AddProcessed({.temperature = 0.0f}, true);
  AddProcessed();
  for (int64_t rows = 1; rows < 3; ++rows) {  // what cannot move the argmax is skipped
    for (int i = 0; i < 2; ++i) Step(rows).Get();
  }
  EXPECT_EQ(FakeCuda().graphs, 2);
  EXPECT_EQ(processed_rows_, 0);
  for (int step = 0; step < 3; ++step) Step(3).Get();
  EXPECT_EQ(FakeCuda().graphs, 4);
  EXPECT_EQ(processed_rows_, 3);
  EXPECT_EQ(sampler_->Waits(), 0);
}

TEST_F(DeviceSamplerFaults, AcceptsNothingOfAStepWithProcessorsThatFails) {
  Begin(kProcessed);
  const RequestHandle request = AddProcessed();
  for (int i = 0; i < 2; ++i) Step(1).Get();  // its graph is there from now on
  int64_t launches = 0;
  const int64_t failures = FailEverywhere([&] {
    launches = FakeCuda().launches;
    try {
      Step(1).Get();
    } catch (const Error&) {
      EXPECT_LE(FakeCuda().launches - launches, 1);
      throw;
    }
  });
  EXPECT_GT(failures, 6);
  processor_throws_ = true;
  launches = FakeCuda().launches;
  EXPECT_THROW(Step(1), std::runtime_error);
  EXPECT_EQ(FakeCuda().launches - launches, 1);  // what prepares
  EXPECT_THROW(Step(1), std::runtime_error);
  processor_throws_ = false;
  const int64_t waits = FakeCuda().device_waits;
  Step(1).Get();
  EXPECT_EQ(FakeCuda().device_waits, waits);  // what changes requests waits on the device
  EXPECT_THROW(sampler_->Rollback(request, 5), Error);
  sampler_->Rollback(request, 4);
}

// Whatever of the run-time library fails behind the throw, the exception is the processor's.
TEST_F(DeviceSamplerFaults, HoldsChangesBackBehindAProcessorThatThrows) {
  Begin(kProcessed);
  AddProcessed();
  for (int i = 0; i < 2; ++i) Step(1).Get();  // its graph is there from now on
  processor_throws_ = true;
  int64_t calls = FakeCuda().calls;
  EXPECT_THROW(Step(1), std::runtime_error);
  const int64_t of_step = FakeCuda().calls - calls;
  for (int64_t n = of_step - 1; n <= of_step; ++n) {  // the event, and the wait for it
    const int64_t waits = FakeCuda().device_waits;
    FakeCuda().failing = FakeCuda().calls + n;
    EXPECT_THROW(Step(1), std::runtime_error);
    FakeCuda().failing = 0;
    processor_throws_ = false;
    Step(1).Get();
    EXPECT_EQ(FakeCuda().device_waits, waits + 1) << n;  // nothing else would be safe
    processor_throws_ = true;
  }
}

TEST_F(DeviceSamplerFaults, RefusesCallsOfItsProcessors) {
  Begin(kProcessed);
  struct Caller {
    cuda::DeviceSampler& sampler;
    RequestHandle request;
    int64_t refused;
  } caller{*sampler_, {}, 0};
  const cuda::DeviceLogitsProcessor processor{
      &caller, [](void* self, const cuda::ProcessorRows&, void*) {
        Caller& own = *static_cast<Caller*>(self);
        auto call = [&](auto body) {
          try {
            body();
          } catch (const Error& error) {
            own.refused += error.parameter() == "sampler" ? 1 : 0;
          }
        };
        call([&] { own.sampler.Add({}); });
        call([&] { own.sampler.Update(own.request, {}); });
        call([&] { own.sampler.Accept(own.request, std::vector<int32_t>{1}); });
        call([&] { own.sampler.Rollback(own.request, 0); });
        call([&] { own.sampler.Remove(own.request); });
        call([&] { own.sampler.Step({}, nullptr); });
      }};
  caller.request = sampler_->Add({}, {&processor, 1});
  requests_.push_back({.request = caller.request});
  Step(1).Get();
  EXPECT_EQ(caller.refused, 6);
  EXPECT_EQ(sampler_->FreeSlots(), 7);
}

TEST_F(DeviceSamplerFaults, RefusesMoreProcessedRowsThanPlannedBeforeAnythingChanges) {
  Begin(kProcessed);
  for (int i = 0; i < 3; ++i) AddProcessed();
  Step(2).Get();
  const int64_t calls = FakeCuda().calls;
  try {
    Step(3);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.parameter(), "processed rows");
  }
  EXPECT_EQ(FakeCuda().calls, calls);
  EXPECT_EQ(processed_rows_, 2);
}

TEST_F(DeviceSamplerFaults, AnswersNoStepWhosePlaceAFailedOneTook) {
  Add();
  const cuda::StepHandle first = Step(1);
  for (int step = 1; step < cuda::DeviceSampler::kStepsKept; ++step) Step(1).Get();
  FakeCuda().failing = FakeCuda().calls + 4;
  EXPECT_THROW(Step(1), Error);
  EXPECT_THROW(first.Get(), Error);
  EXPECT_EQ(Step(1).Get().ids.size(), 1u);
}

TEST_F(DeviceSamplerFaults, WaitsForWhatAFailedStepLeftBehind) {
  Add();
  for (int i = 0; i < 2; ++i) Step(1).Get();  // its graph is there from now on
  FakeCuda().failing = FakeCuda().calls + 4;
  EXPECT_THROW(Step(1), Error);
  FakeCuda().failing = FakeCuda().calls + 1;  // to wait fails as well
  EXPECT_THROW(Step(1), Error);
  EXPECT_EQ(FakeCuda().device_waits, 1);
  Step(1).Get();
  EXPECT_EQ(FakeCuda().device_waits, 2);
  Step(1).Get();
  EXPECT_EQ(FakeCuda().device_waits, 2);
  EXPECT_EQ(sampler_->Waits(), 2);
  sampler_.reset();
  EXPECT_EQ(FakeCuda().device_waits, 2);
}

TEST_F(DeviceSamplerFaults, AwaitLooksAtNothing) {
  const RequestHandle request = Add();
  const cuda::StepHandle step = Step(1);
  step.Await();
  EXPECT_EQ(FakeCuda().event_waits, 1);
  EXPECT_THROW(sampler_->Rollback(request, 1), Error);  // it is unread
  step.Get();
  sampler_->Rollback(request, 1);
  for (int i = 0; i < cuda::DeviceSampler::kStepsKept; ++i) Step(1).Get();
  step.Await();  // for the one in its place
  EXPECT_THROW(step.Get(), Error);
  EXPECT_THROW(cuda::StepHandle().Await(), Error);
}

TEST_F(DeviceSamplerFaults, GivesEverythingBackBehindAFailedStep) {
  int64_t failures = 0;
  for (int64_t n = 1;; ++n) {
    sampler_.reset();
    FakeCuda() = {};
    Begin(kOptions);
    Add();
    const size_t before = FakeCuda().copies.size();
    FakeCuda().failing = FakeCuda().calls + n;
    bool has_failed = false;
    try {
      Step(1);
    } catch (const Error&) {
      has_failed = true;
    }
    FakeCuda().failing = 0;
    if (!has_failed) break;
    ++failures;
    const bool is_begun = FakeCuda().copies.size() > before;
    sampler_.reset();
    EXPECT_EQ(FakeCuda().held, 0) << n;
    if (is_begun) {
      EXPECT_EQ(FakeCuda().device_waits, 1) << n;
    }
  }
  EXPECT_GT(failures, 12);
}

TEST_F(DeviceSamplerFaults, GivesEverythingBackWhenItCannotBegin) {
  sampler_.reset();
  FailEverywhere([&] {
    FakeCuda().held = 0;
    struct Expect {
      ~Expect() { EXPECT_EQ(FakeCuda().held, 0); }
    } expect;
    const cuda::DeviceSampler own(kOptions);
  });
}

TEST_F(DeviceSamplerFaults, RefusesDraftProbabilitiesOfAnotherDevice) {
  Add();
  const std::vector<int32_t> drafts = {3};
  requests_[0].drafts = drafts;
  requests_[0].draft_probabilities = {memory_.data(),        1, 64, 64, DType::kF32,
                                      {DeviceKind::kCuda, 1}};
  const LogitsView logits{memory_.data(), 2, 64, 64, DType::kF32, {DeviceKind::kCuda, 0}};
  try {
    sampler_->Step({logits, requests_}, nullptr);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.parameter(), "draft_probabilities.device.index");
  }
}

TEST_F(DeviceSamplerFaults, RefusesADraftModelOnAnotherDevice) {
  Add();
  const std::vector<int32_t> drafts = {3};
  const SelectParams params;
  const Cut cut;
  requests_[0].drafts = drafts;
  requests_[0].draft_model.logits = {memory_.data(),        1, 64, 64, DType::kF32,
                                     {DeviceKind::kCuda, 1}};
  requests_[0].draft_model.params = {&params, 1};
  requests_[0].draft_cuts = {&cut, 1};
  const LogitsView logits{memory_.data(), 2, 64, 64, DType::kF32, {DeviceKind::kCuda, 0}};
  try {
    sampler_->Step({logits, requests_}, nullptr);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.parameter(), "draft_model.logits.device.index");
  }
}

}  // namespace
}  // namespace sluice::test
