// Which properties of a tool's parameters are JSON, and which may be a text.
#include "text/tools/parameter_types.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::test {
namespace {

using Names = std::vector<std::string>;

Names JsonOf(const std::string& properties, const std::string& more = "") {
  return text::JsonProperties(R"({"type":"object","properties":{)" + properties + "}" + more + "}");
}

TEST(JsonProperties, HaveNoBranchThatIsAText) {
  EXPECT_EQ(JsonOf(R"("a":{"anyOf":[{"type":"number"},{"type":"string"}]},
                      "b":{"oneOf":[{"type":"number"},{"type":"null"}]},
                      "c":{"enum":[1,"x"]},"d":{"const":1},"e":{},"f":true)"),
            (Names{"b", "d"}));
}

// A text has to match every branch.
TEST(JsonProperties, OfAllOfEveryBranchHasToAllowAText) {
  EXPECT_EQ(JsonOf(R"("a":{"allOf":[{"type":"string"},{"type":"number"}]},
                      "b":{"allOf":[{"type":"string"},{"minLength":1}]},
                      "c":{"allOf":[{"$ref":"#/$defs/o"}]},
                      "d":{"allOf":[]})",
                   R"(,"$defs":{"o":{"type":"object"}})"),
            (Names{"a", "c"}));
}

// Two references of which each leads to the other take all the steps that a property has.
TEST(JsonProperties, OnePropertyTakesNoStepsOfAnother) {
  const std::string loop = R"(,"$defs":{"x":{"allOf":[{"$ref":"#/$defs/y"}]},
                                        "y":{"allOf":[{"$ref":"#/$defs/x"}]}})";
  EXPECT_EQ(JsonOf(R"("loop":{"$ref":"#/$defs/x"},
                      "number":{"anyOf":[{"type":"number"},{"type":"null"}]})",
                   loop),
            Names{"number"});
}

// Together they have as many as sixteen of them. What is not decided may be a text.
TEST(JsonProperties, AllTogetherHaveABoundedNumberOfSteps) {
  std::string properties;
  for (int i = 0; i < 100; ++i) {
    properties += "\"p" + std::to_string(i) + R"(":{"$ref":"#/$defs/x"},)";
  }
  properties += R"("number":{"anyOf":[{"type":"number"},{"type":"null"}]})";
  EXPECT_EQ(JsonOf(properties, R"(,"$defs":{"x":{"$ref":"#/$defs/x"}})"), Names{});
}

}  // namespace
}  // namespace sluice::test
