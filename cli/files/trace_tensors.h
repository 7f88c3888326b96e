// The tensors of a trace as files: a .npy each, or all in one .safetensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cli/files/safetensors_writer.h"

namespace sluice::cli {

enum class TraceFormat : uint8_t { kNpy, kSafetensors };
std::string_view Name(TraceFormat format);  // "npy", "safetensors"
TraceFormat TraceFormatByName(std::string_view name);

// Of one token.
struct TraceRow {
  std::span<const float> hidden;
  std::span<const float> logits;
  std::span<const int32_t> kept;  // ceil(vocab / 32) words
  int32_t token;
};

class TraceTensors {
 public:
  virtual ~TraceTensors() = default;
  virtual void Append(const TraceRow& row) = 0;
  virtual void Close() = 0;  // without it no file is whole
};

// metadata: of the .safetensors file. Throws Error naming the path when one cannot be written.
std::unique_ptr<TraceTensors> MakeTraceTensors(TraceFormat format, const std::string& folder,
                                               int64_t dim, int64_t vocab,
                                               const SafetensorsWriter::Metadata& metadata);

}  // namespace sluice::cli
