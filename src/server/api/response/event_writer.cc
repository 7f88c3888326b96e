#include "server/api/response/event_writer.h"

#include "server/api/response/item_events.h"
#include "server/api/response/message_events.h"

namespace sluice::server {
namespace {

// Of completions and chats.
class ChunkEvents final : public EventWriter {
 public:
  ChunkEvents(const ResponseHead& head, bool includes_usage, const Tokenizer& tokenizer)
      : writer_(head, includes_usage, tokenizer),
        has_roles_(head.api == Api::kChat),
        includes_usage_(includes_usage) {}

  int64_t Front(std::string& out, int32_t index) override {
    if (!has_roles_) return 0;
    writer_.Role(out, index);
    return 1;
  }
  int64_t Content(std::string& out, const ChoiceDelta& delta,
                  const std::optional<Usage>& so_far) override {
    writer_.Content(out, delta, so_far);
    return 1;
  }
  int64_t Finish(std::string& out, const ChoiceEnd& end,
                 const std::optional<Usage>& so_far) override {
    writer_.Finish(out, end, so_far);
    return 1;
  }
  int64_t End(std::string& out, const Usage& usage) override {
    if (includes_usage_) writer_.UsageEvent(out, usage);
    StreamWriter::Done(out);
    return includes_usage_ ? 2 : 1;
  }
  int64_t Fail(std::string& out, const ApiError& error) override {
    StreamWriter::Error(out, error);
    StreamWriter::Done(out);
    return 2;
  }

 private:
  StreamWriter writer_;
  bool has_roles_;
  bool includes_usage_;
};

}  // namespace

std::unique_ptr<EventWriter> MakeEventWriter(const ResponseHead& head, bool includes_usage,
                                             const Tokenizer& tokenizer) {
  if (head.api == Api::kMessages) return std::make_unique<MessageEvents>(head);
  if (head.api == Api::kResponses) return std::make_unique<ItemEvents>(head);
  return std::make_unique<ChunkEvents>(head, includes_usage, tokenizer);
}

}  // namespace sluice::server
