// The state of an Engine: its clients, what is scheduled, and the steps on their way.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/client_table.h"
#include "engine/clock.h"
#include "engine/live_request.h"
#include "engine/schedule.h"
#include "sluice/engine.hpp"

namespace sluice {

namespace engine {
inline constexpr const char* kNoMemory = "no memory";  // a message that takes none itself
}

class Engine::Impl {
 public:
  Impl(StepRunner& runner, std::optional<Tokenizer> tokenizer, const EngineOptions& options);
  ~Impl();

  const EngineOptions& options() const { return options_; }
  const RunnerInfo& runner_info() const { return info_; }
  const EngineCounters& counters() const { return counters_; }

  ClientId AddClient() { return clients_.Add(); }
  void RemoveClient(ClientId client);
  void Submit(ClientId client, EngineRequest request);
  void Abort(ClientId client, RequestAddress address);
  bool HasWork() const;
  std::span<const EngineOutput> Step();
  std::span<const EngineOutput> Fail(std::string_view message);

 private:
  using LiveRequest = engine::LiveRequest;
  using PlannedStep = engine::PlannedStep;
  // To a request that no step computes: one that cannot be taken, or is for nothing.
  struct Answer {
    ClientId client;
    RequestAddress address;
    GenerationEnd end = GenerationEnd::kRejected;
    std::string message;
    ErrorCode code = ErrorCode::kInvalidValue;
    std::string parameter;
  };

  void ReserveOutput();
  LiveRequest* Accept(ClientId client, EngineRequest& request);
  void MarkAborted(LiveRequest& request);
  std::shared_ptr<engine::RequestGrammar> AddGrammar(ClientId client, EngineRequest& request);
  std::unique_ptr<engine::ThinkingMask> MakeThinking(const EngineRequest& request,
                                                     engine::RequestGrammar* grammar);
  void TakeCompiled();
  void AwaitCompiled(engine::Clock& clock);

  void BeginOutputs();
  void StepOnce(engine::Clock& clock);
  void GiveAnswers();
  void GiveAborts();
  template <typename Call>
  void CallRunner(Call call);
  void Launch(engine::Clock& clock);
  void Read(engine::Clock& clock);
  void CheckResults(const PlannedStep& step, const StepResults& results) const;
  void ReserveLogprobs(const PlannedStep& step, const StepResults& results);
  void TakeRow(LiveRequest& request, const StepRow& planned, const StepRowResult& result);
  void TakeTokens(LiveRequest& request, size_t drawn, const StepRowResult& result, OutputRow& row);
  GenerationEnd EndWithText(LiveRequest& request, GenerationEnd end);
  void AddLogprobs(const LiveRequest& request, const StepRowResult& result, OutputRow& row);
  void Give(LiveRequest& request, const OutputRow& row);
  void Bury(LiveRequest& request);
  void FreeDead();
  void EndAll();
  void Count();

  StepRunner& runner_;
  RunnerInfo info_;
  std::optional<Tokenizer> tokenizer_;
  EngineOptions options_;
  StopListCache stop_lists_;
  engine::SpelledEnds spelled_ends_;
  engine::ClientTable clients_;
  engine::Schedule schedule_;

  std::list<Answer> answers_;        // not yet read by their clients
  std::list<Answer> given_answers_;  // of the last outputs, which point to them
  std::list<Answer> spare_answers_;  // so that to answer takes no memory
  LiveRequest* first_aborted_ = nullptr;
  LiveRequest* first_dead_ = nullptr;  // outputs of the last step may point to them

  // The steps on their way, from oldest_ on, and after them the one that is planned.
  std::array<PlannedStep, 2> steps_;
  size_t oldest_ = 0;
  int32_t in_flight_ = 0;

  std::vector<EngineOutput> outputs_;
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
  std::string text_;  // of the tokens that are looked at

  bool is_lost_ = false;
  bool runner_threw_ = false;
  bool has_kept_outputs_ = false;  // of the step that threw
  std::string lost_message_ = "the runner threw";
  int64_t compiled_ = 0;  // as far as TakeCompiled has seen
  engine::MaskCounters masks_;
  EngineCounters counters_;
};

}  // namespace sluice
