// From hidden states to accepted tokens: for each row the certified head where it can serve, else
// the dense one. Which of them it was changes no token.
//
// The sampler steps its requests from the certified head, with their penalties, bias and masks. A
// row that reports log-probabilities, or of its changed logits more than a token, needs them all;
// DenseCause says so in the statistics.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/runner/aligned_bytes.h"
#include "sluice/generator.hpp"
#include "sluice/logprobs.hpp"
#include "sluice/sampler.hpp"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

// Why the certified head cannot serve a request's next token, the one after its first
// output_length; kNone: it can.
DenseCause CauseOf(const SamplingParams& params, int64_t output_length, int64_t vocab,
                   float logit_softcap, const GenerationReports& reports = {});

// What kAuto means for such a head and such requests: planes where these gain by them, beyond the
// tokens that it takes to gain back their making. Any other choice is itself.
HeadChoice ChosenHead(HeadChoice choice, const MatrixView& weight, const SamplingParams& params,
                      float logit_softcap, const GenerationReports& reports);

struct HeadStageOptions {
  DenseHead head = {};
  std::optional<HeadPlanes> planes = {};
  std::shared_ptr<TopKHead> top_k_head = {};
  float logit_softcap = 0.0f;
  int64_t max_rows = 1;
  int32_t logprob_width = 0;  // of the widest list of a row
  bool scores = false;        // Score may be called
  int64_t verified_rows = 0;  // hidden states that one Verify takes at most
  GenerationReports reports = {};
  Limits limits = {};
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

struct HeadRow {
  RequestHandle request = {};
  const SamplingParams* params = nullptr;  // the request's
  DrawMask* mask = nullptr;                // null: none
};

// A request with tokens that may come next: each of them, and what comes before the first, has a
// row.
struct DraftedRow {
  RequestHandle request = {};
  const SamplingParams* params = nullptr;  // the request's
  std::span<const int32_t> drafts = {};
  std::span<const int32_t> bitmask = {};  // as StepRequest has it
};

// What Sample fills, a row for each HeadRow; and Verify, a row for each hidden state.
struct HeadResults {
  std::vector<TokenResult> tokens;
  std::vector<CertifiedRow> certificates;
  int32_t logprob_width = 0;  // of the widest list of the rows
  std::vector<int32_t> logprob_ids;
  std::vector<float> logprob_values;
  // As GenerationReports has them.
  std::vector<float> logits;
  std::vector<int32_t> kept;
  std::vector<CutMass> masses;

  void Resize(size_t rows, size_t vocab, int32_t width, const GenerationReports& reports);
};

// What Score fills: PromptLogprobs with their memory elsewhere.
struct PromptScores {
  std::span<float> logprobs = {};
  std::span<int32_t> ranks = {};
  LogprobLists lists = {};
};

class HeadStage {
 public:
  explicit HeadStage(const HeadStageOptions& options);

  // hidden: a row for each of `rows`. The sampler has accepted the tokens afterwards.
  void Sample(const MatrixView& hidden, std::span<const HeadRow> rows, Sampler& sampler,
              GenerationStats& stats);
  const HeadResults& results() const { return results_; }

  // hidden: for each of `rows` as many rows as drafts and one more, by the dense head. The sampler
  // has accepted the tokens afterwards; emitted() says how many each of them got, until Sample.
  void Verify(const MatrixView& hidden, std::span<const DraftedRow> rows, Sampler& sampler,
              GenerationStats& stats);
  const HeadResults& verified() const { return verified_; }
  int64_t emitted(size_t row) const { return emitted_[row]; }

  // The tokens that follow the hidden states, one a row, in the model's own logits. The spans of
  // `scores` have that many elements; no more logits are kept than of a few rows.
  void Score(const MatrixView& hidden, std::span<const int32_t> tokens, const PromptScores& scores,
             GenerationStats& stats);

 private:
  enum class Route : uint8_t { kDense, kCertified, kTopK };

  MatrixView Gather(const MatrixView& hidden);
  void Scatter();
  LogitsView Project(const MatrixView& hidden);
  LogitsView ProjectInto(const MatrixView& hidden, std::vector<float>& logits);
  void SampleDense(const MatrixView& hidden, std::span<const HeadRow> rows, Sampler& sampler,
                   GenerationStats& stats);
  void SampleCertified(const MatrixView& hidden, std::span<const HeadRow> rows, Sampler& sampler,
                       GenerationStats& stats);
  void SampleTopK(const MatrixView& hidden, std::span<const HeadRow> rows, Sampler& sampler,
                  GenerationStats& stats);
  void NoteDrawn(std::span<const HeadRow> rows);
  void NoteDraws(std::span<const HeadRow> rows, const Sampler& sampler);
  void ReportCertified(const MatrixView& hidden);

  Execution WithWorkspace() { return {options_.backend, options_.parallel, workspace_.span()}; }

  HeadStageOptions options_;
  size_t vocab_;
  std::optional<CertifiedHead> certified_;
  AlignedBytes workspace_;
  HeadResults results_;  // of all rows of the step
  HeadResults verified_;
  std::vector<Route> routes_;

  // The rows that are being sampled together:
  std::vector<size_t> indices_;
  HeadResults part_;
  std::vector<float> gathered_;  // hidden states
  std::vector<float> logits_;    // unless they are reported
  std::vector<RequestHandle> handles_;
  std::vector<int32_t> ids_;
  std::vector<RowStatus> statuses_;
  // The answer of the head for the first k tokens:
  std::vector<int32_t> first_ids_;
  std::vector<float> first_logits_;
  // The reported values of certified rows:
  std::vector<SelectParams> params_;
  std::vector<NoiseKey> keys_;
  std::vector<Cut> cuts_;
  std::vector<StepRequest> requests_;
  std::vector<int32_t> emitted_;
  std::vector<TokenResult> scored_;  // as many as Score takes together; empty: none
};

}  // namespace sluice::engine
