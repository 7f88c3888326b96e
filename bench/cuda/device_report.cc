#include "bench/cuda/device_report.h"

#include <cstdarg>
#include <cstdio>

#include "bench/support/environment.h"

namespace sluice::bench {
namespace {

std::string PrintedList(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, again)), '\0');
  va_end(again);
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

}  // namespace

std::string Printed(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = PrintedList(format, arguments);
  va_end(arguments);
  return text;
}

DeviceReport::DeviceReport(const Gpu& gpu, bool ends) : separator_("\n"), ends_(ends) {
  const Environment environment = ThisEnvironment();
  std::printf(
      "{\"env\": {\"gpu\": \"%s\", \"processors\": %d, \"l2_bytes\": %d, \"cpu\": \"%s\", "
      "\"compiler\": \"%s\", \"os\": \"%s\"}, \"commit\": \"%s\", \"rows\": [",
      gpu.name.c_str(), gpu.processors, gpu.l2_bytes, environment.cpu.c_str(),
      environment.compiler.c_str(), environment.os.c_str(), environment.commit.c_str());
}

DeviceReport::~DeviceReport() {
  if (ends_) End();
}

void DeviceReport::Row(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string row = PrintedList(format, arguments);
  va_end(arguments);
  std::printf("%s%s", separator_, row.c_str());
  std::fflush(stdout);  // a row may have taken minutes
  separator_ = ",\n";
}

void DeviceReport::End() { std::printf("\n]}\n"); }

}  // namespace sluice::bench
