// The step loop and the thread of its link.
#include "sluice/engine_server.hpp"

#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "link/engine_info.h"
#include "link/link_loop.h"
#include "link/mailbox.h"
#include "link/wire/step_batch.h"
#include "support/check.h"

namespace sluice {
namespace {

using link::Command;
using link::LinkId;
using link::StepBatch;

constexpr std::chrono::milliseconds kDelivery{2000};  // of the last words

const EngineServerOptions& Checked(const EngineServerOptions& options) {
  CheckInRange("max_frame_bytes", static_cast<int64_t>(options.max_frame_bytes), 1, INT64_MAX);
  CheckInRange("client_timeout", options.client_timeout.count(), 1, INT32_MAX);
  return options;
}

// A signal is for the threads of the program: none is delivered to one that starts under this.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

std::string MessageOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

}  // namespace

class EngineServer::Impl {
 public:
  Impl(Engine& engine, EngineInfo info, const EngineServerOptions& options)
      : engine_(engine),
        link_(Checked(options), link::Completed(std::move(info), engine),
              engine.options().max_clients, mailbox_),
        clients_(static_cast<size_t>(engine.options().max_clients)),
        links_(clients_.size()) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { link_.Run(); });
  }
  ~Impl() {
    mailbox_.End();
    thread_.join();
  }

  const std::string& endpoint() const { return link_.endpoint(); }
  LinkCounters link_counters() const { return link_.counters(); }
  EngineCounters engine_counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

  void Run(const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        mailbox_.Take(commands_, stop, !engine_.HasWork());
        for (Command& command : commands_) Apply(command);
        if (engine_.HasWork()) Post(engine_.Step());
        Post({});  // what no step has taken along
        Publish();
      }
    } catch (...) {
      End(MessageOf(std::current_exception()));
      throw;
    }
    End("the engine was stopped");
  }

 private:
  void Apply(Command& command) {
    const auto place = static_cast<size_t>(command.link.place);
    switch (command.kind) {
      case Command::Kind::kCome:
        clients_[place] = engine_.AddClient();
        links_[static_cast<size_t>(clients_[place].slot)] = command.link;
        break;
      case Command::Kind::kGo:
        engine_.RemoveClient(clients_[place]);
        break;
      case Command::Kind::kAdd:
        try {
          engine_.Submit(clients_[place], std::move(command.request));
        } catch (const std::exception& error) {  // what the link should have seen, or no memory
          resets_.push_back({command.link, error.what()});
        }
        break;
      case Command::Kind::kAbort:
        for (const RequestAddress& address : command.aborted) {
          engine_.Abort(clients_[place], address);
        }
        break;
      case Command::Kind::kPing:
        pongs_.push_back(command.link);
        break;
    }
  }

  std::unique_ptr<StepBatch> Batch(std::span<const EngineOutput> outputs) {
    auto batch = mailbox_.FreeBatch();
    batch->step = engine_.counters().steps;
    batch->time_ns =
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    batch->Take(outputs,
                [this](ClientId client) { return links_[static_cast<size_t>(client.slot)]; });
    batch->grammars = engine_.counters().grammars;
    batch->pongs.clear();
    batch->pongs.swap(pongs_);
    batch->resets.clear();
    batch->resets.swap(resets_);
    return batch;
  }

  void Post(std::span<const EngineOutput> outputs) {
    if (outputs.empty() && pongs_.empty() && resets_.empty()) return;
    mailbox_.Post(Batch(outputs));
  }

  void End(const std::string& reason) {
    auto batch = Batch(engine_.Fail(reason));
    batch->is_last = true;
    batch->reason = reason;
    mailbox_.Post(std::move(batch));
    Publish();
    mailbox_.AwaitDelivery(kDelivery);
  }

  void Publish() {
    const std::lock_guard lock(mutex_);
    counters_ = engine_.counters();
  }

  Engine& engine_;
  link::Mailbox mailbox_;
  link::LinkLoop link_;
  std::thread thread_;

  // The state of the step loop:
  std::vector<ClientId> clients_;  // by place of the link's
  std::vector<LinkId> links_;      // by slot of the engine's
  std::vector<Command> commands_;
  std::vector<LinkId> pongs_;
  std::vector<StepBatch::Reset> resets_;

  mutable std::mutex mutex_;
  EngineCounters counters_;
};

EngineServer::EngineServer(Engine& engine, EngineInfo info, const EngineServerOptions& options)
    : impl_(std::make_unique<Impl>(engine, std::move(info), options)) {}
EngineServer::~EngineServer() = default;

const std::string& EngineServer::endpoint() const { return impl_->endpoint(); }
void EngineServer::Run(std::stop_token stop) { impl_->Run(stop); }
LinkCounters EngineServer::link_counters() const { return impl_->link_counters(); }
EngineCounters EngineServer::engine_counters() const { return impl_->engine_counters(); }

}  // namespace sluice
