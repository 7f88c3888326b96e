#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <functional>

#include "server/http/request_target.h"

namespace sluice::server {
namespace {

namespace http = boost::beast::http;

using Text = boost::beast::string_view;

// simdjson reads this far past a body (SIMDJSON_PADDING).
constexpr size_t kPadding = 64;
// A length is only a claim: so much is taken from memory for it before bytes have come.
constexpr size_t kMostReserved = size_t{64} << 10;

std::string_view ViewOf(Text text) { return {text.data(), text.size()}; }

RequestReader::Problem ProblemOf(const boost::beast::error_code& error, const HttpLimits& limits) {
  switch (static_cast<http::error>(error.value())) {
    case http::error::header_limit:
      return {431, "the header fields are too long"};
    case http::error::body_limit:
      return {413, "the body has more than " + std::to_string(limits.body_bytes) + " bytes"};
    case http::error::bad_method:
    case http::error::bad_target:
    case http::error::bad_version:
      return {400, "the request line is malformed"};
    case http::error::bad_field:
    case http::error::bad_value:
    case http::error::bad_obs_fold:
    case http::error::bad_line_ending:
      return {400, "a header field is malformed"};
    case http::error::bad_content_length:
      return {400, "Content-Length is no number, or there are several, or chunks too"};
    case http::error::bad_transfer_encoding:
      return {400, "Transfer-Encoding is there twice, or Content-Length too"};
    case http::error::bad_chunk:
    case http::error::bad_chunk_extension:
      return {400, "a chunk of the body is malformed"};
    default:
      return {400, "the request is malformed"};
  }
}

// RFC 9112 5.2: a line that begins with a space or tab goes on with the field of the line above.
// A proxy between this server and a client may have taken it for something else.
bool HasFold(std::string_view head) {
  return head.find("\n ") != std::string_view::npos || head.find("\n\t") != std::string_view::npos;
}

bool Equal(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

}  // namespace

class RequestReader::Parser final : public http::basic_parser<true> {
 public:
  Parser(const HttpLimits& limits, HttpRequest& request) : limits_(limits), request_(request) {
    body_limit(limits.body_bytes);
    // Without the request line; Read looks at both.
    header_limit(static_cast<uint32_t>(limits.request_line_bytes + limits.header_bytes));
  }

  size_t Read(std::string_view bytes) {
    bytes_ = bytes;
    size_t taken = 0;
    while (taken < bytes.size() && problem_.status == 0 && !is_done()) {
      const bool had_head = is_header_done();
      boost::beast::error_code error;
      const size_t count = put({bytes.data() + taken, bytes.size() - taken}, error);
      if (!had_head) {
        head_bytes_ += count;
        has_fold_ = has_fold_ || HasFold(bytes.substr(taken, count));
      }
      taken += count;
      if (error == http::error::need_more) {
        CheckPending(bytes.substr(taken));
        break;
      }
      if (error && problem_.status == 0) problem_ = ProblemAt(error, bytes.substr(taken));
      if (!had_head && is_header_done()) {
        if (problem_.status == 0) CheckHead();
        break;
      }
    }
    return taken;
  }

  const Problem& problem() const { return problem_; }
  bool is_http_1_1() const { return is_http_1_1_; }
  bool expects_continue() const { return expects_continue_; }
  size_t body_bytes() const { return body_bytes_; }
  // on_body_init comes with the first byte of the body.
  size_t body_length() const {
    const auto length = content_length();
    return length ? static_cast<size_t>(*length) : 0;
  }

 private:
  void Fail(int status, std::string_view what, boost::beast::error_code& error) {
    problem_ = {status, std::string(what)};
    error = http::error::end_of_stream;  // any one: it stops the parser
  }

  // The parser needs more than `pending`.
  void CheckPending(std::string_view pending) {
    if (has_line_ || is_header_done()) {
      // After the head it is the header of a chunk, or what follows the last one.
      if ((is_header_done() ? 0 : head_bytes_ - line_bytes_) + pending.size() >
          limits_.header_bytes) {
        problem_ = {431, "the header fields are too long"};
      }
      return;
    }
    const size_t line = std::min(pending.find('\n'), pending.size());
    if (line > limits_.request_line_bytes) {
      problem_ = {414, "the request line is too long"};
    } else if (pending.size() - line > limits_.header_bytes) {
      problem_ = {431, "the header fields are too long"};
    }
  }

  Problem ProblemAt(const boost::beast::error_code& error, std::string_view rest) const {
    if (error == http::error::bad_version) {
      // A version that is one, or what is none at all.
      const std::string_view line = rest.substr(0, rest.find("\r\n"));
      const std::string_view version = line.substr(std::min(line.rfind(' '), line.size()));
      if (version.starts_with(" HTTP/") && version.find('\n') == std::string_view::npos) {
        return {505, "only HTTP/1.0 and HTTP/1.1 are spoken"};
      }
    }
    return ProblemOf(error, limits_);
  }

