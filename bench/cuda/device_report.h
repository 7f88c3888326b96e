// The JSON that a bench of a GPU prints: {"env", "commit", "rows"}, a line a row. A row is printed
// when it is whole, and the end whether or not what measured them has thrown.
#pragma once

#include <string>

namespace sluice::bench {

struct Gpu {
  std::string name;
  int processors;
  int l2_bytes;
};

class DeviceReport {
 public:
  // Rows alone, after those of another process.
  DeviceReport() = default;
  // And the first line. ends: no other rows follow.
  explicit DeviceReport(const Gpu& gpu, bool ends = true);
  ~DeviceReport();
  DeviceReport(const DeviceReport&) = delete;
  DeviceReport& operator=(const DeviceReport&) = delete;

  [[gnu::format(printf, 2, 3)]] void Row(const char* format, ...);
  static void End();

 private:
  const char* separator_ = ",\n";
  bool ends_ = false;
};

// As std::printf prints it.
[[gnu::format(printf, 1, 2)]] std::string Printed(const char* format, ...);

}  // namespace sluice::bench
