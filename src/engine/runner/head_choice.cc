// Which head serves, and the names of everything that generator.hpp names.
#include <iterator>
#include <string>

#include "engine/runner/head_stage.h"
#include "sluice/generator.hpp"
#include "support/check.h"

namespace sluice {
namespace {

constexpr std::string_view kHeadNames[] = {"auto", "dense", "dither4", "strict", "clusters"};
constexpr std::string_view kCauseNames[] = {"none", "adjustments", "logprobs", "softcap", "mass"};

// A head from which planes are worth their making, for a few hundred tokens. On one core of an AMD
// EPYC with AVX-512 VNNI and a head in bf16, k = 50, p = 0.9, projection and draw take
//
//   vocab x dim     MiB   dense    certified  planes made in  gained back after
//   8192 x 320        5   0.30 ms  0.16 ms    0.04 s          290 tokens
//   32000 x 288      18   1.4 ms   0.85 ms    0.13 s          250
//   49152 x 576      54   5.0 ms   1.9 ms     0.42 s          130
//   32000 x 1024     63   7.4 ms   2.4 ms     0.47 s           90
//   151936 x 896    260   29 ms    5.5 ms     1.7 s            70
//
// with other work on the machine, so take them for their order. bench/head/heads.h made the heads.
constexpr size_t kLeastBytes = size_t{32} << 20;

}  // namespace

HeadChoice engine::ChosenHead(HeadChoice choice, const MatrixView& weight,
                              const SamplingParams& params, float logit_softcap,
                              const GenerationReports& reports) {
  if (choice != HeadChoice::kAuto) return choice;
  const size_t bytes = static_cast<size_t>(weight.rows * weight.columns) * SizeOf(weight.dtype);
  const DenseCause cause = CauseOf(params, params.min_tokens, weight.rows, logit_softcap, reports);
  return cause == DenseCause::kNone && bytes >= kLeastBytes ? HeadChoice::kDither4
                                                            : HeadChoice::kDense;
}

std::string_view Name(HeadChoice choice) { return kHeadNames[static_cast<size_t>(choice)]; }
std::string_view Name(DenseCause cause) { return kCauseNames[static_cast<size_t>(cause)]; }

HeadChoice HeadChoiceByName(std::string_view name) {
  for (size_t i = 0; i < std::size(kHeadNames); ++i) {
    if (kHeadNames[i] == name) return static_cast<HeadChoice>(i);
  }
  ThrowInvalid("head", ToText(name), "auto, dense, dither4, strict or clusters");
}

std::optional<HeadPlanes> HeadPlanesFor(HeadChoice choice, const Checkpoint& checkpoint,
                                        const SamplingParams& params,
                                        const GenerationReports& reports,
                                        const HeadPlaneOptions& options,
                                        const ParallelFor& parallel) {
  const MatrixView weight = checkpoint.head().weight;
  choice =
      engine::ChosenHead(choice, weight, params, checkpoint.model().info().logit_softcap, reports);
  if (choice == HeadChoice::kDense || choice == HeadChoice::kClusters) return std::nullopt;
  HeadPlaneOptions chosen = options;
  chosen.kind =
      choice == HeadChoice::kStrict ? CertificateKind::kStrict : CertificateKind::kDither4;
  return HeadPlanes::Build(weight, chosen, parallel);
}

}  // namespace sluice
