// The events of one streamed response, in the form of its API: Begin with the head, then what comes
// of each choice (Front, Content, Finish), and End after the last; or Fail. Each appends events and
// gives their number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/api/api_error.h"
#include "server/api/response/choice_delta.h"
#include "server/api/response/stream_writer.h"

namespace sluice::server {

class EventWriter {
 public:
  virtual ~EventWriter() = default;

  virtual int64_t Begin(std::string&, const Usage&) { return 0; }
  virtual int64_t Front(std::string&, int32_t) { return 0; }
  virtual int64_t Content(std::string& out, const ChoiceDelta& delta,
                          const std::optional<Usage>& so_far) = 0;
  virtual int64_t Finish(std::string& out, const ChoiceEnd& end,
                         const std::optional<Usage>& so_far) = 0;
  virtual int64_t End(std::string& out, const Usage& usage) = 0;
  virtual int64_t Fail(std::string& out, const ApiError& error) = 0;
  // Keeps a connection open that has been silent. No event.
  virtual void KeepAlive(std::string& out) { StreamWriter::KeepAlive(out); }
};

std::unique_ptr<EventWriter> MakeEventWriter(const ResponseHead& head, bool includes_usage,
                                             const Tokenizer& tokenizer);

}  // namespace sluice::server
