// A table with one engine, whose rows a test makes up.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "link/frontend/request_table.h"
#include "tests/link/collected.h"
#include "tests/link/letters.h"

namespace sluice::test {

struct OneEngine {
  explicit OneEngine(const Tokenizer& tokenizer, StopAt stop_at = StopAt::kEngine,
                     int32_t slots = 8)
      : table(tokenizer, stop_at) {
    table.AddEngine();
    table.SetInfo(0, InfoOf(tokenizer, slots));
  }
  RequestId Add(ClientRequest request) {
    const OutputMode mode = request.mode;
    const RequestId id = table.Add(0, std::move(request));
    sent[id.value] = table.TakeRequest(id);
    got.Expect(id, mode);
    return id;
  }
  RequestAddress AddressOf(RequestId id) { return sent.at(id.value).address; }
  void Give(RequestId id, int64_t first, std::string_view letters,
            GenerationEnd end = GenerationEnd::kNone) {
    const std::vector<int32_t> ids = Ids(letters);
    table.Take(0, {.address = AddressOf(id), .first_token = first, .ids = ids, .end = end});
  }
  // What comes out now.
  size_t Collect() {
    table.Release();
    const std::span<const ClientOutput> outputs = table.Outputs();
    got.Add(outputs);
    const size_t count = outputs.size();
    table.Release();
    return count;
  }

  link::RequestTable table;
  std::map<uint64_t, EngineRequest> sent;
  Collectors got;
};

}  // namespace sluice::test
