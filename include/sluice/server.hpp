// An OpenAI-compatible server over engines: HTTP in, streams of text out.
//
// Each of its threads has its own listening socket, connections, and client of every engine, and
// shares nothing that changes with the others. A stream that cannot go on ends with an error event
// and [DONE], never by silence.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/client.hpp"
#include "sluice/model_text.hpp"

namespace sluice {

// Limits on what a peer may send, keep and wait for. Counts are for all threads together.
struct HttpLimits {
  size_t request_line_bytes = size_t{8} << 10;
  size_t header_bytes = size_t{32} << 10;
  int32_t header_fields = 100;
  size_t body_bytes = size_t{32} << 20;
  // Of all bodies that are read or wait to be encoded. A body, and all bodies of one key or of one
  // address, get no more than they leave to others: above it a body is answered with 503, and with
  // 413 where it has more than half of this.
  size_t inflight_bytes = size_t{64} << 20;
  std::chrono::milliseconds header_timeout{10'000};
  // A body that is slower than this, looked at from header_timeout on, is given up.
  size_t body_bytes_per_second = 1024;
  std::chrono::milliseconds idle_timeout{75'000};  // of a connection between two requests
  // A reader that has taken nothing for so long is given up. From coalesce_bytes on what is new
  // waits to be sent as one; where more than unsent_bytes waits, the stream ends with an error.
  std::chrono::milliseconds write_timeout{30'000};
  size_t unsent_bytes = size_t{1} << 20;
  size_t coalesce_bytes = size_t{64} << 10;
  size_t pipelined_bytes = size_t{64} << 10;  // after a request that is not answered yet
  int32_t connections = 16384;
  // Handshakes of TLS of one thread that are not over, each of some 50 KiB: with one more the
  // oldest of them ends. Each has header_timeout.
  int32_t handshakes = 1024;
  // A peer that sends no more may still read (curl's and most clients' way is not to): by default
  // it counts as gone.
  bool allows_half_close = false;
};

struct ServerOptions {
  // Where it listens: an address and a port, 0 for any that is free; or a path of a socket.
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string unix_socket = {};
  // PEM, for TLS: the certificate of the server and those that signed it, and its key, which is not
  // encrypted. Empty: no TLS. A build without OpenSSL has none.
  std::string tls_cert = {};
  std::string tls_key = {};

  std::vector<std::string> engines = {};  // endpoints, as ConnectClient has them
  StopAt stop_at = StopAt::kEngine;
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds start_timeout{20 * 60'000};  // of engines of vLLM, in its place
  std::chrono::milliseconds stall_timeout{30'000};
  std::stop_token stop = {};  // of the wait for engines, which it ends

  // Names that requests may give the model; answers have the first one. Empty: the engine's.
  std::vector<std::string> model_names = {};
  // Of engines of vLLM: each is a name in addition, which answers repeat.
  std::vector<LoraAdapter> adapters = {};
  int32_t threads = 1;
  // For prompts that are long; all threads share them. The longest ones leave one of several free.
  int32_t encode_threads = 2;
  // Choices in flight, of which a request has n for each of its prompts; 503 where they are all
  // taken. A key, and without keys an address, gets no more than it leaves free, and else 429.
  int32_t max_requests = 4096;
  int32_t max_requests_per_key = 0;  // of one key, else 429; 0: no limit
  // `priority` orders requests of all keys and addresses, which are not served in turn then; else
  // those of one.
  bool has_common_priorities = false;
  // One of these must come as Authorization: Bearer; none: no key is needed.
  std::vector<std::string> api_keys = {};
  // Pages of these may send requests from a browser; "*" is every one.
  std::vector<std::string> cors_origins = {};
  // Names that the header Host may have where there are no keys and `host` is a loopback address,
  // in addition to those of this machine and IP addresses; "*" is every one.
  std::vector<std::string> allowed_hosts = {};
  // Names of a ToolFormat and a ReasoningFormat; empty: those that the chat template has.
  std::string tool_format = {};
  std::string reasoning_format = {};
  // Tokens of reasoning where a chat does not say how many; -1: no bound. Needs a reasoning format
  // that has an end: deepseek, mistral or seed.
  int64_t reasoning_budget = -1;
  bool refuses_unknown_fields = false;  // of requests with a body; else they are ignored
  // Messages that spell a special token of the model; else it is text.
  bool refuses_special_tokens = false;
  HttpLimits http = {};
  std::chrono::milliseconds keep_alive{15'000};     // of silence in a stream before a comment
  std::chrono::milliseconds drain_timeout{30'000};  // for the requests in flight when it ends
  // One JSON object for each request that is over (docs/server.md). Called on the threads of
  // connections, so it must not wait. Empty: no such log.
  std::function<void(std::string_view line)> access_log = {};
  // Called from any thread, a few times a second at most.
  std::function<void(std::string_view line)> log = {};
  // Called when the health of an engine changes, or its reason; must not wait.
  EngineObserver engine_observer = {};
};

class Server {
 public:
  // Checks the options, connects to the engines, and listens: from now on connections are taken,
  // but answered from Run on. Throws Error naming what is wrong.
  Server(const ModelText& text, const ServerOptions& options);
  ~Server();

  uint16_t port() const;           // that it got
  const std::string& url() const;  // "http://127.0.0.1:8080", "https://...", "unix:PATH"
  const EngineInfo& info() const;  // of the first engine

  // From now on these are the keys; requests that have been taken go on. At least one where there
  // was one, and none where there was none. From any thread. Throws Error naming what is wrong.
  void SetApiKeys(std::vector<std::string> keys);

  // For connections from now on. Only where it has TLS. From any thread. Throws Error naming what
  // is wrong, and changes nothing then.
  void SetTls(std::string_view cert, std::string_view key);

  // Serves, on threads of its own, once. After a stop of `drain` it takes no new connections,
  // answers /health with 503, and returns when the last request has ended; after drain_timeout, or
  // a stop of `now`, the rest of them end with an error event.
  void Run(std::stop_token drain, std::stop_token now);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
