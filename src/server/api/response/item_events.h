// Answers of OpenAI's /v1/responses: whole, and as events with a sequence_number each.
//
//   response.created, response.in_progress
//   of each item response.output_item.added, what comes of it, response.output_item.done:
//     message        response.content_part.added, .output_text.delta, .output_text.done,
//                    response.content_part.done
//     reasoning      these parts with response.reasoning_text.delta and .done
//     function_call  response.function_call_arguments.delta and .done
//   response.completed, .incomplete where the output came to its last token, or .failed
//
// A response repeats what its request had (CompletionRequest::echo_members).
#pragma once

#include <string>
#include <string_view>

#include "server/api/response/block_walk.h"
#include "server/api/response/event_writer.h"

namespace sluice::server {

// One item of an output.
struct OutputItem {
  PartKind kind = PartKind::kContent;
  std::string id = {};
  std::string name = {};     // of a call, with
  std::string call_id = {};  // the id that its output names
  std::string text = {};     // or arguments
};

class ItemEvents final : public EventWriter {
 public:
  explicit ItemEvents(const ResponseHead& head) : head_(head) {}

  int64_t Begin(std::string& out, const Usage& usage) override;
  int64_t Content(std::string& out, const ChoiceDelta& delta,
                  const std::optional<Usage>& so_far) override;
  int64_t Finish(std::string& out, const ChoiceEnd& end,
                 const std::optional<Usage>& so_far) override;
  int64_t End(std::string& out, const Usage& usage) override;
  int64_t Fail(std::string& out, const ApiError& error) override;

 private:
  class Sink;

  void AppendEvent(std::string& out, std::string_view type);
  int64_t AppendLast(std::string& out, std::string_view status, std::string_view details,
                     const std::optional<Usage>& usage);

  ResponseHead head_;
  BlockWalk walk_ = {};
  OutputItem item_ = {};        // that is open
  int64_t items_ = 0;           // that are not
  std::string output_ = {};     // these, as JSON
  bool is_incomplete_ = false;  // the output came to its last token
  int64_t sequence_ = 0;
};

std::string ResponseBody(const ResponseHead& head, const ChoiceDelta& content, const ChoiceEnd& end,
                         const Usage& usage);

}  // namespace sluice::server
