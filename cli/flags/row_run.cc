#include "cli/flags/row_run.h"

#include <algorithm>
#include <stdexcept>

#include "cli/inspect/stage_text.h"
#include "cli/text.h"
#include "cli/workspace.h"
#include "json/params_writer.h"
#include "support/registry.h"

namespace sluice::cli {
namespace {

std::string_view NameOf(Backend backend) {
  for (const BackendInfo& info : Backends()) {
    if (info.backend == backend) return info.name;
  }
  return "unknown";
}

std::string_view NameOf(research::Algorithm algorithm) {
  for (const research::AlgorithmEntry& info : research::Algorithms()) {
    if (info.algorithm == algorithm) return info.name;
  }
  return "unknown";
}

}  // namespace

RowRun::RowRun(const RowOptions& options)
    : options_(options),
      file_(options.path),
      bytes_(file_.ReadRow(options.row)),
      tokens_(options.prompt) {
  tokens_.insert(tokens_.end(), options.output.begin(), options.output.end());
  options_.params.seed = options.params.seed.value_or(kRowSeed);
  options_.execution.backend = ResolveBackend(options.execution.backend);
  key_ = {*options_.params.seed, options.position.value_or(static_cast<uint32_t>(tokens_.size())),
          options.choice};
  // One that draws nothing checks everything, in the words of Explain.
  static_cast<void>(ExplainIds({}));
  Sample();
}

LogitsView RowRun::logits() const {
  return {bytes_.data(), 1, file_.vocab(), file_.vocab(), file_.dtype()};
}

std::vector<Explanation> RowRun::ExplainIds(std::span<const int32_t> ids) const {
  return Explain({.logits = logits(),
                  .params = options_.params,
                  .key = key_,
                  .tokens = tokens_,
                  .prompt_length = options_.prompt.size(),
                  .forced = options_.forced},
                 ids);
}

void RowRun::Sample() {
  const Backend backend = options_.execution.backend;
  const int64_t vocab = file_.vocab();
  adjusted_.resize(static_cast<size_t>(vocab));
  // The step draws at the position after the history; only its adjusted values are of interest.
  Sampler sampler({.vocab = vocab, .max_requests = 1, .backend = backend});
  const RequestHandle request = sampler.Add({.params = options_.params,
                                             .prompt = options_.prompt,
                                             .choice = options_.choice,
                                             .max_new_tokens = 1});
  sampler.Accept(request, options_.output);
  const StepRequest step{.request = request, .forced = options_.forced};
  TokenResult ignored;
  int32_t emitted = 0;
  sampler.Step({logits(), {&step, 1}}, {.tokens = {&ignored, 1},
                                        .emitted = {&emitted, 1},
                                        .adjusted = {adjusted_.data(), 1, vocab, vocab}});

  const LogitsView view{adjusted_.data(), 1, vocab, vocab};
  const SelectParams select = options_.params.Select();
  Workspace workspace(view, backend);
  SelectWork work;
  research::Sample({view, {&select, 1}, {&key_, 1}}, options_.params.draw_method,
                   options_.execution.algorithm, {&token_, 1},
                   {.backend = backend, .workspace = workspace.span(), .work = {&work, 1}});
  ran_ = research::RanBy(options_.execution.algorithm, work);
  logprobs_ = MakeLogprobs(logits(), view, options_.params, token_, backend);
}

std::string RowRun::Title() const {
  return file_.path() + ": row " + Number(options_.row) + " of " + file_.Shape() + " " +
         std::string(Name(file_.dtype()));
}

void RowRun::WriteHead(JsonWriter& json) const {
  json.Key("file").Value(file_.path());
  json.Key("shape").Array([&] {
    if (file_.has_rows()) json.Value(file_.rows());
    json.Value(file_.vocab());
  });
  json.Key("dtype").Value(Name(file_.dtype()));
  json.Key("row").Value(options_.row);
  json.Key("position").Value(key_.position);
  json.Key("choice").Value(key_.choice);
  json.Key("parameters").Object([&] { ParamsWriter(json).WriteFields(options_.params); });
  json.Key("backend").Value(NameOf(options_.execution.backend));
  json.Key("algorithm").Value(NameOf(ran_));
  json.Key("status").Value(Name(token_.status));
  json.Key("token").Value(token_.id);
  json.Key("cut").Object([&] { WriteCut(json, token_.cut); });
  WriteLogprobs(json, logprobs_);
}

void RowRun::CheckAgainst(const Explanation& explanation) const {
  if (explanation.cut == token_.cut && explanation.drawn_id == token_.id) return;
  throw std::runtime_error(std::string("the backend ")
                               .append(NameOf(options_.execution.backend))
                               .append(" did not give what the definition gives"));
}

}  // namespace sluice::cli
