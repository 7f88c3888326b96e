// What a step gave, copied out of the engine, which goes on meanwhile. Used again, it takes no
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/engine.hpp"

namespace sluice::link {

// One frontend's time at a place of the link's table.
struct LinkId {
  int32_t place = -1;
  uint64_t serial = 0;

  friend bool operator==(const LinkId&, const LinkId&) = default;
};

class StepBatch {
 public:
  struct Row {
    LinkId link = {};
    OutputRow row = {};
  };
  struct Reset {
    LinkId link = {};
    std::string reason = {};
  };

  // link_of(ClientId) is whose row it is.
  template <typename LinkOf>
  void Take(std::span<const EngineOutput> outputs, LinkOf link_of) {
    rows_.clear();
    bool has_logprobs = false;
    bool has_ends = false;
    for (const EngineOutput& output : outputs) {
      rows_.push_back({link_of(output.client), output.row});
      has_logprobs = has_logprobs || !output.row.logprobs.empty();
      has_ends = has_ends || output.row.end != GenerationEnd::kNone;
    }
    Own(&OutputRow::ids, ids_);
    if (has_logprobs) {
      Own(&OutputRow::logprobs, logprobs_);
      Own(&OutputRow::ranks, ranks_);
      Own(&OutputRow::logprob_ids, logprob_ids_);
      Own(&OutputRow::logprob_values, logprob_values_);
    }
    if (has_ends) {
      Own(&OutputRow::message, messages_);
      Own(&OutputRow::parameter, parameters_);
    }
  }

  std::span<const Row> rows() const { return rows_; }

  int64_t step = 0;
  int64_t time_ns = 0;
  std::vector<Reset> resets;
  bool is_last = false;  // the engine ends, for this reason
  std::string reason;

 private:
  // Copies a list of every row behind those of the rows before, and points the row to the copy.
  template <typename List, typename Store>
  void Own(List OutputRow::* list, Store& store) {
    store.clear();
    for (const Row& row : rows_) {
      store.insert(store.end(), (row.row.*list).begin(), (row.row.*list).end());
    }
    size_t begin = 0;
    for (Row& row : rows_) {
      const size_t size = (row.row.*list).size();
      row.row.*list = List(store.data() + begin, size);
      begin += size;
    }
  }

  std::vector<Row> rows_;
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
  std::vector<int32_t> logprob_ids_;
  std::vector<float> logprob_values_;
  std::string messages_;
  std::string parameters_;
};

}  // namespace sluice::link
