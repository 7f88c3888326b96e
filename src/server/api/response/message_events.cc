#include "server/api/response/message_events.h"

#include <algorithm>
#include <utility>

#include "json/value_reader.h"
#include "server/api/json_text.h"
#include "server/api/response/chat_parts.h"

namespace sluice::server {
namespace {

constexpr std::string_view kSignature = "unsigned";

std::string_view StopReason(const ChoiceEnd& end) {
  const bool is_stop =
      end.end == GenerationEnd::kStopString || end.end == GenerationEnd::kStopToken;
  if (!is_stop) return "max_tokens";
  if (end.has_calls) return "tool_use";
  return end.stop.empty() ? "end_turn" : "stop_sequence";
}

std::string EndMembers(const ChoiceEnd& end) {
  const std::string_view reason = StopReason(end);
  std::string out = R"("stop_reason":")";
  out.append(reason).append(R"(","stop_sequence":)");
  if (reason != "stop_sequence") return out.append("null");
  AppendQuoted(out, end.stop);
  return out;
}

// Tokens of the prompt that the prefix cache had are not among input_tokens.
void AppendMessageUsage(std::string& out, const Usage& usage) {
  const int64_t cached = std::max<int64_t>(usage.cached_tokens, 0);
  out.append(R"({"input_tokens":)");
  AppendNumber(out, usage.prompt_tokens - cached);
  out.append(R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)");
  AppendNumber(out, cached);
  out.append(R"(,"output_tokens":)");
  AppendNumber(out, usage.completion_tokens);
  out.push_back('}');
}

// What a message begins with, up to the elements of its content.
std::string MessageHead(const ResponseHead& head) {
  std::string out = R"({"id":)";
  AppendQuoted(out, head.id);
  out.append(R"(,"type":"message","role":"assistant","model":)");
  AppendQuoted(out, head.model);
  if (head.seed.has_value()) {
    out.append(R"(,"seed":)");
    AppendNumber(out, *head.seed);
  }
  return out.append(R"(,"content":[)");
}

void AppendBlockHead(std::string& out, PartKind kind, std::string_view name) {
  if (kind == PartKind::kCallBegin) {
    out.append(R"({"type":"tool_use","id":")").append(RandomCallId()).append(R"(","name":)");
    AppendQuoted(out, name);
    out.append(R"(,"input":)");
  } else {
    out.append(kind == PartKind::kReasoning ? R"({"type":"thinking","thinking":)"
                                            : R"({"type":"text","text":)");
  }
}

bool IsObject(const std::string& text) {
  try {
    json::ForEachFieldOf(text, [](const std::string&, json::Json value) { json::Skip(value, 2); });
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A model may write arguments that are no JSON, or come to its last token in them. Clients read an
// object.
void AppendInput(std::string& out, const std::string& arguments) {
  if (arguments.empty()) {
    out.append("{}");
  } else if (IsObject(arguments)) {
    out.append(arguments);
  } else {
    out.append(R"({"INVALID_JSON":)");
    AppendQuoted(out, arguments);
    out.push_back('}');
  }
}

// The content of a whole message.
struct ContentSink {
  std::string& out;
  PartKind kind = PartKind::kContent;
  std::string text = {};
  bool is_first = true;

  void Open(PartKind its, std::string_view name) {
    if (!is_first) out.push_back(',');
    is_first = false;
    kind = its;
    text.clear();
    AppendBlockHead(out, kind, name);
  }
  void Add(std::string_view more) { text.append(more); }
  void Close() {
    if (kind == PartKind::kCallBegin) {
      AppendInput(out, text);
    } else {
      AppendQuoted(out, text);
    }
    if (kind == PartKind::kReasoning) out.append(R"(,"signature":")").append(kSignature) += '"';
    out.push_back('}');
  }
};

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

std::string MessageErrorBody(const ApiError& error, std::string_view request_id) {
  std::string out = R"({"type":"error","error":{"type":")";
  out.append(ErrorType(error.status)).append(R"(","message":)");
  AppendQuotedAny(out, error.message);
  for (const auto& [name, text] : {std::pair("param", &error.param), {"code", &error.code}}) {
    if (text->empty()) continue;
    out.append(",\"").append(name).append("\":");
    AppendQuotedAny(out, *text);
  }
  out.push_back('}');
  if (!request_id.empty()) {
    out.append(R"(,"request_id":)");
    AppendQuotedAny(out, request_id);
  }
  return out.append("}");
}

std::string MessageBody(const ResponseHead& head, const ChoiceDelta& content, const ChoiceEnd& end,
                        const Usage& usage) {
  std::string out = MessageHead(head);
  ContentSink sink{out};
  BlockWalk walk;
  walk.Take(content, sink);
  walk.End(sink);
  out.append("],").append(EndMembers(end)).append(R"(,"usage":)");
  AppendMessageUsage(out, usage);
  return out.append("}");
}

std::string CountBody(int64_t input_tokens) {
  std::string out = R"({"input_tokens":)";
  AppendNumber(out, input_tokens);
  return out.append("}");
}

// --- a stream ----------------------------------------------------------------------------------

class MessageEvents::Sink {
 public:
  Sink(MessageEvents& events, std::string& out) : its_(events), out_(out) {}
  int64_t count() const { return count_; }

  void Open(PartKind kind, std::string_view name) {
    its_.kind_ = kind;
    ++its_.index_;
    BeginEvent("content_block_start");
    out_.append(R"(,"content_block":)");
    AppendBlockHead(out_, kind, name);
    out_.append(kind == PartKind::kCallBegin ? "{}" : R"("")");
    if (kind == PartKind::kReasoning) out_.append(R"(,"signature":"")");
    out_.append("}}\n\n");
  }
  void Add(std::string_view text) {
    switch (its_.kind_) {
      case PartKind::kReasoning:
        return Delta(R"({"type":"thinking_delta","thinking":")", text);
      case PartKind::kCallBegin:
        return Delta(R"({"type":"input_json_delta","partial_json":")", text);
      default:
        return Delta(R"({"type":"text_delta","text":")", text);
    }
  }
  void Close() {
    if (its_.kind_ == PartKind::kReasoning) {
      Delta(R"({"type":"signature_delta","signature":")", kSignature);
    }
    BeginEvent("content_block_stop");
    out_.append("}\n\n");
  }

 private:
  void BeginEvent(std::string_view type) {
    out_.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type);
    out_.append(R"(","index":)");
    AppendNumber(out_, its_.index_);
    ++count_;
  }
  void Delta(std::string_view begin, std::string_view text) {
    BeginEvent("content_block_delta");
    out_.append(R"(,"delta":)").append(begin);
    AppendEscaped(out_, text);
    out_.append("\"}}\n\n");
  }

  MessageEvents& its_;
  std::string& out_;
  int64_t count_ = 0;
};

MessageEvents::MessageEvents(const ResponseHead& head) : message_(MessageHead(head)) {}

int64_t MessageEvents::Begin(std::string& out, const Usage& usage) {
  out.append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
  out.append(message_).append(R"(],"stop_reason":null,"stop_sequence":null,"usage":)");
  AppendMessageUsage(out, {usage.prompt_tokens, 0, -1});
  out.append("}}\n\n");
  return 1;
}

int64_t MessageEvents::Content(std::string& out, const ChoiceDelta& delta,
                               const std::optional<Usage>&) {
  Sink sink(*this, out);
  walk_.Take(delta, sink);
  return sink.count();
}

int64_t MessageEvents::Finish(std::string& out, const ChoiceEnd& end, const std::optional<Usage>&) {
  Sink sink(*this, out);
  walk_.End(sink);
  end_ = EndMembers(end);
  return sink.count();
}

int64_t MessageEvents::End(std::string& out, const Usage& usage) {
  out.append("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{").append(end_);
  out.append(R"(},"usage":)");
  AppendMessageUsage(out, usage);
  out.append("}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  return 2;
}

int64_t MessageEvents::Fail(std::string& out, const ApiError& error) {
  out.append("event: error\ndata: ").append(MessageErrorBody(error, {})).append("\n\n");
  return 1;
}

void MessageEvents::KeepAlive(std::string& out) {
  out.append("event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

}  // namespace sluice::server
