#include "server/completions/choice_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "server/completions/choice.h"

namespace sluice::test {
namespace {

TEST(ChoiceTable, FindsNothingWhileEmpty) {
  const server::ChoiceTable table;
  EXPECT_EQ(table.Find({1}), nullptr);
}

// Ids as a client gives them: few slots, many generations.
TEST(ChoiceTable, HoldsWhatAMapHolds) {
  std::mt19937_64 random(7);
  server::ChoiceTable table;
  std::map<uint64_t, server::Choice*> map;
  std::vector<server::Choice> choices(300);
  for (int step = 0; step < 100'000; ++step) {
    const uint64_t id = uint64_t{1} << 56 | random() % 64 << 32 | random() % 4;
    const auto found = map.find(id);
    ASSERT_EQ(table.Find({id}), found == map.end() ? nullptr : found->second);
    if (found != map.end()) {
      table.Erase({id});
      map.erase(found);
    } else if (map.size() < choices.size()) {
      table.Reserve(1);
      server::Choice& choice = choices[random() % choices.size()];
      table.Insert({id}, choice);
      map[id] = &choice;
    }
    ASSERT_EQ(table.size(), map.size());
  }
  for (const auto& [id, choice] : map) EXPECT_EQ(table.Find({id}), choice);
}

}  // namespace
}  // namespace sluice::test
