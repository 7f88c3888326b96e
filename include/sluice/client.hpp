// A frontend's side of engines: requests in, text out. The same calls for an engine in this process
// (LocalClient) and for engines in others (RemoteClient).
//
// Each request that Submit took ends in exactly one output, whatever becomes of the engine. Its
// content depends on the request alone: not on the side that looks for stops, on the engine it went
// to, or on when Poll was called.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine.hpp"
#include "sluice/engine_messages.hpp"
#include "sluice/text_stream.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

enum class OutputMode : uint8_t {
  kDelta,       // what is new since the last output
  kCumulative,  // all text and ids so far
  kFinal,       // one output, at the end, with everything
};
std::string_view Name(OutputMode mode);  // "delta", "cumulative", "final"
OutputMode OutputModeByName(std::string_view name);

struct ClientRequest {
  SamplingParams params = {};  // without a seed: a random one
  std::vector<int32_t> prompt = {};
  uint32_t choice = 0;
  int64_t max_tokens = 256;                     // 0: the prompt alone
  std::optional<int32_t> prompt_logprobs = {};  // as EngineRequest has it
  TextOptions text = {};
  // What the output has to match. Then the model's end tokens end it where the grammar allows them,
  // whatever ignores_end and min_tokens are.
  std::optional<OutputGrammar> grammar = {};
  std::optional<ThinkingBudget> thinking = {};  // as EngineRequest has it
  uint64_t group = 0;                           // these three as EngineRequest has them
  int32_t priority = 0;
  EngineExtras extras = {};
  bool ignores_end = false;  // the model's end tokens do not end it
  OutputMode mode = OutputMode::kDelta;
  // An output for every so many tokens; the first and the last come at once.
  int64_t stream_interval = 1;
};

// Names a request of one client, from Submit on and for ever.
struct RequestId {
  uint64_t value = 0;

  friend bool operator==(const RequestId&, const RequestId&) = default;
};

struct ClientOutput {
  RequestId request = {};
  std::string_view text = {};
  // Token ids, and their log-probabilities: the tokens that have all of their text out with this
  // output. With kCumulative and kFinal all of them.
  std::span<const int32_t> ids = {};
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};
  int32_t logprob_width = 0;
  std::span<const int32_t> logprob_ids = {};
  std::span<const float> logprob_values = {};
  // All of the prompt's, in exactly one output: the first one, which no text precedes. Empty where
  // none were requested, and for a request that ended before they were computed.
  PromptLogprobs prompt = {};

  GenerationEnd end = GenerationEnd::kNone;
  std::string_view stop = {};  // with kStopString, the stop
  int32_t stop_token = -1;     // with kStopToken
  RowStatus status = RowStatus::kOk;
  std::string_view message = {};  // with kStatus, kRejected and kEngineLost
  // With kRejected, and with kStatus where the runner failed: as OutputRow has them.
  ErrorCode code = ErrorCode::kInvalidValue;
  std::string_view parameter = {};
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // so far, up to and with the one that ended it
  // With an end that the engine found: of the prompt's, as OutputRow has them; else -1.
  int64_t cached_tokens = -1;
};

enum class EngineHealth : uint8_t {
  kConnecting,  // not yet ready, or not again
  kReady,
  kStalled,  // requests wait, and nothing has come for stall_timeout
  kDead,     // this client gave it up
};
std::string_view Name(EngineHealth health);

// The state of one engine as its client has it.
struct EngineState {
  std::string endpoint = {};  // empty: of this process
  EngineHealth health = EngineHealth::kConnecting;
  std::string reason = {};  // why it is not ready, if that is known, or what else there is to say
  // Of an engine of Sluice, as far as they are known: some seconds old. Else zeros.
  GrammarCounters grammars = {};
};
using EngineObserver = std::function<void(const EngineState&)>;

// How many values there were of each size: counts[i] has those of at most 2^i that are in no count
// before it, the last one also what is larger.
template <int kCounts>
struct PowersOfTwo {
  int64_t counts[kCounts] = {};
  int64_t sum = 0;

  void Add(int64_t value) {
    int i = 0;
    while (i + 1 < kCounts && value > int64_t{1} << i) ++i;
    ++counts[i];
    sum += value;
  }
  friend bool operator==(const PowersOfTwo&, const PowersOfTwo&) = default;
};

// Counts of input that must not have come, and was dropped. Nothing of it reached a text.
struct ClientCounters {
  int64_t requests = 0;
  int64_t waiting = 0;  // now: of which nothing has come yet
  int64_t outputs = 0;
  int64_t tokens = 0;
  int64_t aborts = 0;         // sent
  int64_t stale_rows = 0;     // of requests that had ended here: the handshake's normal course
  int64_t stale_tokens = 0;   // in these, and after a stop in the row that had it
  int64_t stop_tokens = 0;    // of these tokens, after a stop that was found here
  int64_t held_bytes = 0;     // now: of text that may be the beginning of a stop
  int64_t invalid_bytes = 0;  // of tokens, that were no UTF-8
  int64_t unknown_rows = 0;   // of slots that do not exist, or generations that never were
  int64_t repeated_ends = 0;  // an end after the end
  int64_t gaps = 0;           // rows that do not follow those before them: the request is lost
  int64_t foreign_ids = 0;    // ids outside the vocabulary: the request is lost
  // The engine reported another end than the text has, or other log-probabilities than were
  // requested: the request is lost.
  int64_t disagreements = 0;
  int64_t repeated_frames = 0;   // the remote client's: dropped
  int64_t malformed_frames = 0;  // each of these resets the link
  int64_t foreign_frames = 0;    // of another epoch: dropped
  int64_t resets = 0;
  // The remote client's: steps that an engine made from an abort to the end of its request, and
  // microseconds from a PING to its PONG, which is the step loop's.
  PowersOfTwo<10> abort_steps = {};
  PowersOfTwo<26> round_trips = {};

