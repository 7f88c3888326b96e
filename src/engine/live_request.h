// A request from Submit to its end, and on while a step that has its row is on its way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine_stop.h"
#include "engine/grammar/request_grammar.h"
#include "engine/thinking/thinking_mask.h"
#include "sluice/engine.hpp"

namespace sluice::engine {

struct Group;

// kHeld: its grammar is not yet compiled.
enum class RequestPhase : uint8_t { kHeld, kWaiting, kRunning, kEnded };

struct LiveRequest {
  LiveRequest(ClientId its_client, EngineRequest& request, int64_t its_room, EngineStop its_stop)
      : client(its_client),
        address(request.address),
        params(std::move(request.params)),
        choice(request.choice),
        prompt_logprob_width(request.prompt_logprobs.has_value() ? 1 + *request.prompt_logprobs
                                                                 : 0),
        group_id(request.group),
        priority(request.priority),
        max_tokens(request.max_tokens),
        prompt_size(std::ssize(request.prompt)),
        room(its_room),
        next_scored(prompt_logprob_width > 0 ? 1 : prompt_size),
        next_given(next_scored),
        tokens(std::move(request.prompt)),
        stop(std::move(its_stop)) {}
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  int64_t output_size() const { return std::ssize(tokens) - prompt_size; }
  bool IsFilling() const { return brought < to_bring; }
  // The last token of a prompt that none follows is scored, but not read.
  int64_t tokens_to_read() const { return room == 0 ? prompt_size - 1 : std::ssize(tokens); }
  DrawMask* mask() const {
    return thinking != nullptr ? static_cast<DrawMask*>(thinking.get()) : grammar.get();
  }
  bool IsPromptGiven() const { return next_given >= prompt_size; }

  ClientId client;
  RequestAddress address;
  SamplingParams params;
  uint32_t choice;
  int32_t prompt_logprob_width;  // 0: none
  uint64_t group_id;             // 0: its client's
  int32_t priority;
  int64_t max_tokens;
  int64_t prompt_size;
  int64_t room;  // output tokens that it can have
  // Places in the prompt, up to which rows score it, and have been read; without log-probabilities
  // of the prompt its end.
  int64_t next_scored;
  int64_t next_given;
  std::vector<int32_t> tokens;  // prompt, then output
  EngineStop stop;
  std::shared_ptr<RequestGrammar> grammar = {};
  std::unique_ptr<ThinkingMask> thinking = {};  // with a budget: over the grammar's mask, if any
  bool is_aborted = false;
  bool is_silent = false;  // its client is gone

  // The schedule's.
  Group* group = nullptr;  // from Schedule::Add or Hold to the end
  RequestPhase phase = RequestPhase::kWaiting;
  bool was_admitted = false;
  int32_t refusals = 0;                    // steps in which it had its turn and did not fit
  int32_t slot = -1;                       // from the first admission to the end
  int64_t cached = 0;                      // tokens that its first admission found in the cache
  int64_t pages = 0;                       // of the cache, that it has, the shared ones among them
  std::vector<int32_t> shared_pages = {};  // the first ones; see PrefixCache
  int64_t most_pages = 0;                  // that it can come to need
  // Rows bring tokens[0, to_bring), and from then on none: the model goes on from what it drew.
  int64_t to_bring = 0;
  int64_t brought = 0;
  // Tokens that the cache has, because the results of their rows have been read; and of a prefix at
  // the last admission, which count once a row after them has succeeded.
  int64_t computed = 0;
  int64_t shared = 0;
  int32_t rows_in_flight = 0;
  int32_t draws_in_flight = 0;  // of these, that give tokens

  int64_t turn = 0;  // among those of its group and priority that wait

  // Links of its group's heap or of those held; `next` also of those that were aborted or are
  // dead.
  LiveRequest* next = nullptr;
  LiveRequest* previous = nullptr;
  LiveRequest* child = nullptr;
  LiveRequest* next_aborted = nullptr;
};

}  // namespace sluice::engine
