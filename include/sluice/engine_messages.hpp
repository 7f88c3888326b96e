// The messages of frontends and an engine: the same structs in one process and, encoded, between
// two.
//
// A request is addressed by a place in its frontend's table and a generation of that place. The
// frontend takes a place again, with the next generation, only after the one OutputRow that ends
// the request. So both sides recognise and drop what comes late for an old generation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/detokenizer.hpp"
#include "sluice/error.hpp"
#include "sluice/generation_end.hpp"
#include "sluice/grammar.hpp"
#include "sluice/params.hpp"
#include "sluice/prompt_logprobs.hpp"
#include "sluice/reasoning.hpp"
#include "sluice/status.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

struct RequestAddress {
  int32_t slot = -1;
  uint32_t generation = 0;

  friend bool operator==(const RequestAddress&, const RequestAddress&) = default;
};

// The side that searches for stop strings. The text does not depend on it.
enum class StopAt : uint8_t {
  kEngine = 0,    // the engine: no token is computed after the one that ends a stop
  kFrontend = 1,  // the frontend, which then aborts the request: for engines without text
};
std::string_view Name(StopAt stop_at);  // "engine", "frontend"
StopAt StopAtByName(std::string_view name);

// How an output's tokens become text, and where that ends.
struct TextOptions {
  std::vector<std::string> stops = {};
  bool include_stop = false;
  DetokenizerOptions detokenizer = {};
  Incomplete incomplete = Incomplete::kReplace;

  friend bool operator==(const TextOptions&, const TextOptions&) = default;
};

// What the output's tokens have to match; see GrammarCompiler::Compile.
struct OutputGrammar {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text = {};
  GrammarOptions options = {};

  friend bool operator==(const OutputGrammar&, const OutputGrammar&) = default;
};

// What engines of vLLM alone take.
struct EngineExtras {
  std::string cache_salt = {};  // a cache of prefixes serves requests with the same one alone
  std::string adapter = {};     // of LoRA, by its name; empty: the model itself

  friend bool operator==(const EngineExtras&, const EngineExtras&) = default;
};

// Complete: the parameters have a seed, and the model's end tokens are among the stop tokens, if
// they shall end the output. So the same request gives the same output again. An engine takes no
// more entries of logit_bias and allowed_token_ids than the vocabulary has ids; 1024 stop tokens,
// DRY breakers and bad words each; and 16384 tokens of bad words.
struct EngineRequest {
  RequestAddress address = {};
  SamplingParams params = {};
  std::vector<int32_t> prompt = {};
  uint32_t choice = 0;
  int64_t max_tokens = 256;  // 0: the prompt is read for its log-probabilities, or not at all
  // For every token of the prompt but the first: its log-probability, its rank, and this many of
  // the most likely tokens in its place. At most the engine's max_logprobs.
  std::optional<int32_t> prompt_logprobs = {};
  StopAt stop_at = StopAt::kEngine;
  TextOptions text = {};
  // With a thinking budget it is the answer's, and what comes before that is free.
  std::optional<OutputGrammar> grammar = {};
  // Of an engine with text. Stop strings count in the answer alone then.
  std::optional<ThinkingBudget> thinking = {};
  // Groups are served in turn, a token for a token, so that one with many requests does not hold up
  // another: users, say. 0: the group of all requests of its client without one. Within a group the
  // lower priority comes first.
  uint64_t group = 0;
  int32_t priority = 0;
  EngineExtras extras = {};

  friend bool operator==(const EngineRequest&, const EngineRequest&) = default;
};

// The tokens that one step gave one request, or that it ended.
struct OutputRow {
  RequestAddress address = {};
  int64_t first_token = 0;  // the number of the first of these among the request's output tokens
  std::span<const int32_t> ids = {};

