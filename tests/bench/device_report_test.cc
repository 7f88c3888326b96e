// The JSON of the programs that measure a GPU, byte for byte: files of results are compared by it.
#include "bench/cuda/device_report.h"

#include <gtest/gtest.h>

#include "bench/support/environment.h"

namespace sluice::bench {
namespace {

const Gpu kGpu = {"A GPU", 132, 62914560};

std::string FirstLine() {
  const Environment e = ThisEnvironment();
  return R"({"env": {"gpu": "A GPU", "processors": 132, "l2_bytes": 62914560, "cpu": ")" + e.cpu +
         R"(", "compiler": ")" + e.compiler + R"(", "os": ")" + e.os + R"("}, "commit": ")" +
         e.commit + R"(", "rows": [)";
}

template <typename Write>
std::string Output(const Write& write) {
  testing::internal::CaptureStdout();
  write();
  return testing::internal::GetCapturedStdout();
}

TEST(DeviceReport, HasAFirstLineALineARowAndAnEnd) {
  EXPECT_EQ(Output([] { DeviceReport report(kGpu); }), FirstLine() + "\n]}\n");
  EXPECT_EQ(Output([] {
              DeviceReport report(kGpu);
              report.Row(R"({"task": "%s", "ns": %.0f})", "a", 1.6);
              report.Row(R"({"task": "%s"%s})", "b", Printed(R"(, "few_%d_ns": %d)", 3, 4).c_str());
            }),
            FirstLine() + "\n" + R"({"task": "a", "ns": 2})" + ",\n" +
                R"({"task": "b", "few_3_ns": 4})" + "\n]}\n");
}

TEST(DeviceReport, KeepsARowOfAnyLength) {
  const std::string name(100000, 'x');
  EXPECT_EQ(Output([&] { DeviceReport(kGpu).Row("%s", name.c_str()); }),
            FirstLine() + "\n" + name + "\n]}\n");
}

TEST(DeviceReport, IsWholeWhenWhatIsMeasuredThrows) {
  EXPECT_EQ(Output([] {
              try {
                DeviceReport report(kGpu);
                report.Row("{}");
                throw 1;
              } catch (int) {
              }
            }),
            FirstLine() + "\n{}\n]}\n");
}

// A process a row, as of ranks.
TEST(DeviceReport, IsOneOfSeveralProcesses) {
  EXPECT_EQ(Output([] {
              DeviceReport(kGpu, false).Row("{1}");
              DeviceReport().Row("{2}");
              DeviceReport::End();
            }),
            FirstLine() + "\n{1},\n{2}\n]}\n");
}

}  // namespace
}  // namespace sluice::bench
