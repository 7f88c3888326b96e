#include "server/http/response_head.h"

#include <boost/beast/http/status.hpp>
#include <ostream>  // status.hpp needs it

namespace sluice::server {
namespace {

void AppendField(std::string_view name, std::string_view value, std::string& out) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

bool HasNoBody(int status) { return status < 200 || status == 204 || status == 304; }

void AppendHead(const HttpResponse& response, HeadStyle style, std::string_view id,
                std::string_view date, std::string& out) {
  const boost::beast::string_view reason = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(response.status)));
  out.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  out.append(reason.data(), reason.size()).append("\r\n");
  AppendField("Date", date, out);
  if (style.body != HeadStyle::Body::kNone && !response.content_type.empty()) {
    AppendField("Content-Type", response.content_type, out);
  }
  if (style.body == HeadStyle::Body::kLength) {
    AppendField("Content-Length", std::to_string(response.body.size()), out);
  } else if (style.body == HeadStyle::Body::kChunked) {
    AppendField("Transfer-Encoding", "chunked", out);
  }
  AppendField("X-Request-Id", id, out);
  for (const HttpField& field : response.fields) AppendField(field.name, field.value, out);
  if (style.connection == HeadStyle::Connection::kClose) {
    AppendField("Connection", "close", out);
  } else if (style.connection == HeadStyle::Connection::kKeepAlive) {
    AppendField("Connection", "keep-alive", out);
  }
  out.append("\r\n");
}

}  // namespace sluice::server
