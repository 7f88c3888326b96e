#include "bench/head/trained_head.h"

#include "bench/head/model_states.h"

namespace sluice::bench {

std::vector<TrainedHeadResult> RunTrainedHead(
    const Checkpoint& checkpoint, std::string_view text, const TrainedHeadOptions& options,
    const std::function<void(const std::string&)>& on_progress) {
  ModelStates states(
      checkpoint, text,
      {.states = options.states, .backend = options.backend, .parallel = options.parallel},
      on_progress);
  on_progress("building planes and clusters");
  HeadCheck check(
      checkpoint.head(),
      {.clusters = options.clusters, .backend = options.backend, .parallel = options.parallel});
  std::vector<TrainedHeadResult> results;
  const auto take = [&](std::string_view source) {
    results.push_back({source,
                       {check.answers().begin(), check.answers().end()},
                       {check.intervals().begin(), check.intervals().end()},
                       {check.clusters().begin(), check.clusters().end()}});
    check.Reset();
  };
  const ModelStates::Visit add = [&](const MatrixView& hidden) { return check.Add(hidden); };
  states.OfText(add);
  take("text");
  states.OfItsOwn(add);
  take("own");
  return results;
}

}  // namespace sluice::bench
