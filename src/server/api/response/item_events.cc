#include "server/api/response/item_events.h"

#include <algorithm>
#include <vector>

#include "server/api/json_text.h"
#include "server/api/response/chat_parts.h"

namespace sluice::server {
namespace {

constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";
constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kNoDetails = R"("error":null,"incomplete_details":null)";
constexpr std::string_view kMaxTokens =
    R"("error":null,"incomplete_details":{"reason":"max_output_tokens"})";

bool IsCut(const ChoiceEnd& end) { return FinishReasonName(end) == "length"; }

// details: the members error and incomplete_details. output: the inside of a list.
void AppendResponse(std::string& out, const ResponseHead& head, std::string_view status,
                    std::string_view details, std::string_view output,
                    const std::optional<Usage>& usage) {
  out.append(R"({"id":)");
  AppendQuoted(out, head.id);
  out.append(R"(,"object":"response","created_at":)");
  AppendNumber(out, head.created);
  out.append(R"(,"status":")").append(status).append(R"(","background":false,)").append(details);
  out.append(",").append(head.echo_members).append(R"("model":)");
  AppendQuoted(out, head.model);
  if (head.seed.has_value()) {
    out.append(R"(,"seed":)");
    AppendNumber(out, *head.seed);
  }
  out.append(R"(,"output":[)").append(output).append(R"(],"usage":)");
  if (!usage.has_value()) {
    out.append("null}");
    return;
  }
  out.append(R"({"input_tokens":)");
  AppendNumber(out, usage->prompt_tokens);
  out.append(R"(,"input_tokens_details":{"cached_tokens":)");
  AppendNumber(out, std::max<int64_t>(usage->cached_tokens, 0));
  out.append(R"(,"cache_write_tokens":0},"output_tokens":)");
  AppendNumber(out, usage->completion_tokens);
  out.append(R"(,"output_tokens_details":{"reasoning_tokens":)");
  AppendNumber(out, usage->reasoning_tokens);
  out.append(R"(},"total_tokens":)");
  AppendNumber(out, usage->prompt_tokens + usage->completion_tokens);
  out.append("}}");
}

void AppendContentPart(std::string& out, const OutputItem& item) {
  const bool is_text = item.kind == PartKind::kContent;
  out.append(is_text ? R"({"type":"output_text","text":)" : R"({"type":"reasoning_text","text":)");
  AppendQuoted(out, item.text);
  out.append(is_text ? R"(,"annotations":[],"logprobs":[]})" : "}");
}

void AppendItem(std::string& out, const OutputItem& item, std::string_view status) {
  out.append(R"({"id":)");
  AppendQuoted(out, item.id);
  if (item.kind == PartKind::kCallBegin) {
    out.append(R"(,"type":"function_call","call_id":)");
    AppendQuoted(out, item.call_id);
    out.append(R"(,"name":)");
    AppendQuoted(out, item.name);
    out.append(R"(,"arguments":)");
    AppendQuoted(out, item.text);
  } else {
    out.append(item.kind == PartKind::kContent ? R"(,"type":"message","role":"assistant")"
                                               : R"(,"type":"reasoning","summary":[])");
    out.append(R"(,"content":[)");
    if (!item.text.empty()) AppendContentPart(out, item);
    out.push_back(']');
  }
  out.append(R"(,"status":")").append(status).append("\"}");
}

// number: among the items of the output.
OutputItem NewItem(const ResponseHead& head, int64_t number, PartKind kind, std::string_view name) {
  OutputItem item = {.kind = kind, .name = std::string(name)};
  item.id = kind == PartKind::kContent ? "msg_" : kind == PartKind::kReasoning ? "rs_" : "fc_";
  constexpr std::string_view kPrefix = "resp_";
  item.id.append(std::string_view(head.id).substr(kPrefix.size())).append("_");
  AppendNumber(item.id, number);
  if (kind == PartKind::kCallBegin) item.call_id = RandomCallId();
  return item;
}

struct OutputSink {
  const ResponseHead& head;
  bool is_cut;
  std::vector<OutputItem> items = {};

  void Open(PartKind kind, std::string_view name) {
    items.push_back(NewItem(head, std::ssize(items), kind, name));
  }
  void Add(std::string_view text) { items.back().text.append(text); }
  void Close() {}
  std::string Json() const {
    std::string out;
    for (const OutputItem& item : items) {
      if (!out.empty()) out.push_back(',');
      AppendItem(out, item, is_cut && &item == &items.back() ? kIncomplete : kCompleted);
    }
    return out;
  }
};

}  // namespace

std::string ResponseBody(const ResponseHead& head, const ChoiceDelta& content, const ChoiceEnd& end,
                         const Usage& usage) {
  OutputSink sink{head, IsCut(end)};
  BlockWalk walk;
  walk.Take(content, sink);
  std::string out;
  AppendResponse(out, head, sink.is_cut ? kIncomplete : kCompleted,
                 sink.is_cut ? kMaxTokens : kNoDetails, sink.Json(), usage);
  return out;
}

