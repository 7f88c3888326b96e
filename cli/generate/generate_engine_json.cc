#include "cli/generate/generate_engine_json.h"

#include "cli/generate/generate_report.h"
#include "cli/token_json.h"
#include "json/params_writer.h"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

void WriteIds(JsonWriter& json, std::span<const int32_t> ids) {
  json.Array([&] {
    for (const int32_t id : ids) json.Value(id);
  });
}

void WriteTokens(JsonWriter& json, const RequestOutput& output) {
  json.Array([&] {
    for (size_t token = 0; token < output.tokens.scores.logprobs.size(); ++token) {
      const engine::LogprobView score = output.tokens.scores.Part(token, 1);
      json.Object([&] {
        json.Key("id").Value(output.tokens.ids[token]);
        WriteLogprob(json, score.logprobs[0], score.ranks[0], score.ids, score.values);
      });
    }
  });
}

}  // namespace

void WriteEngineGeneration(const EngineGenerationResult& result, std::ostream& out) {
  const EngineInfo& info = result.client.info();
  const GenerationOptions& asked = result.options.generation;
  JsonWriter json(out);
  json.Object([&] {
    json.Key("version").Value(kVersionString);
    json.Key("engine").Value(result.options.engine);
    json.Key("model").Value(info.model);
    json.Key("stop_at").Value(Name(result.options.stop_at));
    json.Key("prompt").Value(result.prompt.text);
    json.Key("prompt_token_ids");
    WriteIds(json, result.prompt.ids);
    if (asked.prompt_logprobs.has_value()) {
      json.Key("prompt_logprobs");
      WritePromptLogprobs(json, result.prompt.ids, result.outputs[0].Prompt());
    }
    json.Key("truncated_tokens").Value(result.prompt.truncated_tokens);
    json.Key("max_tokens").Value(asked.max_tokens);
    json.Key("parameters").Object([&] {
      ParamsWriter(json).WriteFields(result.requests[0].params);
    });
    int64_t output_tokens = 0;
    json.Key("choices").Array([&] {
      for (size_t i = 0; i < result.outputs.size(); ++i) {
        const RequestOutput& output = result.outputs[i];
        output_tokens += output.output_tokens;
        json.Object([&] {
          json.Key("index").Value(i);
          json.Key("text").Value((result.options.echoes_prompt ? result.prompt.text : "") +
                                 output.text);
          json.Key("token_ids");
          WriteIds(json, output.tokens.ids);
          json.Key("end").Value(Name(output.end));
          if (output.end == GenerationEnd::kStopString) json.Key("stop").Value(output.stop);
          if (output.end == GenerationEnd::kStopToken) {
            json.Key("stop_token").Value(output.stop_token);
          }
          if (output.end == GenerationEnd::kStatus) json.Key("status").Value(Name(output.status));
          if (!output.message.empty()) json.Key("message").Value(output.message);
          if (output.end == GenerationEnd::kRejected) json.Key("code").Value(Name(output.code));
          if (!output.parameter.empty()) json.Key("parameter").Value(output.parameter);
          if (output.tokens.scores.logprobs.empty()) return;
          json.Key("tokens");
          WriteTokens(json, output);
        });
      }
    });
    json.Key("statistics").Object([&] {
      json.Key("prompt_tokens").Value(result.prompt.ids.size());
      json.Key("output_tokens").Value(output_tokens);
      json.Key("tokens_per_second").Value(PerSecond(output_tokens, result.wall_ns));
      json.Key("wall_ns").Value(result.wall_ns);
    });
  });
  out << '\n' << std::flush;
}

}  // namespace sluice::cli
