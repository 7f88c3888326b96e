// The error of an output that ends without a finish_reason, or that never began.
#pragma once

#include "server/api/api_error.h"
#include "server/api/request/completion_request.h"
#include "sluice/client.hpp"

namespace sluice::server {

// Ends that a response gives as its finish_reason; the others are failures.
bool HasFinishReason(GenerationEnd end);

ApiError FailureOf(const ClientOutput& output);

// What Client::Submit threw. Where it is about engines, neither their endpoints nor their states
// are a client's business: the log has them.
ApiError SubmitFailure(const Error& refusal);

// The engine's name of a grammar becomes that of the field that it came in.
void NameGrammarField(const CompletionRequest& asked, ApiError& error);
// Of a request with a grammar for an engine that takes none.
ApiError NoGrammars(const CompletionRequest& asked);

}  // namespace sluice::server
