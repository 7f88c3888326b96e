#include "cli/replay/record_file.h"

#include <stdexcept>

#include "cli/files/file.h"
#include "sluice/generation_end.hpp"

namespace sluice::cli {

RecordFile::RecordFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path, std::ios::app);
  if (!file_) ThrowUnwritable(path);
}

void RecordFile::Add(RequestRecord record) {
  if (!is_open()) return;
  for (const GenerationEnd end :
       {GenerationEnd::kCancelled, GenerationEnd::kRejected, GenerationEnd::kEngineLost}) {
    if (record.result.has_value() && record.result->end == Name(end)) record.result.reset();
  }
  file_ << WriteRecord(record) << '\n';
}

void RecordFile::Close() {
  if (!is_open()) return;
  file_.close();
  if (!file_) throw std::runtime_error("cannot write " + path_);
}

}  // namespace sluice::cli
