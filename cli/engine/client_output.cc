#include "cli/engine/client_output.h"

namespace sluice::cli {

void RequestOutput::Add(const ClientOutput& output) {
  text += output.text;
  tokens.Append(output);
  if (!output.prompt.IsEmpty()) prompt.Append(engine::LogprobsOf(output.prompt));
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
          .ids = tokens.ids,
          .end = std::string(Name(end)),
          .prompt_tokens = prompt_tokens,
          .output_tokens = output_tokens};
}

PromptLogprobs RequestOutput::Prompt() const {
  PromptLogprobs whole = {.first_token = 1};
  engine::SetLogprobs(whole, prompt.View());
  return whole;
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
