// Answers of Anthropic's /v1/messages: whole, and as events.
//
//   message_start; of each block content_block_start, content_block_delta and content_block_stop;
//   message_delta with stop_reason and usage; message_stop
//   or error, which is the last
//
// Blocks are thinking, text and tool_use. Reasoning is not signed: its signature is one word.
#pragma once

#include <string>
#include <string_view>

#include "server/api/response/block_walk.h"
#include "server/api/response/event_writer.h"

namespace sluice::server {

class MessageEvents final : public EventWriter {
 public:
  explicit MessageEvents(const ResponseHead& head);

  int64_t Begin(std::string& out, const Usage& usage) override;
  int64_t Content(std::string& out, const ChoiceDelta& delta,
                  const std::optional<Usage>& so_far) override;
  int64_t Finish(std::string& out, const ChoiceEnd& end,
                 const std::optional<Usage>& so_far) override;
  int64_t End(std::string& out, const Usage& usage) override;
  int64_t Fail(std::string& out, const ApiError& error) override;
  void KeepAlive(std::string& out) override;

 private:
  class Sink;

  std::string message_;   // up to its content
  std::string end_ = {};  // stop_reason and stop_sequence, as members
  BlockWalk walk_ = {};
  int64_t index_ = -1;                  // of the block that is open, or of the last one
  PartKind kind_ = PartKind::kContent;  // its
};

std::string MessageBody(const ResponseHead& head, const ChoiceDelta& content, const ChoiceEnd& end,
                        const Usage& usage);
std::string CountBody(int64_t input_tokens);  // of /v1/messages/count_tokens

// {"type": "error", "error": {"type", "message", "param", "code"}, "request_id"}, the last three
// where they are known.
std::string MessageErrorBody(const ApiError& error, std::string_view request_id);

}  // namespace sluice::server
