// The answers of a loop to requests: refusals on the head, then a handler for each route.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/request/completion_request.h"
#include "server/http/exchange.h"
#include "server/route.h"
#include "server/server_state.h"
#include "sluice/client.hpp"

namespace sluice::server {

// The calls that only the loop can make.
class LoopServices {
 public:
  virtual EngineHealth engine_health() const = 0;
  virtual std::vector<EngineState> engines() const = 0;
  virtual std::unique_ptr<Answer> Complete(Exchange& exchange, Api api) = 0;
  virtual std::unique_ptr<Answer> Measure(Exchange& exchange) = 0;  // /metrics
  // `work`, which reads `bytes` bytes of this group, on a thread for long work, then `then` on the
  // loop.
  virtual void Encode(std::function<void()> work, std::function<void()> then, size_t bytes,
                      uint64_t group) = 0;

 protected:
  ~LoopServices() = default;
};

class Routes final : public Handler {
 public:
  // Both outlive it.
  Routes(ServerState& state, LoopServices& services) : state_(state), services_(services) {}

  std::optional<HttpResponse> Refuse(const HttpRequest& head) override;
  std::unique_ptr<Answer> Handle(Exchange& exchange) override;
  uint64_t ClientOf(const HttpRequest& head) override;
  HttpResponse Malformed(const HttpRequest& request, int status, std::string_view what) override;

  const RouteCounts& counts() const { return counts_; }

 private:
  std::optional<HttpResponse> RefusalOf(const HttpRequest& head, const RouteRow& row) const;
  std::unique_ptr<Answer> Dispatch(const RouteRow& row, Exchange& exchange);
  // Adds the fields of every response, and its number.
  void Finish(const HttpRequest& request, Route route, HttpResponse& response);
  // Writes the line of the access log, where there is one.
  void Log(const HttpRequest& request, int status, bool is_complete,
           std::chrono::steady_clock::time_point begin) const;
  // Why no request would be taken; empty: it would.
  std::string_view WhyUnhealthy() const;
  // Of /health and /ready: "ok" and "ready" are good.
  HttpResponse StatusResponse(std::string_view good, std::string_view why_not) const;

  ServerState& state_;
  LoopServices& services_;
  RouteCounts counts_;
};

}  // namespace sluice::server
