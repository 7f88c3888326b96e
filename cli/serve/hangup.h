// SIGHUP, where a server has files to open again: its keys and its certificate are read again, and
// its access log is opened again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/serve/access_log.h"
#include "cli/serve/serve.h"

namespace sluice::cli {

// The keys of the command line, and those of the file.
std::vector<std::string> KeysOf(const ServeOptions& options);
// The certificate and its key, where the command line names them.
void ReadTls(const ServeOptions& options, ServerOptions& to);

class Hangup {
 public:
  Hangup(const ServeOptions& options, std::function<void(std::string_view)> say)
      : options_(options), say_(std::move(say)) {}

  // Otherwise SIGHUP ends the server. Standard output is no file to open again: it may be the
  // terminal that closes.
  bool HasWork() const {
    const std::string& log = options_.access_log_path;
    return !options_.api_key_path.empty() || !options_.tls_cert_path.empty() ||
           (!log.empty() && log != "-");
  }
  // From any thread. It does not wait: what is no file of a file system, such as a named pipe, is
  // read at the start alone. While the server starts, its keys are read again when it has started,
  // and its log is opened again when it has been opened.
  void Handle();

  // Until the end of the lease.
  using Lease = std::unique_ptr<Hangup, void (*)(Hangup*)>;
  Lease Use(AccessLog* log);  // or null
  Lease Use(Server& server);

 private:
  void ReadAgain();
  void ReadKeys();
  void ReadCertificate();

  const ServeOptions& options_;
  const std::function<void(std::string_view)> say_;
  std::mutex mutex_;
  AccessLog* log_ = nullptr;
  Server* server_ = nullptr;
  bool is_late_ = false;
};

}  // namespace sluice::cli
