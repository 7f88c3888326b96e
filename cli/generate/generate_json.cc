#include "cli/generate/generate_json.h"

#include <sstream>

#include "cli/inspect/candidates.h"
#include "cli/token_json.h"
#include "json/params_writer.h"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

class JsonView : public GenerateView {
 public:
  JsonView(const GenerateOptions& options, const Generation& generation, std::ostream& out)
      : options_(options),
        generation_(generation),
        out_(out),
        has_tokens_(options.as_json_lines || options.show_candidates > 0 ||
                    options.generation.params.logprobs.has_value()),
        tokens_(static_cast<size_t>(options.generation.choices)) {}

  void Show(std::span<const ChoiceStep> steps, std::span<const ChoiceState>) override {
    if (!has_tokens_) return;
    for (size_t row = 0; row < steps.size(); ++row) {
      const ChoiceStep& step = steps[row];
      if (step.token.id < 0) continue;
      std::ostringstream token;
      JsonWriter json(token);
      json.Object([&] { WriteToken(json, step, row); });
      if (options_.as_json_lines) {
        out_ << token.view() << '\n';
      } else {
        tokens_[static_cast<size_t>(step.choice)].push_back(token.str());
      }
    }
    out_.flush();
  }

  void End(std::span<const ChoiceState> choices, const GenerateTimes& times) override {
    const Generator& generator = generation_.generator();
    JsonWriter json(out_);
    json.Object([&] {
      json.Key("version").Value(kVersionString);
      json.Key("model").Value(generation_.options().source.Name());
      json.Key("backend").Value(generation_.backend_name());
      json.Key("threads").Value(generation_.threads());
      json.Key("head").Value(Name(generation_.head()));
      json.Key("prompt").Value(generation_.prompt().text);
      json.Key("prompt_token_ids").Array([&] { WriteIds(json, generation_.prompt().ids); });
      if (generation_.options().prompt_logprobs.has_value()) {
        json.Key("prompt_logprobs");
        WritePromptLogprobs(json, generation_.prompt().ids, generator.prompt_logprobs());
      }
      json.Key("truncated_tokens").Value(generation_.prompt().truncated_tokens);
      json.Key("max_tokens").Value(generation_.options().max_tokens);
      json.Key("parameters").Object([&] { ParamsWriter(json).WriteFields(generator.params()); });
      json.Key("choices").Array([&] {
        for (size_t i = 0; i < choices.size(); ++i) {
          json.Object([&] { WriteChoice(json, i, choices[i]); });
        }
      });
      json.Key("statistics").Object([&] { WriteStatistics(json, generation_, times); });
    });
    out_ << '\n' << std::flush;
  }

 private:
  static void WriteIds(JsonWriter& json, std::span<const int32_t> ids) {
    for (const int32_t id : ids) json.Value(id);
  }

  void WriteChoice(JsonWriter& json, size_t index, const ChoiceState& choice) const {
    json.Key("index").Value(index);
    json.Key("text").Value((options_.echoes_prompt ? generation_.prompt().text : "") + choice.text);
    json.Key("token_ids").Array([&] {
      WriteIds(json, generation_.generator().OutputTokens(static_cast<int32_t>(index)));
    });
    json.Key("end").Value(Name(choice.end));
    if (choice.end == GenerationEnd::kStopString) {
      const auto stop = static_cast<size_t>(choice.delta.stop);
      json.Key("stop").Value(generation_.options().stops[stop]);
    }
    if (choice.end == GenerationEnd::kStopToken) {
      json.Key("stop_token").Value(choice.delta.stop_token);
    }
    if (choice.end == GenerationEnd::kStatus) json.Key("status").Value(Name(choice.last.status));
    if (!has_tokens_ || options_.as_json_lines) return;
    json.Key("tokens").Array([&] {
      for (const std::string& token : tokens_[index]) json.Raw(token);
    });
  }

  void WriteToken(JsonWriter& json, const ChoiceStep& step, size_t row) const {
    const LogprobRows logprobs = generation_.generator().logprobs();
    json.Key("choice").Value(step.choice);
    json.Key("id").Value(step.token.id);
    json.Key("text").Value(step.text);
    json.Key("kept").Value(step.token.cut.count);
    if (logprobs.width > 0) {
      const auto width = static_cast<size_t>(logprobs.width);
      const auto ids = logprobs.ids.subspan(row * width, width);
      const auto values = logprobs.values.subspan(row * width, width);
      WriteLogprob(json, step.token.logprob, step.token.rank, ids, values);
    }
    if (step.certificate.path != CertifiedPath::kNothing) {
      json.Key("certificate").Object([&] {
        json.Key("path").Value(Name(step.certificate.path));
        json.Key("reason").Value(Name(step.certificate.reason));
        json.Key("survivors").Value(step.certificate.survivors);
        json.Key("margin").Value(step.certificate.margin);
      });
    }
    if (options_.show_candidates == 0) return;
    json.Key("candidates").Array([&] {
      for (const Explanation& e :
           generation_.ExplainStep(step, static_cast<int64_t>(row), options_.show_candidates)) {
        json.Object([&] { WriteCandidate(json, e); });
      }
    });
  }

  const GenerateOptions& options_;
  const Generation& generation_;
  std::ostream& out_;
  bool has_tokens_;
  std::vector<std::vector<std::string>> tokens_;  // of each choice, as JSON
};

}  // namespace

std::unique_ptr<GenerateView> MakeJsonView(const GenerateOptions& options,
                                           const Generation& generation, std::ostream& out) {
  return std::make_unique<JsonView>(options, generation, out);
}

}  // namespace sluice::cli
