// What --record writes: requests with their results, for sluice replay.
#pragma once

#include <fstream>
#include <string>

#include "json/request_json.h"

namespace sluice::cli {

class RecordFile {
 public:
  // Lines are appended to those of the file. Throws UsageError when it cannot be opened. No path:
  // no file.
  explicit RecordFile(const std::string& path);

  bool is_open() const { return file_.is_open(); }
  // What was interrupted, refused or lost would come out otherwise another time: it goes without
  // its result.
  void Add(RequestRecord record);
  // Throws when something could not be written.
  void Close();

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace sluice::cli