  // Checks that the parser leaves to others.
  void CheckHead() {
    if (head_bytes_ - line_bytes_ > limits_.header_bytes) {
      problem_ = {431, "the header fields are too long"};
    } else if (has_fold_) {
      problem_ = {400, "a header field is folded into two lines"};
    } else if (hosts_ > 1 || (hosts_ == 0 && is_http_1_1_)) {
      problem_ = {400, "there must be one Host"};
    } else if (has_transfer_encoding_ && !is_http_1_1_) {
      problem_ = {400, "HTTP/1.0 has no Transfer-Encoding"};
    } else if (has_transfer_encoding_ && !is_plain_chunked_) {
      problem_ = {501, "the only Transfer-Encoding is chunked"};
    } else if (has_other_expectation_) {
      problem_ = {417, "the only Expect is 100-continue"};
    }
  }

  void on_request_impl(http::verb, Text method, Text target, int version,
                       boost::beast::error_code& error) override {
    has_line_ = true;
    line_bytes_ = method.size() + target.size() + sizeof("  HTTP/1.1\r\n") - 1;
    if (line_bytes_ > limits_.request_line_bytes) {
      return Fail(414, "the request line is too long", error);
    }
    is_http_1_1_ = version == 11;
    request_.method = ViewOf(method);
    if (!ReadTarget(ViewOf(target), request_.path, request_.query)) {
      Fail(400, "the target of the request is malformed", error);
    }
  }

  void on_field_impl(http::field field, Text name, Text value,
                     boost::beast::error_code& error) override {
    if (is_header_done()) {  // a trailer field, which is dropped
      // The parser joins the lines of a folded value in memory of its own.
      const bool is_folded = !value.empty() && (std::less<>()(value.data(), bytes_.data()) ||
                                                !std::less<>()(value.data(), bytes_.end()));
      if (is_folded) Fail(400, "a header field is folded into two lines", error);
      return;
    }
    if (std::ssize(request_.fields) >= limits_.header_fields) {
      return Fail(431, "there are too many header fields", error);
    }
    request_.fields.push_back({std::string(ViewOf(name)), std::string(ViewOf(value))});
    if (field == http::field::host) ++hosts_;
    if (field == http::field::transfer_encoding) {
      is_plain_chunked_ = !has_transfer_encoding_ && Equal(ViewOf(value), "chunked");
      has_transfer_encoding_ = true;
    }
    if (field == http::field::expect && is_http_1_1_) {
      if (Equal(ViewOf(value), "100-continue")) {
        expects_continue_ = true;
      } else {
        has_other_expectation_ = true;
      }
    }
  }

  void on_header_impl(boost::beast::error_code&) override {}

  void on_body_init_impl(const boost::optional<uint64_t>& length,
                         boost::beast::error_code&) override {
    length_ = length ? static_cast<size_t>(*length) : 0;
    request_.body.reserve(std::min(length_, kMostReserved) + kPadding);
  }

  size_t on_body_impl(Text bytes, boost::beast::error_code&) override { return Take(bytes); }
  void on_chunk_header_impl(uint64_t, Text, boost::beast::error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, Text bytes, boost::beast::error_code&) override {
    return Take(bytes);
  }

  size_t Take(Text bytes) {
    body_bytes_ += bytes.size();
    const size_t needed = body_bytes_ + kPadding;
    if (needed > request_.body.capacity()) {
      request_.body.reserve(std::max({needed, length_ + kPadding, 2 * request_.body.capacity()}));
    }
    request_.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  void on_finish_impl(boost::beast::error_code&) override {}

  // Only requests are read, but the base class requires this one too.
  void on_response_impl(int, Text, int, boost::beast::error_code&) override {}

  const HttpLimits& limits_;
  HttpRequest& request_;
  Problem problem_;
  std::string_view bytes_;  // of the Read that runs
  size_t head_bytes_ = 0;
  size_t line_bytes_ = 0;
  size_t length_ = 0;
  size_t body_bytes_ = 0;
  int32_t hosts_ = 0;
  bool has_line_ = false;
  bool has_fold_ = false;
  bool is_http_1_1_ = false;
  bool has_transfer_encoding_ = false;
  bool is_plain_chunked_ = false;
  bool expects_continue_ = false;
  bool has_other_expectation_ = false;
};

RequestReader::RequestReader(const HttpLimits& limits, HttpRequest& request)
    : parser_(std::make_unique<Parser>(limits, request)) {}
RequestReader::~RequestReader() = default;

size_t RequestReader::Read(std::string_view bytes) { return parser_->Read(bytes); }
const RequestReader::Problem& RequestReader::problem() const { return parser_->problem(); }
bool RequestReader::has_head() const { return parser_->is_header_done(); }
bool RequestReader::is_complete() const { return parser_->is_done(); }
bool RequestReader::is_http_1_1() const { return parser_->is_http_1_1(); }
bool RequestReader::keeps_alive() const { return parser_->keep_alive(); }
bool RequestReader::expects_continue() const { return parser_->expects_continue(); }
size_t RequestReader::body_bytes() const { return parser_->body_bytes(); }
size_t RequestReader::body_length() const { return parser_->body_length(); }

}  // namespace sluice::server
