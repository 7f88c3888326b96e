#include "cli/files/trace_tensors.h"

#include "cli/files/npy_writer.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

int64_t KeptWords(int64_t vocab) { return (vocab + 31) / 32; }

class NpyTensors : public TraceTensors {
 public:
  NpyTensors(const std::string& folder, int64_t dim, int64_t vocab)
      : hidden_(folder + "/hidden.npy", "<f4", dim),
        logits_(folder + "/logits.npy", "<f4", vocab),
        kept_(folder + "/kept.npy", "<i4", KeptWords(vocab)),
        tokens_(folder + "/tokens.npy", "<i4", 0) {}

  void Append(const TraceRow& row) override {
    hidden_.Append(row.hidden);
    logits_.Append(row.logits);
    kept_.Append(row.kept);
    tokens_.Append(std::span(&row.token, 1));
  }
  void Close() override {
    for (NpyWriter* file : {&hidden_, &logits_, &kept_, &tokens_}) file->Close();
  }

 private:
  NpyWriter hidden_;
  NpyWriter logits_;
  NpyWriter kept_;
  NpyWriter tokens_;
};

class OneFile : public TraceTensors {
 public:
  OneFile(const std::string& folder, int64_t dim, int64_t vocab,
          const SafetensorsWriter::Metadata& metadata)
      : file_(folder + "/trace.safetensors",
              {{"logits", "F32", vocab},
               {"hidden", "F32", dim},
               {"kept", "I32", KeptWords(vocab)},
               {"tokens", "I32", 0}},
              metadata) {}

  void Append(const TraceRow& row) override {
    file_.Append(0, row.logits);
    file_.Append(1, row.hidden);
    file_.Append(2, row.kept);
    file_.Append(3, std::span(&row.token, 1));
  }
  void Close() override { file_.Close(); }

 private:
  SafetensorsWriter file_;
};

}  // namespace

std::string_view Name(TraceFormat format) {
  return format == TraceFormat::kNpy ? "npy" : "safetensors";
}

TraceFormat TraceFormatByName(std::string_view name) {
  for (const TraceFormat format : {TraceFormat::kNpy, TraceFormat::kSafetensors}) {
    if (Name(format) == name) return format;
  }
  throw Error(ErrorCode::kInvalidValue, "format", Quoted(name), "npy or safetensors");
}

std::unique_ptr<TraceTensors> MakeTraceTensors(TraceFormat format, const std::string& folder,
                                               int64_t dim, int64_t vocab,
                                               const SafetensorsWriter::Metadata& metadata) {
  if (format == TraceFormat::kNpy) return std::make_unique<NpyTensors>(folder, dim, vocab);
  return std::make_unique<OneFile>(folder, dim, vocab, metadata);
}

}  // namespace sluice::cli
