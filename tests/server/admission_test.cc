// How many choices and bytes may be in flight, of all requesters and of one.
#include "server/admission/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "server/api/api_error.h"
#include "server/http/body_share.h"

namespace sluice::server {
namespace {

constexpr Requester kLocal = {};
constexpr Requester kKeyA = {.id = 1, .has_key = true, .shares = true};
constexpr Requester kKeyB = {.id = 2, .has_key = true, .shares = true};
constexpr Requester kAddress = {.id = 3, .shares = true};

// The status of the refusal, or 0.
template <typename Call>
int StatusOf(Call call) {
  try {
    call();
    return 0;
  } catch (const ApiFailure& failure) {
    return failure.error().status;
  }
}

TEST(Admission, CountsChoicesAndGivesThemBack) {
  Admission admission(8, 0);
  {
    Admission::Permit permit = admission.Admit(kLocal);
    permit.Take(6);
    EXPECT_EQ(admission.in_flight(), 7);
    EXPECT_EQ(StatusOf([&] { admission.Admit(kLocal).Take(1); }), 503);
    EXPECT_EQ(admission.in_flight(), 7);
    EXPECT_FALSE(admission.is_full());
    const Admission::Permit last = admission.Admit(kLocal);
    EXPECT_TRUE(admission.is_full());
    EXPECT_EQ(StatusOf([&] { admission.Admit(kLocal); }), 503);
  }
  EXPECT_EQ(admission.in_flight(), 0);
}

TEST(Admission, AKeyHasAtMostItsChoices) {
  Admission admission(100, 4);
  Admission::Permit permit = admission.Admit(kKeyA);
  EXPECT_EQ(StatusOf([&] { permit.Take(4); }), 400);
  permit.Take(2);
  EXPECT_EQ(StatusOf([&] { admission.Admit(kKeyA).Take(1); }), 429);
  permit.Take(1);
  EXPECT_EQ(StatusOf([&] { admission.Admit(kKeyA); }), 429);
  const Admission::Permit other = admission.Admit(kKeyB);
  EXPECT_EQ(admission.in_flight(), 5);
}

// To try again is of use after a 429 and a 503, and never after a 400.
TEST(Admission, WhatNeverFitsIsNoRequestToTryAgain) {
  Admission admission(64, 0);
  const Admission::Permit other = admission.Admit(kKeyB);
  Admission::Permit permit = admission.Admit(kKeyA);
  try {
    permit.Take(32);
    FAIL() << "33 choices have places";
  } catch (const ApiFailure& failure) {
    EXPECT_EQ(failure.error().status, 400);
    EXPECT_EQ(failure.error().param, "n");
    EXPECT_EQ(failure.error().retry_after_seconds, 0);
    EXPECT_NE(failure.error().message.find("33 choices"), std::string::npos);
    EXPECT_NE(failure.error().message.find("at most 32"), std::string::npos);
  }
  EXPECT_EQ(admission.in_flight(), 2);
  EXPECT_EQ(StatusOf([&] { permit.Take(31); }), 429);  // it fits when the other has ended
  Admission::Permit local = admission.Admit(kLocal);
  EXPECT_EQ(StatusOf([&] { local.Take(64); }), 400);
  EXPECT_EQ(StatusOf([&] { local.Take(63); }), 503);
}

// However many one takes, a place is left for the next one.
TEST(Admission, ARequesterGetsNoMoreThanItLeavesFree) {
  Admission admission(64, 0);
  std::vector<Admission::Permit> permits;
  const auto take_all = [&](const Requester& requester) {
    int64_t count = 0;
    while (StatusOf([&] { permits.push_back(admission.Admit(requester)); }) == 0) ++count;
    return count;
  };
  EXPECT_EQ(take_all(kKeyA), 32);
  EXPECT_EQ(StatusOf([&] { admission.Admit(kKeyA); }), 429);
  EXPECT_EQ(take_all(kKeyB), 16);
  EXPECT_EQ(take_all(kAddress), 8);
  EXPECT_FALSE(admission.is_full());
  // One that does not share has what there is.
  EXPECT_EQ(take_all(kLocal), 8);
  EXPECT_TRUE(admission.is_full());
  permits.clear();
  EXPECT_EQ(admission.in_flight(), 0);
}

TEST(Admission, TheFirstChoiceOfARequesterNeedsOnePlace) {
  Admission admission(2, 0);
  const Admission::Permit a = admission.Admit(kKeyA);
  const Admission::Permit b = admission.Admit(kKeyB);
  EXPECT_EQ(StatusOf([&] { admission.Admit(kAddress); }), 503);
}

// Forty bodies of 30 MB that come together, and one of 20 KB at any time.
TEST(BodyShare, LongBodiesAreRefusedBeforeShortOnes) {
  constexpr size_t kBudget = size_t{64} << 20;
  constexpr size_t kLong = 30'000'000, kShort = 20'000, kPiece = size_t{64} << 10;
  BodyBytes all;
  std::array<std::optional<BodyShare>, 40> bodies;
  std::array<size_t, 40> sizes = {};
  for (auto& body : bodies) body.emplace();
  int64_t most = 0;
  int refused = 0, complete = 0;
  for (size_t come = kPiece; come < kLong + kPiece; come += kPiece) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      if (!bodies[i].has_value()) continue;
      sizes[i] = std::min(come, kLong);
      if (!bodies[i]->GrowTo(sizes[i], all, 0, kBudget)) {
        bodies[i].reset();
        ++refused;
      }
      most = std::max(most, all.all());
      BodyShare one;
      ASSERT_TRUE(one.GrowTo(kShort, all, 0, kBudget)) << all.all();
      ASSERT_TRUE(BodyShare::HasRoom(kShort, all, 0, kBudget));
    }
  }
  for (auto& body : bodies) complete += body.has_value() ? 1 : 0;
  EXPECT_EQ(complete, 1);
  EXPECT_EQ(refused, 39);
  EXPECT_LE(most, static_cast<int64_t>(kBudget));
  EXPECT_FALSE(BodyShare::HasRoom(kLong, all, 0, kBudget));
  for (auto& body : bodies) body.reset();
  EXPECT_EQ(all.all(), 0);
}

