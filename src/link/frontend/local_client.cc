// The client of an engine in this process: Poll steps it.
#include <algorithm>
#include <utility>

#include "link/engine_info.h"
#include "link/frontend/request_table.h"
#include "sluice/client.hpp"
#include "support/check.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

class LocalClient final : public Client {
 public:
  LocalClient(Engine& engine, EngineInfo info, Tokenizer tokenizer,
              const LocalClientOptions& options)
      : engine_(engine),
        observer_(options.observer),
        table_(tokenizer, options.stop_at),
        client_(engine.AddClient()) {
    info.tokenizer_hash = TokenizerHash(tokenizer);
    table_.SetInfo(table_.AddEngine(), link::Completed(std::move(info), engine));
  }
  ~LocalClient() override { engine_.RemoveClient(client_); }
  LocalClient(const LocalClient&) = delete;
  LocalClient& operator=(const LocalClient&) = delete;

  const EngineInfo& info() const override { return table_.info(0); }
  const Tokenizer& tokenizer() const override { return table_.tokenizer(); }
  RequestId Submit(ClientRequest request) override;
  void Abort(RequestId request) override;
  uint64_t Seed(RequestId request) const override { return table_.Seed(request); }
  int64_t live_requests() const override { return table_.live_requests(); }
  std::span<const ClientOutput> Poll(std::chrono::nanoseconds timeout) override;
  int event_fd() const override { return -1; }
  EngineHealth health() const override {
    return failure_.empty() ? EngineHealth::kReady : EngineHealth::kDead;
  }
  const ClientCounters& counters() const override { return table_.counters; }

 private:
  void Step();
  void Take(std::span<const EngineOutput> outputs);
  void SendAborts();

  Engine& engine_;
  RequestObserver observer_;
  link::RequestTable table_;
  ClientId client_;
  std::string failure_;  // of the runner, which is no more
};

RequestId LocalClient::Submit(ClientRequest request) {
  if (!failure_.empty()) {
    throw Error(ErrorCode::kUnavailable, "engine", failure_, "one that runs");
  }
  table_.Release();
  const RequestId id = table_.Add(0, std::move(request));
  try {
    if (observer_) observer_(id, table_.request(id));
    engine_.Submit(client_, table_.TakeRequest(id));
  } catch (...) {
    table_.Withdraw(id);
    throw;
  }
  return id;
}

void LocalClient::Abort(RequestId request) {
  if (table_.Abort(request)) SendAborts();
}

void LocalClient::SendAborts() {
  for (const RequestAddress& address : table_.TakeAborts(0)) engine_.Abort(client_, address);
}

std::span<const ClientOutput> LocalClient::Poll(std::chrono::nanoseconds timeout) {
  const Clock::time_point begin = Clock::now();
  table_.Release();
  do {
    if (!failure_.empty() || !engine_.HasWork()) break;  // nothing more can come
    Step();
    SendAborts();
  } while (!table_.HasOutputs() && Clock::now() - begin < timeout);
  return table_.Outputs();
}

void LocalClient::Step() {
  try {
    Take(engine_.Step());
  } catch (const std::exception& error) {
    failure_ = std::string("the engine failed: ").append(error.what());
    Take(engine_.Fail(failure_));
    table_.Lose(0, failure_);
  }
}

void LocalClient::Take(std::span<const EngineOutput> outputs) {
  for (const EngineOutput& output : outputs) {
    if (output.client == client_) table_.Take(0, output.row);
  }
}

}  // namespace

std::unique_ptr<Client> MakeLocalClient(Engine& engine, EngineInfo info, Tokenizer tokenizer,
                                        const LocalClientOptions& options) {
  return std::make_unique<LocalClient>(engine, std::move(info), std::move(tokenizer), options);
}

}  // namespace sluice
