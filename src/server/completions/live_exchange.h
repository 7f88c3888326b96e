// One request on its way: prepared, in the engine, answered as a whole or as a stream.
//
// A stream's head goes out when each choice has given an output, because the engine says nothing
// when it takes one; until then a rejection has a status of its own. It goes out earlier when a
// choice has kept silent for kHeadPatience after the first output of another one, and with the
// first comment of keep_alive. A stream that cannot go on after its head ends with an error event.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/response/event_writer.h"
#include "server/completions/choice.h"
#include "server/completions/loop_state.h"

namespace sluice::server {

inline constexpr std::chrono::milliseconds kHeadPatience{1000};

class LiveExchange final : public Answer {
 public:
  using Clock = std::chrono::steady_clock;

  LiveExchange(std::shared_ptr<LoopState> loop, Exchange& exchange, Api api);
  ~LiveExchange() override;
  LiveExchange(const LiveExchange&) = delete;
  LiveExchange& operator=(const LiveExchange&) = delete;

  // Expires with it, for work elsewhere.
  std::weak_ptr<LiveExchange*> MakeHandle();
  bool is_over() const { return phase_ == Phase::kOver; }

  // Hands all choices to the engine, or answers with what is wrong.
  void Start(Preparation preparation);
  void Take(Choice& choice, const ClientOutput& output);
  void Write();  // what there is to write, as far as the reader follows
  void OnRoom() override;
  void Tick();
  void EndWith(const ApiError& error);  // now, however slow the reader is
  void Drop();                          // as its destructor does; the exchange gets no answer

 private:
  enum class Phase : uint8_t { kPreparing, kRunning, kStreaming, kOver };

  void Submit(PreparedRequest& request);
  void RespondWithCount(const PreparedRequest& request);
  ClientRequest RequestFor(const Choice& choice) const;
  const PreparedPrompt& PromptOf(const Choice& choice) const;
  void Measure(Choice& choice, const ClientOutput& output);
  void NoteEnd(Choice& choice, const ClientOutput& output);
  void AbortAll();
  void Leave(Choice& choice, GenerationEnd end);
  void LeaveLoop();

  bool MayBegin() const;
  bool IsTooSlow() const;
  void BeginStream();
  void WriteWhole();
  void WriteStream();
  void WriteChoice(Choice& choice);
  void WriteFront(Choice& choice);
  void WriteContent(Choice& choice);
  void Flush();
  void Respond(HttpResponse response);

  ChoiceDelta FrontOf(const Choice& choice) const;
  ChoiceDelta DeltaOf(const Choice& choice) const;
  ChoiceEnd EndOf(const Choice& choice) const;
  Usage usage() const;
  std::optional<Usage> usage_so_far() const;

  std::shared_ptr<LoopState> loop_;
  Exchange& exchange_;
  std::shared_ptr<LiveExchange*> handle_;
  const Clock::time_point arrived_;
  size_t place_;  // in loop_->exchanges
  Phase phase_ = Phase::kPreparing;
  bool has_news_ = false;  // is in loop_->with_news
  bool is_left_ = false;   // by its client

  CompletionRequest asked_;
  ResponseHead head_;
  std::vector<PreparedPrompt> prompts_;
  std::vector<Choice> choices_;  // those of the first prompt, then of the next one
  PendingDelta::Reports wanted_ = {};
  bool has_offsets_ = false;
  size_t choices_live_ = 0;
  size_t choices_unheard_ = 0;
  size_t choices_unwritten_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t cached_tokens_ = 0;     // of the first choice of each prompt
  size_t prompts_uncounted_ = 0;  // of which it is not known
  std::optional<ApiError> failure_;

  std::unique_ptr<EventWriter> writer_;  // of a stream
  std::optional<Clock::time_point> first_output_;
  Clock::time_point last_write_;
};

}  // namespace sluice::server
