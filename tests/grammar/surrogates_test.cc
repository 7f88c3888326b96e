#include "grammar/surrogates.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::grammar {
namespace {

std::string Excluded(std::string rules) {
  ExcludeSurrogates(rules);
  return rules;
}

TEST(Surrogates, AClassOfOtherCharactersDoesNotHaveThem) {
  EXPECT_EQ(Excluded(R"(root ::= ([^\"\\\r\n] "a"))"),
            R"(root ::= ([^\"\\\r\n\ud800-\udfff] "a"))");
  EXPECT_EQ(Excluded(R"([^\]])"), R"([^\]\ud800-\udfff])");
}

TEST(Surrogates, ARangeOverThemIsCutInTwo) {
  EXPECT_EQ(Excluded(R"([\0-\U0010ffff])"), R"([\0-\ud7ff\ue000-\U0010ffff])");
  EXPECT_EQ(Excluded(R"([a\x20-\uffffb])"), R"([a\x20-\ud7ff\ue000-\uffffb])");
  EXPECT_EQ(Excluded(R"([a-z\-0-9\ue000-\uffff-])"), R"([a-z\-0-9\ue000-\uffff-])");
}

TEST(Surrogates, TextInQuotesStays) {
  const std::string rules = "root ::= (\"[^a]\" \"\\\"[^\" | [a-z\\]\\\"])\nr ::= \"\\\\\"\n";
  EXPECT_EQ(Excluded(rules), rules);
}

TEST(Surrogates, ASecondTimeChangesNothing) {
  const std::string once = Excluded(R"(r ::= [^a] [\0-\U0010ffff] "[")");
  EXPECT_EQ(Excluded(once), once);
}

TEST(Surrogates, WhatDoesNotEndIsKept) {
  for (const std::string rules : {"[", "[^", "[^a", "\"a", "[a-", "[\\", "\"\\", "[\\u12]", "[]"}) {
    EXPECT_EQ(Excluded(rules), rules);
  }
}

}  // namespace
}  // namespace sluice::grammar
