#include "server/tls/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>
#include <string>
#include <utility>

#include "server/tls/socket_bio.h"
#include "sluice/error.hpp"

namespace sluice::server {
namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Freed<SSL_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

// The first error says most: "no start line".
std::string WhatFailed() {
  const unsigned long code = ERR_peek_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

[[noreturn]] void Refuse(const char* parameter, const char* allowed) {
  throw Error(ErrorCode::kInvalidValue, parameter, "what it has (" + WhatFailed() + ")", allowed);
}

constexpr const char* kCertificates = "certificates as PEM, that of the server first";
constexpr const char* kKey = "the key of the first certificate as PEM, not encrypted";

Bio TextOf(std::string_view text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(std::min<size_t>(text.size(), INT_MAX))));
  if (bio == nullptr) throw std::bad_alloc();
  return bio;
}

// OpenSSL would read one from the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

void UseCertificates(SSL_CTX* context, std::string_view text) {
  const Bio bio = TextOf(text);
  const X509Ptr first(PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassword, nullptr));
  if (first == nullptr || SSL_CTX_use_certificate(context, first.get()) != 1) {
    Refuse("tls_cert", kCertificates);
  }
  for (;;) {
    X509Ptr next(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    if (SSL_CTX_add0_chain_cert(context, next.get()) != 1) Refuse("tls_cert", kCertificates);
    (void)next.release();
  }
  const unsigned long end = ERR_peek_last_error();
  if (ERR_GET_LIB(end) != ERR_LIB_PEM || ERR_GET_REASON(end) != PEM_R_NO_START_LINE) {
    Refuse("tls_cert", kCertificates);
  }
  ERR_clear_error();
}

void UseKey(SSL_CTX* context, std::string_view text) {
  const Bio bio = TextOf(text);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    Refuse("tls_key", kKey);
  }
}

// A client that speaks no HTTP/1.1 learns so in the handshake.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned offered_size, void*) {
  constexpr std::string_view kHttp = "http/1.1";
  std::string_view rest(reinterpret_cast<const char*>(offered), offered_size);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(1, static_cast<unsigned char>(rest[0]));
    if (name == kHttp) {
      *chosen = reinterpret_cast<const unsigned char*>(name.data());
      *size = static_cast<unsigned char>(name.size());
      return SSL_TLSEXT_ERR_OK;
    }
    rest.remove_prefix(name.size() + 1 > rest.size() ? rest.size() : name.size() + 1);
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

class OpenSslSession final : public TlsSession {
 public:
  OpenSslSession(Session ssl, int fd) : ssl_(std::move(ssl)) {
    socket_.fd = fd;
    BIO* const bio = NewSocketBio(socket_);
    if (bio == nullptr) throw std::bad_alloc();
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_accept_state(ssl_.get());
  }

  Result Handshake() override {
    const Result result = ResultOf([this] { return SSL_do_handshake(ssl_.get()); });
    is_open_ = is_open_ || result == Result::kDone;
    return result;
  }
  bool is_open() const override { return is_open_; }
  Result Read(char* to, size_t size, size_t& count) override {
    count = 0;
    return ResultOf([&] { return SSL_read_ex(ssl_.get(), to, size, &count); });
  }
  Result Write(const char* from, size_t size, size_t& count) override {
    count = 0;
    return ResultOf([&] { return SSL_write_ex(ssl_.get(), from, size, &count); });
  }
  void Close() override {
    ERR_clear_error();
    if (is_open_ && !has_failed_) SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

 private:
  template <typename Call>
  Result ResultOf(Call call) {
    ERR_clear_error();
    errno = 0;
    const int done = call();
    if (done == 1) return Result::kDone;
    switch (SSL_get_error(ssl_.get(), done)) {
      case SSL_ERROR_WANT_READ:
        return Result::kNeedsInput;
      case SSL_ERROR_WANT_WRITE:
        return Result::kNeedsRoom;
      case SSL_ERROR_ZERO_RETURN:
        return Result::kEnd;
      default:
        has_failed_ = true;
        ERR_clear_error();
        if (errno == 0) errno = EPROTO;
        return Result::kFailed;
    }
  }

  SocketBio socket_;
  Session ssl_;
  bool is_open_ = false;
  bool has_failed_ = false;
};

}  // namespace

struct TlsContext::Certificate {
  Context context;
};

std::shared_ptr<const TlsContext::Certificate> TlsContext::Load(std::string_view certificates,
                                                                std::string_view key) {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A body has its length in the request: its end needs no other word. Nothing is negotiated twice,
  // and no session is kept here: tickets are with the clients.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                         SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // A part of what waits may go, and the rest may lie elsewhere at the next try. An idle connection
  // has no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  UseCertificates(context.get(), certificates);
  UseKey(context.get(), key);
  return std::make_shared<Certificate>(Certificate{std::move(context)});
}

TlsContext::TlsContext(std::string_view certificates, std::string_view key)
    : certificate_(Load(certificates, key)) {}
TlsContext::~TlsContext() = default;

void TlsContext::Replace(std::string_view certificates, std::string_view key) {
  std::shared_ptr<const Certificate> next = Load(certificates, key);
  const std::lock_guard lock(mutex_);
  certificate_.swap(next);
}

std::unique_ptr<TlsSession> TlsContext::Open(int fd) const {
  std::shared_ptr<const Certificate> certificate;
  {
    const std::lock_guard lock(mutex_);
    certificate = certificate_;
  }
  Session ssl(SSL_new(certificate->context.get()));  // which holds the context
  if (ssl == nullptr) throw std::bad_alloc();
  return std::make_unique<OpenSslSession>(std::move(ssl), fd);
}

}  // namespace sluice::server
