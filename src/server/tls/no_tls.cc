#include "server/tls/tls.h"
#include "sluice/error.hpp"

namespace sluice::server {

struct TlsContext::Certificate {};

std::shared_ptr<const TlsContext::Certificate> TlsContext::Load(std::string_view,
                                                                std::string_view) {
  throw Error(ErrorCode::kUnavailable, "tls_cert", "a certificate",
              "none: OpenSSL was not found when this program was built, so it has no TLS");
}

TlsContext::TlsContext(std::string_view certificates, std::string_view key)
    : certificate_(Load(certificates, key)) {}
TlsContext::~TlsContext() = default;

void TlsContext::Replace(std::string_view certificates, std::string_view key) {
  Load(certificates, key);
}

std::unique_ptr<TlsSession> TlsContext::Open(int) const { return nullptr; }

}  // namespace sluice::server
