#include "cli/serve/hangup.h"

#include <exception>
#include <utility>

#include "cli/files/file.h"
#include "cli/serve/api_keys.h"
#include "cli/text.h"

namespace sluice::cli {

std::vector<std::string> KeysOf(const ServeOptions& options) {
  std::vector<std::string> keys = options.server.api_keys;
  if (options.api_key_path.empty()) return keys;
  const std::vector<std::string> more = ReadApiKeys(options.api_key_path);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

void ReadTls(const ServeOptions& options, ServerOptions& to) {
  if (options.tls_cert_path.empty()) return;
  to.tls_cert = ReadTextFile("tls-cert", options.tls_cert_path);
  to.tls_key = ReadTextFile("tls-key", options.tls_key_path);
}

void Hangup::Handle() {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->Reopen();
  is_late_ = server_ == nullptr;
  if (server_ != nullptr) ReadAgain();
}

Hangup::Lease Hangup::Use(AccessLog* log) {
  const std::lock_guard lock(mutex_);
  log_ = log;
  if (is_late_ && log != nullptr) log->Reopen();
  return {this, [](Hangup* hangup) {
            const std::lock_guard lock_of_end(hangup->mutex_);
            hangup->log_ = nullptr;
          }};
}

Hangup::Lease Hangup::Use(Server& server) {
  const std::lock_guard lock(mutex_);
  server_ = &server;
  if (std::exchange(is_late_, false)) ReadAgain();
  return {this, [](Hangup* hangup) {
            const std::lock_guard lock_of_end(hangup->mutex_);
            hangup->server_ = nullptr;
          }};
}

void Hangup::ReadAgain() {
  ReadKeys();
  ReadCertificate();
}

// A file that cannot be read changes nothing.
void Hangup::ReadKeys() {
  if (options_.api_key_path.empty()) return;
  try {
    CheckIsRegularFile("api-key-file", options_.api_key_path);
    std::vector<std::string> keys = KeysOf(options_);
    const std::string count = Number(keys.size());
    server_->SetApiKeys(std::move(keys));
    say_("read the keys again: " + count);
  } catch (const std::exception& error) {
    say_("the keys stay what they were: " + std::string(error.what()));
  }
}

void Hangup::ReadCertificate() {
  if (options_.tls_cert_path.empty()) return;
  try {
    CheckIsRegularFile("tls-cert", options_.tls_cert_path);
    CheckIsRegularFile("tls-key", options_.tls_key_path);
    ServerOptions read;
    ReadTls(options_, read);
    server_->SetTls(read.tls_cert, read.tls_key);
    say_("read the certificate again");
  } catch (const std::exception& error) {
    say_("the certificate stays what it was: " + std::string(error.what()));
  }
}

}  // namespace sluice::cli
