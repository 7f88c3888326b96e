// One row of a .npy file, through the library: the definition's explanations, and the same row by
// the backend and the algorithm that the command line chooses.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "cli/files/npy_file.h"
#include "cli/flags/row_flags.h"
#include "cli/generate/logprob_report.h"
#include "cli/terminal.h"
#include "json/writer.h"
#include "sluice/explain.hpp"

namespace sluice::cli {

class RowRun {
 public:
  // Throws Error for a file, row or parameter that does not fit.
  explicit RowRun(const RowOptions& options);

  const NpyFile& file() const { return file_; }
  LogitsView logits() const;  // as they came
  const std::vector<float>& adjusted() const { return adjusted_; }
  const SamplingParams& params() const { return options_.params; }
  const NoiseKey& key() const { return key_; }
  const TokenResult& token() const { return token_; }
  const LogprobReport& logprobs() const { return logprobs_; }

  std::vector<Explanation> ExplainIds(std::span<const int32_t> ids) const;

  // "logits.npy, row 0 of (2, 32000) float32".
  std::string Title() const;
  // What both commands say in JSON before their own.
  void WriteHead(JsonWriter& json) const;
  // Throws, for main to report, when the backend did not give what the definition gives.
  void CheckAgainst(const Explanation& explanation) const;

 private:
  void Sample();

  RowOptions options_;
  NpyFile file_;
  std::vector<std::byte> bytes_;
  std::vector<int32_t> tokens_;
  NoiseKey key_;
  std::vector<float> adjusted_;
  TokenResult token_;
  research::Algorithm ran_ = research::Algorithm::kAuto;
  LogprobReport logprobs_;
};

}  // namespace sluice::cli