TEST(BodyShare, GoesWithTheBody) {
  BodyBytes all;
  BodyShare first;
  EXPECT_TRUE(first.GrowTo(100, all, 7, 1000));
  BodyShare second(std::move(first));
  first = BodyShare();
  EXPECT_EQ(all.all(), 100);
  BodyShare third;
  EXPECT_TRUE(third.GrowTo(50, all, 8, 1000));
  third = std::move(second);
  EXPECT_EQ(all.all(), 100);
  third = BodyShare();
  EXPECT_EQ(all.all(), 0);
  EXPECT_TRUE(BodyShare::HasRoom(500, all, 7, 1000));
}

// However many bodies a client sends, and however short they are.
TEST(BodyShare, AClientGetsNoMoreThanItLeavesToOthers) {
  constexpr size_t kBudget = 64'000, kBody = 1000;
  BodyBytes all;
  std::vector<BodyShare> bodies;
  const auto take_all = [&](uint64_t client) {
    for (size_t count = 0;; ++count) {
      const bool has_room = BodyShare::HasRoom(kBody, all, client, kBudget);
      BodyShare body;
      EXPECT_EQ(body.GrowTo(kBody, all, client, kBudget), has_room);
      if (!has_room) return count;
      bodies.push_back(std::move(body));
    }
  };
  EXPECT_EQ(take_all(1), 32u);
  EXPECT_EQ(take_all(2), 16u);
  EXPECT_EQ(take_all(3), 8u);
  EXPECT_EQ(take_all(1), 0u);
  // Without a number of its own each body counts alone.
  EXPECT_EQ(take_all(0), 7u);
  bodies.clear();
  EXPECT_EQ(all.all(), 0);
  EXPECT_EQ(take_all(1), 32u);
}

}  // namespace
}  // namespace sluice::server