  friend bool operator==(const ClientCounters&, const ClientCounters&) = default;
};

// One thread at a time may call a Client.
class Client {
 public:
  virtual ~Client() = default;

  // Describes the first engine.
  virtual const EngineInfo& info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;

  // Throws Error when a parameter is out of range or the prompt does not fit, with kExhausted when
  // there is no free slot, and with kUnavailable when no engine is ready.
  virtual RequestId Submit(ClientRequest request) = 0;
  // Its end comes with the next Poll. One that has ended, or never was, is ignored.
  virtual void Abort(RequestId request) = 0;
  // The seed in use, of a request that has not ended.
  virtual uint64_t Seed(RequestId request) const = 0;
  virtual int64_t live_requests() const = 0;

  // Returns the outputs that exist, one a request; if none exists, waits for one, but not longer
  // than `timeout`. Valid until the next Poll or Submit. After a std::bad_alloc nothing is lost:
  // the next Poll goes on. A request without memory for its own output ends with kEngineLost.
  virtual std::span<const ClientOutput> Poll(std::chrono::nanoseconds timeout) = 0;
  // For event loops: readable when Poll has something to do, whatever else was called meanwhile.
  // -1: Poll always has, while requests live.
  virtual int event_fd() const = 0;

  virtual EngineHealth health() const = 0;  // of the best of them
  // Each of them, in the order in which they were named.
  virtual std::vector<EngineState> engines() const { return {{.health = health()}}; }
  virtual const ClientCounters& counters() const = 0;
};

// Called with each request as the engine gets it: complete, so that it gives the same output again.
using RequestObserver = std::function<void(RequestId, const EngineRequest&)>;

struct LocalClientOptions {
  StopAt stop_at =
      StopAt::kEngine;  // where the engine has a tokenizer; else the frontend searches for them
  RequestObserver observer = {};
};

// Poll steps the engine on the caller's thread; no other thread may call it meanwhile. `info` is
// completed by what the engine reports itself; the caller says whether it has a tokenizer. A runner
// that throws is the end of all requests and of this client.
std::unique_ptr<Client> MakeLocalClient(Engine& engine, EngineInfo info, Tokenizer tokenizer,
                                        const LocalClientOptions& options = {});

struct LoraAdapter {
  std::string name;
  std::string path;
};

class VllmPorts;
// For so many clients.
std::shared_ptr<VllmPorts> MakeVllmPorts(int32_t clients);

struct RemoteClientOptions {
  StopAt stop_at = StopAt::kEngine;  // as above
  RequestObserver observer = {};
  int32_t credits = 64;  // output messages that an engine may send ahead
  std::chrono::milliseconds connect_timeout{10'000};
  // As above for an engine of vLLM, which connects once it has read and compiled its model.
  std::chrono::milliseconds start_timeout{20 * 60'000};
  // An engine that has work and says nothing for so long is stalled: its requests end.
  std::chrono::milliseconds stall_timeout{30'000};
  std::stop_token stop = {};  // ConnectClient waits no longer, and throws as when time is over
  // The model's, for engines of vLLM, which do not report them. 0: as many as the tokenizer has.
  std::vector<int32_t> end_tokens = {};
  int64_t vocab = 0;
  // When the connection of an engine of vLLM ends, its last bytes are in this machine's buffers.
  // They are read for this long; the errors of its requests follow.
  std::chrono::milliseconds last_outputs{200};
  // Called in ConnectClient and Poll, when there is something new to say.
  EngineObserver engine_observer = {};
  // Of several clients before the same engines of vLLM, as threads of one process are: they share
  // the ports, and each has a number below theirs. The first one is connected before the others,
  // and polled as long as they are. Null: it is the only one.
  std::shared_ptr<VllmPorts> vllm_ports = {};
  int32_t vllm_client = 0;
  std::vector<LoraAdapter> adapters = {};  // that engines of vLLM load from their own disk
};

// "vllm+tcp://ADDRESS:PORT": where this client waits for an engine of vLLM, which is started with
// the address and connects by itself; with "?ranks=N" after it for N of them, which are started as
// one, and "?max_logprobs=N" where they take other numbers than up to 20. Only one client can wait
// there, or several with VllmPorts. docs/plugins/vllm-engine.md has what such an engine does not
// take, and refuses with kInvalidValue in Submit.
bool IsVllmEndpoint(std::string_view endpoint);

// Waits until every engine has been ready; throws Error with kUnavailable naming the one that was
// not in time, and what it said. A request goes to the engine with the fewest. Starts the threads
// of one ZeroMQ context; an engine that comes back is taken up again.
std::unique_ptr<Client> ConnectClient(std::span<const std::string> endpoints, Tokenizer tokenizer,
                                      const RemoteClientOptions& options = {});

}  // namespace sluice
