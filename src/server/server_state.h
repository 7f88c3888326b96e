// The common state of a server's loops: its options, read as requests need them, and the few
// counters that count for all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/admission/access.h"
#include "server/admission/admission.h"
#include "server/admission/host_check.h"
#include "server/http/listener.h"
#include "server/metrics/metrics_board.h"
#include "server/server_log.h"
#include "server/tls/tls.h"
#include "sluice/engine_messages.hpp"
#include "sluice/model_text.hpp"
#include "sluice/server.hpp"

namespace sluice::server {

struct ServerState {
  ServerState(const ModelText& model_text, const ServerOptions& server_options)
      : text(model_text),
        options(server_options),
        access(options.api_keys, options.cors_origins),
        hosts(options),
        admission(options.max_requests, options.max_requests_per_key),
        board(static_cast<size_t>(options.threads)),
        log(options.log) {}

  const ModelText text;
  const ServerOptions options;
  // Describes the first engine; set, with the names, before the loops run.
  EngineInfo info = {};
  std::vector<std::string> model_names = {};
  int64_t created = 0;  // seconds since 1970

  Access access;
  const HostCheck hosts;
  Admission admission;
  std::atomic<bool> is_draining = false;
  HttpCounters http = {};
  std::unique_ptr<TlsContext> tls = {};  // null: none; outlives the loops
  MetricsBoard board;
  ServerLog log;
};

}  // namespace sluice::server
