#include "cli/client_output.h"

namespace sluice::cli {
namespace {

template <typename T>
void Append(std::vector<T>& to, std::span<const T> values) {
  to.insert(to.end(), values.begin(), values.end());
}

}  // namespace

void RequestOutput::Add(const ClientOutput& output) {
  text += output.text;
  Append(ids, output.ids);
  Append(logprobs, output.logprobs);
  Append(ranks, output.ranks);
  if (output.logprob_width > 0) logprob_width = output.logprob_width;
  Append(logprob_ids, output.logprob_ids);
  Append(logprob_values, output.logprob_values);
  Append(prompt_logprobs, output.prompt.logprobs);
  Append(prompt_ranks, output.prompt.ranks);
  if (!output.prompt.IsEmpty()) prompt_width = output.prompt.width;
  Append(prompt_ids, output.prompt.ids);
  Append(prompt_values, output.prompt.values);
  end = output.end;
  stop = output.stop;
  stop_token = output.stop_token;
  status = output.status;
  message = output.message;
  code = output.code;
  parameter = output.parameter;
  prompt_tokens = output.prompt_tokens;
  output_tokens = output.output_tokens;
}

RequestResult RequestOutput::Result() const {
  return {.text = text,
          .ids = ids,
          .end = std::string(Name(end)),
          .prompt_tokens = prompt_tokens,
          .output_tokens = output_tokens};
}

PromptLogprobs RequestOutput::Prompt() const {
  return {.first_token = 1,
          .logprobs = prompt_logprobs,
          .ranks = prompt_ranks,
          .width = prompt_width,
          .ids = prompt_ids,
          .values = prompt_values};
}

std::string FailureText(const RequestOutput& output) {
  switch (output.end) {
    case GenerationEnd::kStatus:
      return "a row gave no token: " + std::string(Name(output.status));
    case GenerationEnd::kRejected:
      return "the engine refused the request: " + output.message;
    case GenerationEnd::kEngineLost:
      return "the engine was lost: " + output.message;
    default:
      return "";
  }
}

}  // namespace sluice::cli
