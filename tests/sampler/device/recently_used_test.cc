// Of a bounded number of values, the one that was used the longest ago makes room.
#include "sampler/recently_used.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace sluice::test {
namespace {

TEST(RecentlyUsed, FindsWhatWasAdded) {
  RecentlyUsed<int, int> squares(3);
  EXPECT_EQ(squares.Find(4), nullptr);
  EXPECT_EQ(squares.Add(4, 16), 16);
  EXPECT_EQ(squares.Add(5, 25), 25);
  ASSERT_NE(squares.Find(4), nullptr);
  EXPECT_EQ(*squares.Find(4), 16);
}

TEST(RecentlyUsed, GivesUpWhatWasUsedTheLongestAgo) {
  RecentlyUsed<int, int> values(3);
  for (const int key : {1, 2, 3}) values.Add(key, key);
  values.Find(1);  // the oldest, but in use
  values.Add(4, 4);
  EXPECT_EQ(values.Find(2), nullptr);
  for (const int key : {1, 3, 4}) EXPECT_NE(values.Find(key), nullptr) << key;
  values.Add(5, 5);
  EXPECT_EQ(values.Find(1), nullptr);
  EXPECT_EQ(values.size(), 3u);
}

TEST(RecentlyUsed, DestroysWhatItGivesUp) {
  const auto shared = std::make_shared<int>(7);
  RecentlyUsed<int, std::shared_ptr<int>> values(2);
  values.Add(1, shared);
  values.Add(2, nullptr);
  EXPECT_EQ(shared.use_count(), 2);
  values.Add(3, nullptr);
  EXPECT_EQ(shared.use_count(), 1);
}

}  // namespace
}  // namespace sluice::test
