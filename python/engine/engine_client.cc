#include "python/engine/engine_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "python/engine/engine_request.h"
#include "python/errors.h"

namespace sluice::python {
namespace {

// How late Ctrl-C may be.
constexpr std::chrono::milliseconds kSlice{50};

}  // namespace

PythonEngineClient::Hold::Hold(PythonEngineClient& client) : client_(client) {
  if (client.is_held_) ThrowValue("client", "in another call", "one call at a time");
  client.is_held_ = true;
}

PythonEngineClient::PythonEngineClient(EngineParts parts, nb::object kept)
    : parts_(std::move(parts)), kept_(std::move(kept)) {}

PythonEngineClient::~PythonEngineClient() { Discard(); }

void PythonEngineClient::Discard() {
  auto parts = std::make_unique<EngineParts>(std::move(parts_));
  const nb::gil_scoped_release release;
  parts.reset();
}

EngineParts& PythonEngineClient::Open() {
  if (parts_.client == nullptr) ThrowValue("client", "closed", "one that is open");
  return parts_;
}

void PythonEngineClient::Close() {
  const Hold hold(*this);
  live_.clear();
  polled_.clear();
  owned_.clear();
  abandoned_.clear();
  Discard();
}

uint64_t PythonEngineClient::Add(ClientRequest request, Owner owner) {
  Client& client = *parts_.client;
  Live live{{.mode = request.mode,
             .has_logprobs = request.params.logprobs.has_value(),
             .prompt_logprobs = request.prompt_logprobs},
            owner};
  {
    const nb::gil_scoped_release release;
    const RequestId id = client.Submit(std::move(request));
    live.head.id = id.value;
    live.head.seed = client.Seed(id);
  }
  live_.emplace(live.head.id, live);
  return live.head.id;
}

uint64_t PythonEngineClient::Add(nb::handle prompt, nb::handle params, nb::kwargs kwargs,
                                 Owner owner) {
  const Hold hold(*this);
  const Client& client = *Open().client;
  const Arguments arguments(kEngineRequestKeywords | kModeKeywords, kwargs);
  ClientRequest request = EngineRequestFrom(params, arguments, parts_.defaults);
  request.prompt = PromptFrom(client.tokenizer(), prompt);
  SetOpenReasoning(client.tokenizer(), request);
  return Add(std::move(request), owner);
}

uint64_t PythonEngineClient::Submit(nb::handle prompt, nb::handle params, nb::kwargs kwargs) {
  return Add(prompt, params, kwargs, Owner::kPoll);
}

uint64_t PythonEngineClient::SubmitOwned(nb::handle prompt, nb::handle params, nb::kwargs kwargs) {
  return Add(prompt, params, kwargs, Owner::kCaller);
}

void PythonEngineClient::Abort(uint64_t id) {
  const Hold hold(*this);
  Client& client = *Open().client;
  const nb::gil_scoped_release release;
  client.Abort({id});
}

void PythonEngineClient::Take(const ClientOutput& output) {
  const auto live = live_.find(output.request.value);
  if (live == live_.end()) return;
  const Live request = live->second;
  if (output.end != GenerationEnd::kNone) live_.erase(live);
  auto& outputs = request.owner == Owner::kPoll ? polled_ : owned_;
  RequestOutput taken(request.head, output);
  const auto [waiting, is_new] = outputs.try_emplace(request.head.id, taken);
  if (!is_new) waiting->second.Join(taken);
}

void PythonEngineClient::AbortAbandoned() {
  for (const uint64_t id : std::exchange(abandoned_, {})) {
    owned_.erase(id);
    if (live_.erase(id) > 0) parts_.client->Abort({id});  // what comes of it now is dropped
  }
}

void PythonEngineClient::Receive(Time until) {
  AbortAbandoned();
  Client& client = *parts_.client;
  const Time start = std::chrono::steady_clock::now();
  const Time end = std::clamp(until, start, start + kSlice);
  std::span<const ClientOutput> outputs;
  {
    const nb::gil_scoped_release release;
    outputs = client.Poll(end - start);
    // An engine of this process that has nothing to do does not wait.
    if (outputs.empty() && client.live_requests() == 0) std::this_thread::sleep_until(end);
  }
  for (const ClientOutput& output : outputs) Take(output);
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::list PythonEngineClient::Poll(nb::handle timeout) {
  const Hold hold(*this);
  Open();
  const Time until = timeout.is_none()
                         ? Time::max()
                         : std::chrono::steady_clock::now() + DurationFrom("timeout", timeout);
  const auto is_awaited = [&] {
    if (!timeout.is_none()) return std::chrono::steady_clock::now() < until;
    return std::any_of(live_.begin(), live_.end(),
                       [](const auto& live) { return live.second.owner == Owner::kPoll; });
  };
  if (polled_.empty()) Receive(timeout.is_none() ? Time::min() : until);
  while (polled_.empty() && is_awaited()) Receive(until);
  nb::list outputs;
  for (auto& [id, output] : std::exchange(polled_, {})) outputs.append(nb::cast(std::move(output)));
  return outputs;
}

std::optional<RequestOutput> PythonEngineClient::Next(uint64_t id) {
  const Hold hold(*this);
  Open();
  while (!owned_.contains(id) && live_.contains(id)) Receive(Time::max());
  const auto found = owned_.find(id);
  if (found == owned_.end()) return std::nullopt;
  RequestOutput output = std::move(found->second);
  owned_.erase(found);
  output.ThrowIfFailed();
  return output;
}

void PythonEngineClient::Abandon(uint64_t id) noexcept {
  if (parts_.client == nullptr) return;
  try {
    abandoned_.push_back(id);
    if (!is_held_) AbortAbandoned();
  } catch (...) {  // the client cannot send the abort: then nothing comes of the request either
  }
}

nb::object PythonEngineClient::Generate(nb::handle prompt, nb::handle params, nb::kwargs kwargs) {
  const Hold hold(*this);
  const Tokenizer tokenizer = Open().client->tokenizer();
  const Arguments arguments(kEngineRequestKeywords, kwargs);
  ClientRequest request = EngineRequestFrom(params, arguments, parts_.defaults);
  request.mode = OutputMode::kFinal;
  std::vector<uint64_t> ids;
  const auto is_live = [this](uint64_t id) { return live_.contains(id); };
  // Waits where the engine has no slot, until another request of this call has ended, or the engine
  // has said its last word of one that has.
  const auto add = [&](nb::handle one) {
    request.prompt = PromptFrom(tokenizer, one);
    SetOpenReasoning(tokenizer, request);
    for (;;) {
      try {
        ids.push_back(Add(request, Owner::kCaller));
        return;
      } catch (const Error& error) {
        const bool may_wait = std::any_of(ids.begin(), ids.end(), is_live) || live_.empty();
        if (error.code() != ErrorCode::kExhausted || !may_wait) throw;
      }
      Receive(Time::max());
    }
  };
  nb::list results;
  const bool are_many = ArePrompts(prompt);
  try {
    if (are_many) {
      for (const nb::handle one : prompt) add(one);
    } else {
      add(prompt);
    }
    for (const uint64_t id : ids) {
      while (is_live(id)) Receive(Time::max());
      owned_.at(id).ThrowIfFailed();
    }
    for (const uint64_t id : ids) {
      results.append(nb::cast(std::move(owned_.extract(id).mapped())));
    }
  } catch (...) {
    abandoned_.insert(abandoned_.end(), ids.begin(), ids.end());
    AbortAbandoned();
    throw;
  }
  return are_many ? nb::object(std::move(results)) : nb::object(results[0]);
}

}  // namespace sluice::python
