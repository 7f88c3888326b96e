#include "python/engine/engine_facts.h"

#include "python/errors.h"

namespace sluice::python {

nb::dict InfoOf(const EngineInfo& info) {
  nb::dict dict;
  dict["model"] = info.model;
  dict["version"] = info.version;
  dict["vocab"] = info.vocab;
  dict["context"] = info.context;
  dict["max_requests"] = info.max_requests;
  dict["max_client_requests"] = info.max_client_requests;
  dict["max_logprobs"] = info.max_logprobs;
  dict["max_temperature"] = info.limits.max_temperature;
  dict["steps_in_flight"] = info.steps_in_flight;
  nb::list ends;
  for (const int32_t id : info.end_tokens) ends.append(id);
  dict["end_tokens"] = ends;
  dict["has_text"] = info.has_text;
  dict["has_grammars"] = info.has_grammars;
  return dict;
}

#define SLUICE_COUNT(name) dict[#name] = counters.name

nb::dict CountersOf(const ClientCounters& counters) {
  nb::dict dict;
  SLUICE_COUNT(requests);
  SLUICE_COUNT(outputs);
  SLUICE_COUNT(tokens);
  SLUICE_COUNT(aborts);
  SLUICE_COUNT(stale_rows);
  SLUICE_COUNT(stale_tokens);
  SLUICE_COUNT(unknown_rows);
  SLUICE_COUNT(repeated_ends);
  SLUICE_COUNT(gaps);
  SLUICE_COUNT(foreign_ids);
  SLUICE_COUNT(disagreements);
  SLUICE_COUNT(repeated_frames);
  SLUICE_COUNT(malformed_frames);
  SLUICE_COUNT(foreign_frames);
  SLUICE_COUNT(resets);
  return dict;
}

nb::dict CountersOf(const EngineCounters& counters) {
  nb::dict dict;
  SLUICE_COUNT(steps);
  SLUICE_COUNT(running);
  SLUICE_COUNT(waiting);
  SLUICE_COUNT(requests);
  SLUICE_COUNT(ended);
  SLUICE_COUNT(prompt_tokens);
  SLUICE_COUNT(cached_tokens);
  SLUICE_COUNT(tokens);
  SLUICE_COUNT(tokens_given);
  SLUICE_COUNT(tokens_discarded_stop);
  SLUICE_COUNT(tokens_discarded_abort);
  SLUICE_COUNT(preemptions);
  SLUICE_COUNT(rejected);
  SLUICE_COUNT(aborted);
  SLUICE_COUNT(stale_aborts);
  SLUICE_COUNT(free_pages);
  SLUICE_COUNT(model_ns);
  SLUICE_COUNT(own_ns);
  const GrammarCounters& grammars = counters.grammars;
  dict["compiling"] = grammars.compiling;
  dict["compiled"] = grammars.compiled;
  dict["cached"] = grammars.cached;
  dict["masks"] = grammars.masks;
  dict["mask_waits"] = grammars.mask_waits;
  dict["mask_wait_ns"] = grammars.mask_wait_ns;
  return dict;
}
#undef SLUICE_COUNT

}  // namespace sluice::python