  // Empty, or of each of the ids: log-probability and rank, and lists as LogprobLists has them.
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};
  int32_t logprob_width = 0;
  std::span<const int32_t> logprob_ids = {};
  std::span<const float> logprob_values = {};
  // The next ones of the prompt, all of them before the first of the ids.
  PromptLogprobs prompt = {};

  GenerationEnd end = GenerationEnd::kNone;  // another one is the request's last row
  RowStatus status = RowStatus::kOk;         // with kStatus; kOk: the runner failed
  std::string_view message = {};             // with kRejected, kStatus and kEngineLost
  // With kRejected, and with kStatus where the runner failed. kInvalidValue and kInvalidType: of
  // the request, which would be refused again; the others: of the engine, now.
  ErrorCode code = ErrorCode::kInvalidValue;
  std::string_view parameter = {};  // that was refused; empty: none of them
  // With an end: tokens of the prompt that were not read, because a cache had them; -1: not known.
  int64_t cached_tokens = -1;
};
// "invalid_value", "invalid_type", "unavailable", "exhausted".
std::string_view Name(ErrorCode code);

struct EngineInfo {
  std::string model = {};    // its name
  std::string version = {};  // of Sluice
  int64_t vocab = 0;
  int64_t context = 0;
  int32_t max_requests = 0;         // that run at once
  int32_t max_client_requests = 0;  // slots of a frontend: running and waiting
  int32_t max_logprobs = 0;
  int32_t steps_in_flight = 0;
  uint64_t tokenizer_hash = 0;  // see TokenizerHash
  std::vector<int32_t> end_tokens = {};
  bool has_text = false;      // kEngine may look for stops
  bool has_grammars = false;  // requests may have a grammar
  bool has_extras = false;    // and EngineExtras
  Limits limits = {};
  // The largest frame from a frontend: a request that exceeds it is refused there.
  int64_t max_frame_bytes = int64_t{8} << 20;

  friend bool operator==(const EngineInfo&, const EngineInfo&) = default;
};

// A hash of all ids, their spelling, and their decoding: two sides with equal hashes read ids
// alike.
uint64_t TokenizerHash(const Tokenizer& tokenizer);

// What the grammars of an engine's requests cost, since it began.
struct GrammarCounters {
  int64_t compiling = 0;   // now: requests that wait for their grammar
  int64_t compiled = 0;    // requests that waited for it
  int64_t cached = 0;      // requests with a grammar that was in the cache
  int64_t masks = 0;       // that a draw was made with
  int64_t mask_waits = 0;  // of these, that the draw came for before they were filled
  int64_t mask_wait_ns = 0;

  friend bool operator==(const GrammarCounters&, const GrammarCounters&) = default;
};

// Since the engine began. Each token that was drawn is either given or discarded.
struct EngineCounters {
  int64_t steps = 0;
  int64_t running = 0;  // now
  int64_t waiting = 0;  // now
  int64_t requests = 0;
  int64_t ended = 0;          // all of these, for whatever reason
  int64_t prompt_tokens = 0;  // that went through the model; again, where a request was preempted
  int64_t cached_tokens = 0;  // that did not, because the cache still had them
  int64_t tokens = 0;         // that were drawn
  int64_t tokens_given = 0;
  // Drawn after the end of a request that was not aborted: after a stop, beyond max_tokens or the
  // context in a burst, in the step in flight; or in a row that there was no memory for.
  int64_t tokens_discarded_stop = 0;
  int64_t tokens_discarded_abort = 0;  // drawn after an abort, in the step in flight
  int64_t draft_tokens = 0;            // that the runner tried ahead, and
  int64_t accepted_draft_tokens = 0;   // those that were right
  int64_t preemptions = 0;
  int64_t rejected = 0;
  int64_t aborted = 0;
  int64_t stale_aborts = 0;  // for requests that had ended, or never were
  int64_t free_pages = 0;    // now
  int64_t model_ns = 0;      // waiting for the runner
  int64_t own_ns = 0;        // everything else in Step
  GrammarCounters grammars = {};

  friend bool operator==(const EngineCounters&, const EngineCounters&) = default;
};

}  // namespace sluice
