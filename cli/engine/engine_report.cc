#include "cli/engine/engine_report.h"

#include "cli/generate/generate_report.h"
#include "cli/text.h"
#include "sluice/version.hpp"

namespace sluice::cli {

void PrintReport(const EngineReport& report, std::ostream& out) {
  const EngineCounters& engine = report.engine;
  const LinkCounters& link = report.link;
  out << "  " << Count(engine.requests, "request") << " of " << Count(link.clients_seen, "frontend")
      << ": " << engine.aborted << " aborted, " << engine.rejected << " rejected\n"
      << "  " << Count(engine.tokens, "token") << " in " << Count(engine.steps, "step")
      << ", prompts " << Count(engine.prompt_tokens, "token") << " and " << engine.cached_tokens
      << " in the cache; " << engine.tokens_given << " given, " << engine.tokens_discarded_stop
      << " after a stop, " << engine.tokens_discarded_abort << " after an abort\n";
  if (engine.draft_tokens > 0) {
    out << "  " << engine.accepted_draft_tokens << " of " << Count(engine.draft_tokens, "token")
        << " tried ahead were right\n";
  }
  const GrammarCounters& grammars = engine.grammars;
  if (grammars.compiled + grammars.cached > 0) {
    out << "  grammars of " << Count(grammars.compiled, "request") << " compiled, of "
        << grammars.cached << " in the cache; " << Count(grammars.masks, "mask") << ", "
        << grammars.mask_waits << " not filled in time, which took "
        << Duration(grammars.mask_wait_ns) << '\n';
  }
  out << "  " << Count(engine.preemptions, "preemption") << ", "
      << Count(engine.stale_aborts, "abort") << " too late\n"
      << "  model " << Duration(engine.model_ns) << ", engine " << Duration(engine.own_ns)
      << ", link " << Duration(link.own_ns) << '\n';
  if (link.resets == 0 && link.foreign_frames == 0) return;
  out << "  " << Count(link.malformed_frames, "malformed frame") << ", "
      << Count(link.foreign_frames, "foreign frame") << ", "
      << Count(link.bad_requests, "bad request") << ", " << Count(link.resets, "reset") << '\n';
}

void WriteReport(const EngineReport& report, std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("version").Value(kVersionString);
    json.Key("model").Value(report.model);
    json.Key("endpoint").Value(report.endpoint);
    json.Key("engine").Object([&] { WriteCounters(json, report.engine); });
    json.Key("link").Object([&] { WriteCounters(json, report.link); });
  });
  out << '\n' << std::flush;
}

void WriteCounters(JsonWriter& json, const EngineCounters& counters) {
  json.Key("steps").Value(counters.steps);
  json.Key("running").Value(counters.running);
  json.Key("waiting").Value(counters.waiting);
  json.Key("requests").Value(counters.requests);
  json.Key("ended").Value(counters.ended);
  json.Key("prompt_tokens").Value(counters.prompt_tokens);
  json.Key("cached_tokens").Value(counters.cached_tokens);
  json.Key("tokens").Value(counters.tokens);
  json.Key("tokens_given").Value(counters.tokens_given);
  json.Key("tokens_discarded_stop").Value(counters.tokens_discarded_stop);
  json.Key("tokens_discarded_abort").Value(counters.tokens_discarded_abort);
  json.Key("draft_tokens").Value(counters.draft_tokens);
  json.Key("accepted_draft_tokens").Value(counters.accepted_draft_tokens);
  json.Key("preemptions").Value(counters.preemptions);
  json.Key("rejected").Value(counters.rejected);
  json.Key("aborted").Value(counters.aborted);
  json.Key("stale_aborts").Value(counters.stale_aborts);
  json.Key("free_pages").Value(counters.free_pages);
  json.Key("model_ns").Value(counters.model_ns);
  json.Key("own_ns").Value(counters.own_ns);
  const GrammarCounters& grammars = counters.grammars;
  json.Key("compiling").Value(grammars.compiling);
  json.Key("compiled").Value(grammars.compiled);
  json.Key("cached").Value(grammars.cached);
  json.Key("masks").Value(grammars.masks);
  json.Key("mask_waits").Value(grammars.mask_waits);
  json.Key("mask_wait_ns").Value(grammars.mask_wait_ns);
}

void WriteCounters(JsonWriter& json, const LinkCounters& counters) {
  json.Key("clients").Value(counters.clients);
  json.Key("clients_seen").Value(counters.clients_seen);
  json.Key("frames_in").Value(counters.frames_in);
  json.Key("frames_out").Value(counters.frames_out);
  json.Key("bytes_in").Value(counters.bytes_in);
  json.Key("bytes_out").Value(counters.bytes_out);
  json.Key("tokens_out").Value(counters.tokens_out);
  json.Key("malformed_frames").Value(counters.malformed_frames);
  json.Key("foreign_frames").Value(counters.foreign_frames);
  json.Key("bad_requests").Value(counters.bad_requests);
  json.Key("resets").Value(counters.resets);
  json.Key("held_tokens").Value(counters.held_tokens);
  json.Key("own_ns").Value(counters.own_ns);
}

}  // namespace sluice::cli
