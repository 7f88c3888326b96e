// Text from a model: one prompt, any number of choices, decoded in one batch.
//
// Pull style: each Step gives every choice that goes on one token. The tokens of a choice depend on
// the model, the prompt, the parameters, the seed and the number of the choice; not on the backend,
// the other choices, the head that computes them, the size of chunks or the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/certified_head.hpp"
#include "sluice/checkpoint.hpp"
#include "sluice/cut.hpp"
#include "sluice/generation_end.hpp"
#include "sluice/grammar.hpp"
#include "sluice/params.hpp"
#include "sluice/prompt_logprobs.hpp"
#include "sluice/reasoning.hpp"
#include "sluice/text_stream.hpp"
#include "sluice/top_k_head.hpp"

namespace sluice {

// The head that projects hidden states. The tokens do not depend on it.
enum class HeadChoice : uint8_t {
  kAuto,  // planes of kDither4 where they pay, see HeadPlanesFor
  kDense,
  kDither4,
  kStrict,
  kClusters,  // a TopKHead of the caller's: rows in clusters, of Sluice::research
};
std::string_view Name(HeadChoice choice);  // "auto", "dense", "dither4", "strict", "clusters"
HeadChoice HeadChoiceByName(std::string_view name);

struct GenerationRequest {
  SamplingParams params = {};
  std::span<const int32_t> prompt = {};
  int32_t choices = 1;
  int64_t max_tokens = 256;  // of each choice; 0: the prompt is read to be scored, or not at all
  // Scores the prompt, with this many of the most likely tokens for each of its places.
  std::optional<int32_t> prompt_logprobs = {};
  std::vector<std::string> stops = {};
  bool include_stop = false;
  bool ignores_end = false;  // the checkpoint's end tokens do not end a choice
  // What each choice has to match, compiled for the checkpoint's vocabulary and end tokens. Then
  // ignores_end and min_tokens do not count: a choice ends where the grammar allows it.
  std::optional<Grammar> grammar = {};
  // As EngineRequest has it.
  std::optional<ThinkingBudget> thinking = {};
};

// The data that Step keeps for the study of a model. Logits cost a projection where the certified
// head has left it out.
struct GenerationReports {
  bool logits = false;  // as the model gave them, after its soft-cap
  bool cuts = false;    // of tokens; those of top-p on all tokens are the dense head's
  bool kept = false;    // kept sets as bitmasks
  bool masses = false;

  bool HasSets() const { return cuts || kept || masses; }
};

// The planes of a choice; nothing for the dense head and for clusters. kAuto builds them where
// requests like `params` gain by them, with this much to report.
std::optional<HeadPlanes> HeadPlanesFor(HeadChoice choice, const Checkpoint& checkpoint,
                                        const SamplingParams& params,
                                        const GenerationReports& reports = {},
                                        const HeadPlaneOptions& options = {},
                                        const ParallelFor& parallel = {});

struct GeneratorOptions {
  std::optional<HeadPlanes> planes = {};      // of checkpoint.head(); none: the dense head serves
  std::shared_ptr<TopKHead> top_k_head = {};  // of checkpoint.head(), in place of planes
  int64_t prompt_chunk = 512;                 // tokens of the prompt that one Prefill takes
  GenerationReports reports = {};
  Limits limits = {};
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

// The result of a step for one choice.
struct ChoiceStep {
  int32_t choice = 0;
  TokenResult token = {};         // with its Cut where a report of sets was requested
  CertifiedRow certificate = {};  // path kNothing: the dense head served
  Delta delta = {};
  std::string_view text = {};  // what came out; valid until the next call
  GenerationEnd end = GenerationEnd::kNone;
};

// Why a row was not the certified head's although there are planes.
enum class DenseCause : uint8_t {
  kNone,
  kAdjustments,  // penalties, bias and masks, where kept sets or masses are reported
  kLogprobs,
  kSoftCap,  // two logits may round to one under it, and then the smaller id comes first
  kMass,     // measured on all tokens, where neither top-k nor min-p comes first: typical,
             // top-n-sigma, a cdf draw, XTC; and top-p where its Cut is reported
};
inline constexpr size_t kDenseCauses = 5;
std::string_view Name(DenseCause cause);

struct GenerationStats {
  int64_t prompt_tokens = 0;  // that went through the model
  int64_t output_tokens = 0;  // of all choices
  int64_t steps = 0;
  int64_t draft_tokens = 0;           // that a ModelRunner has tried ahead, and
  int64_t accepted_draft_tokens = 0;  // those that were right

  // Nanoseconds. Selection by the certified head counts as head.
  int64_t prefill_ns = 0;
  int64_t forward_ns = 0;
  int64_t head_ns = 0;
  int64_t select_ns = 0;
  int64_t report_ns = 0;  // for GenerationReports
  int64_t text_ns = 0;

  CertifiedStats certified = {};                      // of the rows that the certified head took
  std::array<int64_t, kDenseCauses> dense_rows = {};  // the others, by cause; kNone: no planes
};

// As LogprobLists has them.
struct LogprobRows {
  int32_t width = 0;  // entries a row; 0: no lists
  std::span<const int32_t> ids = {};
  std::span<const float> values = {};
};

// One thread at a time may call a Generator.
class Generator {
 public:
  // Throws Error when a parameter is out of range, or the prompt is empty or leaves no room in the
  // context; allocates all but the text.
  Generator(const Checkpoint& checkpoint, const GenerationRequest& request,
            const GeneratorOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // The request's, with the end tokens among the stop tokens and the seed that is in use: a random
  // one, if the request had none.
  const SamplingParams& params() const;

  // Takes the next chunk of the prompt; returns how many tokens remain. Step takes the rest.
  int64_t Prefill();

  // Those of the tokens that Prefill has taken so far. Valid until the next Prefill or Step.
  PromptLogprobs prompt_logprobs() const;

  // One token for every choice that goes on, by number; empty when none does. Without tokens to
  // come all of them end in the first Step.
  std::span<const ChoiceStep> Step();

  // Ends the choices that go on: what their text has held back.
  std::span<const ChoiceStep> Cancel();

  int64_t live_choices() const;
  std::span<const int32_t> OutputTokens(int32_t choice) const;
  const GenerationStats& stats() const;

  // The hidden states of the last Step, a row for each of its elements; or empty.
  MatrixView hidden() const;  // never empty
  LogitsView logits() const;
  std::span<const int32_t> kept() const;  // ceil(vocab / 32) words a row
  std::span<const CutMass> masses() const;
  LogprobRows logprobs() const;  // as params.logprobs says

 private:
  class Impl;
  Impl& Get() const;
  std::unique_ptr<Impl> impl_;
};

// The prompt without its middle: `first` tokens of its beginning (those that the model needs before
// a text) and as many last ones as leave room for max_tokens, or for half a context if those are
// more.
std::vector<int32_t> TruncatePrompt(std::span<const int32_t> prompt, int64_t context,
                                    int64_t max_tokens, int64_t first);

}  // namespace sluice
