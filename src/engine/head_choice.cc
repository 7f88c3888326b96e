// Which head serves, and the names of everything that generator.hpp names.
#include <iterator>
#include <string>

#include "sluice/generator.hpp"
#include "support/check.h"

namespace sluice {
namespace {

constexpr std::string_view kHeadNames[] = {"auto", "dense", "dither4", "strict"};
constexpr std::string_view kEndNames[] = {"none",    "stop_string", "stop_token", "length",
                                          "context", "status",      "cancelled"};
constexpr std::string_view kCauseNames[] = {"no planes", "adjustments", "logprobs", "soft-cap"};

}  // namespace

std::string_view Name(HeadChoice choice) { return kHeadNames[static_cast<size_t>(choice)]; }
std::string_view Name(GenerationEnd end) { return kEndNames[static_cast<size_t>(end)]; }
std::string_view Name(DenseCause cause) { return kCauseNames[static_cast<size_t>(cause)]; }

HeadChoice HeadChoiceByName(std::string_view name) {
  for (size_t i = 0; i < std::size(kHeadNames); ++i) {
    if (kHeadNames[i] == name) return static_cast<HeadChoice>(i);
  }
  ThrowInvalid("head", ToText(name), "auto, dense, dither4 or strict");
}

std::optional<HeadPlanes> HeadPlanesFor(HeadChoice choice, const DenseHead& head,
                                        const HeadPlaneOptions& options,
                                        const ParallelFor& parallel) {
  // Planes pay where a step waits for the head's bytes: a head of 250 MiB takes a third of the time
  // (docs/certified-head.md), one that stays in the cache of a core gains nothing.
  constexpr size_t kLeastBytes = size_t{64} << 20;
  const MatrixView& weight = head.weight;
  const size_t bytes = static_cast<size_t>(weight.rows * weight.columns) * SizeOf(weight.dtype);
  if (choice == HeadChoice::kAuto) {
    choice = bytes < kLeastBytes ? HeadChoice::kDense : HeadChoice::kDither4;
  }
  if (choice == HeadChoice::kDense) return std::nullopt;
  HeadPlaneOptions chosen = options;
  chosen.kind =
      choice == HeadChoice::kStrict ? CertificateKind::kStrict : CertificateKind::kDither4;
  return HeadPlanes::Build(weight, chosen, parallel);
}

}  // namespace sluice
