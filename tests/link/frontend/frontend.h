// A client in front of engines that a test plays: each has an endpoint, and acts in Pump alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/link/collected.h"
#include "tests/link/letters.h"

namespace sluice::test {

using std::chrono::milliseconds;
inline constexpr milliseconds kPatience{60'000};  // of tests with what must come

// A client and its engines, each of which gets its turn until something is so.
template <typename Engine>
class FrontendOf {
 public:
  FrontendOf(std::vector<Engine*> fake_engines, const RemoteClientOptions& options = {})
      : engines_(std::move(fake_engines)) {
    std::vector<std::string> endpoints;
    for (const Engine* engine : engines_) {  // ranks have one for all
      const std::string& endpoint = engine->endpoint();
      if (std::ranges::find(endpoints, endpoint) == endpoints.end()) endpoints.push_back(endpoint);
    }
    auto connecting = std::async(std::launch::async,
                                 [&] { return ConnectClient(endpoints, Letters(), options); });
    while (connecting.wait_for(milliseconds(1)) != std::future_status::ready) PumpEngines();
    client_ = connecting.get();
  }

  Client& operator*() { return *client_; }
  Client* operator->() { return client_.get(); }
  void Close() { client_.reset(); }

  RequestId Submit(ClientRequest request = Asks()) {
    const OutputMode mode = request.mode;
    const RequestId id = client_->Submit(std::move(request));
    got.Expect(id, mode);
    return id;
  }
  size_t Poll(milliseconds timeout = milliseconds(0)) {
    const auto outputs = client_->Poll(timeout);
    got.Add(outputs);
    return outputs.size();
  }
  // False: it has not become so in time.
  bool Until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      PumpEngines();
      Poll(milliseconds(1));
    }
    return true;
  }
  bool UntilEnded(RequestId id) {
    return Until([&] { return got.HasEnded(id); });
  }
  bool UntilText(RequestId id, std::string_view text) {
    return Until([&] { return got[id].text == text; });
  }
  bool UntilHealth(EngineHealth health) {
    return Until([&] { return client_->health() == health; });
  }

  Collectors got;

 private:
  void PumpEngines() {
    for (Engine* engine : engines_) engine->Pump();
  }

  std::vector<Engine*> engines_;
  std::unique_ptr<Client> client_;
};

}  // namespace sluice::test
