// sluice.EngineClient: a client of engines with what Python needs around it.
//
// Outputs have owners: those of submit are poll's, those of generate and stream are the
// caller's. What comes for another owner meanwhile waits, joined into one output a request.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/engine/engine_parts.h"
#include "python/values/output.h"

namespace sluice::python {

namespace nb = nanobind;

// One call at a time: a call holds the client, and another one meanwhile (from a thread or from a
// handler of a signal) is an Error. Calls wait in slices, between which signals are looked at.
class PythonEngineClient {
 public:
  // `kept`: what the parts refer to.
  PythonEngineClient(EngineParts parts, nb::object kept);
  ~PythonEngineClient();
  PythonEngineClient(const PythonEngineClient&) = delete;

  // After it every call but Close is an Error. Requests end without an output.
  void Close();

  uint64_t Submit(nb::handle prompt, nb::handle params, nb::kwargs kwargs);
  void Abort(uint64_t id);
  nb::list Poll(nb::handle timeout);
  nb::object Generate(nb::handle prompt, nb::handle params, nb::kwargs kwargs);

  // A request for the caller of Next with it, to the last output; or Abandon.
  uint64_t SubmitOwned(nb::handle prompt, nb::handle params, nb::kwargs kwargs);
  std::optional<RequestOutput> Next(uint64_t id);
  // It is aborted by the next call, at the latest: now, unless another call goes on.
  void Abandon(uint64_t id) noexcept;

  // Runs body(parts) as the one call.
  template <typename Body>
  auto Call(Body&& body) {
    const Hold hold(*this);
    return body(Open());
  }

 private:
  enum class Owner : uint8_t { kPoll, kCaller };
  struct Live {
    OutputHead head;
    Owner owner = Owner::kPoll;
  };
  class Hold {
   public:
    explicit Hold(PythonEngineClient& client);
    ~Hold() { client_.is_held_ = false; }
    Hold(const Hold&) = delete;

   private:
    PythonEngineClient& client_;
  };
  using Time = std::chrono::steady_clock::time_point;

  EngineParts& Open();
  void Discard();  // the parts, without Python's lock
  uint64_t Add(nb::handle prompt, nb::handle params, nb::kwargs kwargs, Owner owner);
  uint64_t Add(ClientRequest request, Owner owner);
  // Takes what the client says, and waits for it, but not longer than a slice or `until`.
  void Receive(Time until);
  void Take(const ClientOutput& output);
  void AbortAbandoned();

  EngineParts parts_;
  nb::object kept_;
  std::unordered_map<uint64_t, Live> live_;   // without their last output, and not abandoned
  std::map<uint64_t, RequestOutput> polled_;  // by request
  std::map<uint64_t, RequestOutput> owned_;
  std::vector<uint64_t> abandoned_;
  bool is_held_ = false;  // changed and read under the GIL
};

}  // namespace sluice::python
