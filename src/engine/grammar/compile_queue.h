// Grammars that wait to be compiled. Requests for the same one wait together.
//
// The clients take turns. A client has at most one worker less than there are, and so have all long
// texts together: what takes long never has all workers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/request_grammar.h"
#include "sluice/engine_messages.hpp"

namespace sluice::engine {

// A longer text may take long to compile.
constexpr size_t kLongText = size_t{8} << 10;

// Engines number their clients each for itself.
struct CompileClient {
  const MaskCounters* engine = nullptr;  // an engine has one
  int32_t slot = -1;
  friend bool operator==(const CompileClient&, const CompileClient&) = default;
};

struct CompileJob {
  CompileClient client;
  OutputGrammar grammar;
  // Those that have not gone meanwhile.
  std::vector<std::weak_ptr<RequestGrammar>> requests;
  size_t hash = 0;  // of the text, so that different long ones are not compared

  bool IsLong() const { return grammar.text.size() > kLongText; }
  bool IsWanted() const {
    return std::ranges::any_of(requests, [](const auto& request) { return !request.expired(); });
  }
};

// One thread at a time.
class CompileQueue {
 public:
  explicit CompileQueue(int32_t workers) : most_running_(std::max(workers - 1, 1)) {}

  // False: the client has too many.
  bool Add(CompileClient client, const OutputGrammar& grammar,
           const std::shared_ptr<RequestGrammar>& request, int64_t most) {
    const size_t hash = std::hash<std::string>{}(grammar.text);
    for (auto* jobs : {&waiting_, &running_}) {
      for (CompileJob& job : *jobs) {
        if (job.hash != hash || job.grammar != grammar || !job.IsWanted()) continue;
        // Another client's that waits would wait for the turns of that client.
        if (jobs == &waiting_ && job.client != client) continue;
        if (job.requests.size() == job.requests.capacity()) {
          std::erase_if(job.requests, [](const auto& one) { return one.expired(); });
          job.requests.reserve(2 * job.requests.size() + 8);
        }
        job.requests.push_back(request);
        return true;
      }
    }
    std::erase_if(waiting_, [](const CompileJob& job) { return !job.IsWanted(); });
    if (Count(waiting_, [client](const CompileJob& job) { return job.client == client; }) >= most) {
      return false;
    }
    waiting_.push_back({client, grammar, {request}, hash});
    return true;
  }

  bool is_running() const { return !running_.empty(); }

  // Null: none may begin now.
  CompileJob* Begin() {
    std::erase_if(waiting_, [](const CompileJob& job) { return !job.IsWanted(); });
    const int64_t long_ones = Count(running_, [](const CompileJob& job) { return job.IsLong(); });
    auto best = waiting_.end();
    int64_t fewest = most_running_;
    for (auto job = waiting_.begin(); job != waiting_.end(); ++job) {
      if (job->IsLong() && long_ones >= LongLimit()) continue;
      const int64_t its =
          Count(running_, [&](const CompileJob& one) { return one.client == job->client; });
      if (its >= fewest) continue;
      fewest = its;
      best = job;
    }
    if (best == waiting_.end()) return nullptr;
    running_.splice(running_.end(), waiting_, best);
    // Its client's others go after those of the rest.
    const CompileClient client = running_.back().client;
    std::list<CompileJob> others;
    for (auto job = waiting_.begin(); job != waiting_.end();) {
      const auto next = std::next(job);
      if (job->client == client) others.splice(others.end(), waiting_, job);
      job = next;
    }
    waiting_.splice(waiting_.end(), others);
    return &running_.back();
  }

  // The requests that waited for it; the job is gone.
  std::vector<std::weak_ptr<RequestGrammar>> End(const CompileJob* done) {
    const auto job =
        std::ranges::find_if(running_, [done](const CompileJob& one) { return &one == done; });
    auto requests = std::move(job->requests);
    running_.erase(job);
    return requests;
  }

 private:
  int64_t LongLimit() const { return std::max<int64_t>(most_running_ - 1, 1); }
  template <typename Condition>
  static int64_t Count(const std::list<CompileJob>& jobs, Condition condition) {
    return std::ranges::count_if(jobs, condition);
  }

  int64_t most_running_;
  std::list<CompileJob> waiting_;
  std::list<CompileJob> running_;
};

}  // namespace sluice::engine