// --- a stream ----------------------------------------------------------------------------------

// Up to its own members, a comma first.
void ItemEvents::AppendEvent(std::string& out, std::string_view type) {
  out.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type);
  out.append(R"(","sequence_number":)");
  AppendNumber(out, sequence_++);
}

class ItemEvents::Sink {
 public:
  Sink(ItemEvents& events, std::string& out) : its_(events), out_(out), before_(events.sequence_) {}
  int64_t count() const { return its_.sequence_ - before_; }

  void Open(PartKind kind, std::string_view name) {
    its_.item_ = NewItem(its_.head_, its_.items_, kind, name);
    ItemEvent("response.output_item.added", kInProgress);
    if (kind != PartKind::kCallBegin) PartEvent("response.content_part.added");
  }
  void Add(std::string_view text) {
    switch (its_.item_.kind) {
      case PartKind::kContent:
        TextEvent("response.output_text.delta", "delta", text);
        break;
      case PartKind::kReasoning:
        TextEvent("response.reasoning_text.delta", "delta", text);
        break;
      default:
        TextEvent("response.function_call_arguments.delta", "delta", text);
    }
    its_.item_.text.append(text);
  }
  void Close() {
    const OutputItem& item = its_.item_;
    const std::string_view status = its_.is_incomplete_ ? kIncomplete : kCompleted;
    if (item.kind == PartKind::kCallBegin) {
      TextEvent("response.function_call_arguments.done", "arguments", item.text);
    } else {
      TextEvent(item.kind == PartKind::kContent ? "response.output_text.done"
                                                : "response.reasoning_text.done",
                "text", item.text);
      PartEvent("response.content_part.done");
    }
    ItemEvent("response.output_item.done", status);
    if (its_.items_++ > 0) its_.output_.push_back(',');
    AppendItem(its_.output_, item, status);
  }

 private:
  void ItemEvent(std::string_view type, std::string_view status) {
    its_.AppendEvent(out_, type);
    out_.append(R"(,"output_index":)");
    AppendNumber(out_, its_.items_);
    out_.append(R"(,"item":)");
    AppendItem(out_, its_.item_, status);
    out_.append("}\n\n");
  }
  void BeginPart(std::string_view type) {
    its_.AppendEvent(out_, type);
    out_.append(R"(,"item_id":)");
    AppendQuoted(out_, its_.item_.id);
    out_.append(R"(,"output_index":)");
    AppendNumber(out_, its_.items_);
    if (its_.item_.kind != PartKind::kCallBegin) out_.append(R"(,"content_index":0)");
  }
  void PartEvent(std::string_view type) {
    BeginPart(type);
    out_.append(R"(,"part":)");
    AppendContentPart(out_, its_.item_);
    out_.append("}\n\n");
  }
  void TextEvent(std::string_view type, std::string_view member, std::string_view text) {
    BeginPart(type);
    out_.append(",\"").append(member).append("\":");
    AppendQuoted(out_, text);
    if (type == "response.function_call_arguments.done") {
      out_.append(R"(,"name":)");
      AppendQuoted(out_, its_.item_.name);
    }
    if (its_.item_.kind == PartKind::kContent) out_.append(R"(,"logprobs":[])");
    out_.append("}\n\n");
  }

  ItemEvents& its_;
  std::string& out_;
  int64_t before_;
};

int64_t ItemEvents::Begin(std::string& out, const Usage&) {
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    AppendEvent(out, type);
    out.append(R"(,"response":)");
    AppendResponse(out, head_, kInProgress, kNoDetails, {}, {});
    out.append("}\n\n");
  }
  return 2;
}

int64_t ItemEvents::Content(std::string& out, const ChoiceDelta& delta,
                            const std::optional<Usage>&) {
  Sink sink(*this, out);
  walk_.Take(delta, sink);
  return sink.count();
}

int64_t ItemEvents::Finish(std::string& out, const ChoiceEnd& end, const std::optional<Usage>&) {
  is_incomplete_ = IsCut(end);
  Sink sink(*this, out);
  walk_.End(sink);
  return sink.count();
}

int64_t ItemEvents::AppendLast(std::string& out, std::string_view status, std::string_view details,
                               const std::optional<Usage>& usage) {
  AppendEvent(out, std::string("response.").append(status));
  out.append(R"(,"response":)");
  AppendResponse(out, head_, status, details, output_, usage);
  out.append("}\n\n");
  return 1;
}

int64_t ItemEvents::End(std::string& out, const Usage& usage) {
  return is_incomplete_ ? AppendLast(out, kIncomplete, kMaxTokens, usage)
                        : AppendLast(out, kCompleted, kNoDetails, usage);
}

int64_t ItemEvents::Fail(std::string& out, const ApiError& error) {
  std::string details = R"("error":{"code":)";
  AppendQuotedAny(details, error.code.empty() ? "server_error" : error.code);
  details.append(R"(,"message":)");
  AppendQuotedAny(details, error.message);
  return AppendLast(out, "failed", details.append(R"(},"incomplete_details":null)"), {});
}

}  // namespace sluice::server
