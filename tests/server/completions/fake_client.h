// A client whose outputs a test makes up, in the order that it likes.
#pragma once

#include <sys/eventfd.h>

#include <deque>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "sluice/client.hpp"

namespace sluice::test {

class FakeClient final : public Client {
 public:
  FakeClient(EngineInfo info, Tokenizer tokenizer)
      : info_(std::move(info)), tokenizer_(std::move(tokenizer)) {}

  std::vector<ClientRequest> submitted;  // the request with id i + 1 is number i
  std::vector<RequestId> aborted;
  int64_t room = INT64_MAX;  // requests that it takes
  bool has_memory = true;
  bool polls_without_memory = false;
  int fd = -1;  // an eventfd, where somebody waits for outputs
  EngineHealth engine_health = EngineHealth::kReady;

  // What the next Poll gives. `text` is of so many tokens.
  void Give(size_t number, std::string_view text, GenerationEnd end = GenerationEnd::kNone,
            int64_t tokens = 1) {
    Output& output = Add(number);
    output.text = text;
    counts_[number] += tokens;
    output.it.output_tokens = counts_[number];
    output.it.end = end;
  }
  // Of what was given last.
  void NameStop(std::string_view stop, int32_t token) {
    next_.back().stop = stop;
    next_.back().it.stop_token = token;
  }
  void NameParameter(std::string_view parameter) { next_.back().parameter = parameter; }
  // An end that is a failure.
  void Fail(size_t number, GenerationEnd end, ErrorCode code, std::string_view message,
            RowStatus status = RowStatus::kOk, std::string_view text = "") {
    Output& output = Add(number);
    output.text = text;
    output.message = message;
    output.it.output_tokens = counts_[number];
    output.it.end = end;
    output.it.code = code;
    output.it.status = status;
  }

  const EngineInfo& info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  RequestId Submit(ClientRequest request) override {
    if (engine_health != EngineHealth::kReady) {
      throw Error(ErrorCode::kUnavailable, "engine", "dead", "one that is ready");
    }
    if (std::ssize(submitted) >= room) {
      throw Error(ErrorCode::kExhausted, "requests", "all", "fewer");
    }
    if (!has_memory) throw std::bad_alloc();
    given_.clear();
    submitted.push_back(std::move(request));
    return {submitted.size()};
  }
  void Abort(RequestId request) override { aborted.push_back(request); }
  uint64_t Seed(RequestId request) const override {
    return *submitted[request.value - 1].params.seed;
  }
  int64_t live_requests() const override { return 0; }
  std::span<const ClientOutput> Poll(std::chrono::nanoseconds) override {
    if (uint64_t count = 0; fd >= 0) (void)::eventfd_read(fd, &count);
    if (polls_without_memory) throw std::bad_alloc();
    given_.clear();
    given_.swap(next_);
    told_.clear();
    for (Output& output : given_) {
      output.it.text = output.text;
      output.it.message = output.message;
      output.it.stop = output.stop;
      output.it.parameter = output.parameter;
      told_.push_back(output.it);
    }
    return told_;
  }
  int event_fd() const override { return fd; }
  EngineHealth health() const override { return engine_health; }
  const ClientCounters& counters() const override { return counters_; }

 private:
  struct Output {
    ClientOutput it;
    std::string text;
    std::string message;
    std::string stop;
    std::string parameter;
  };

  Output& Add(size_t number) {
    next_.emplace_back();
    next_.back().it.request = {number + 1};
    return next_.back();
  }

  EngineInfo info_;
  Tokenizer tokenizer_;
  std::map<size_t, int64_t> counts_;
  std::vector<Output> next_;
  std::vector<Output> given_;
  std::vector<ClientOutput> told_;
  ClientCounters counters_;
};

}  // namespace sluice::test
