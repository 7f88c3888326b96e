// Prometheus' text, read as strictly as Prometheus does.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace sluice::test {

class Exposition {
 public:
  explicit Exposition(const std::string& text) {
    EXPECT_TRUE(text.ends_with("\n"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) ReadLine(line);
  }

  // "name" or "name{label=\"value\"}"; a value that is not there fails.
  double operator[](const std::string& series) const {
    const auto found = values_.find(series);
    if (found == values_.end()) {
      ADD_FAILURE() << "there is no " << series;
      return -1;
    }
    return found->second;
  }
  bool Has(const std::string& series) const { return values_.contains(series); }

  // No counter is smaller than it was.
  void ExpectBehind(const Exposition& earlier) const {
    for (const auto& [series, value] : earlier.values_) {
      if (!is_counter_.contains(series)) continue;
      ASSERT_TRUE(values_.contains(series)) << series;
      EXPECT_GE(values_.at(series), value) << series;
    }
  }

 private:
  void ReadLine(const std::string& line) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "#") {
      std::string what;
      std::string name;
      words >> what >> name;
      if (what == "HELP") {
        EXPECT_TRUE(helped_.insert(name).second) << line;
      }
      if (what != "TYPE") return;
      std::string type;
      words >> type;
      EXPECT_TRUE(types_.emplace(name, type).second) << line;
      return;
    }
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    const std::string series = line.substr(0, space);
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + space, &end);
    EXPECT_EQ(*end, '\0') << line;
    EXPECT_TRUE(values_.emplace(series, value).second) << line;

    const std::string name = series.substr(0, series.find('{'));
    const std::string family = FamilyOf(name);
    ASSERT_TRUE(types_.contains(family)) << line;
    EXPECT_TRUE(helped_.contains(family)) << line;
    const std::string& type = types_[family];
    const bool is_counter = type == "counter" || type == "histogram";
    if (is_counter) is_counter_.insert(series);
    if (type == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << line;
    }
    if (is_counter) {
      EXPECT_GE(value, 0) << line;
    }
  }
  std::string FamilyOf(const std::string& name) const {
    for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
      if (!name.ends_with(suffix)) continue;
      const std::string family = name.substr(0, name.size() - suffix.size());
      const auto found = types_.find(family);
      if (found != types_.end() && found->second == "histogram") return family;
    }
    return name;
  }

  std::map<std::string, std::string> types_;
  std::set<std::string> helped_;
  std::set<std::string> is_counter_;
  std::map<std::string, double> values_;
};

}  // namespace sluice::test
