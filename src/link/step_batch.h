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
    bool has_prompts = false;
    bool has_ends = false;
    for (const EngineOutput& output : outputs) {
      rows_.push_back({link_of(output.client), output.row});
      has_logprobs = has_logprobs || !output.row.logprobs.empty();
      has_prompts = has_prompts || !output.row.prompt.IsEmpty();
      has_ends = has_ends || output.row.end != GenerationEnd::kNone;
    }
    Own([](auto& row) -> auto& { return row.ids; }, ids_);
    if (has_logprobs) {
      Own([](auto& row) -> auto& { return row.logprobs; }, logprobs_);
      Own([](auto& row) -> auto& { return row.ranks; }, ranks_);
      Own([](auto& row) -> auto& { return row.logprob_ids; }, logprob_ids_);
      Own([](auto& row) -> auto& { return row.logprob_values; }, logprob_values_);
    }
    if (has_prompts) {
      Own([](auto& row) -> auto& { return row.prompt.logprobs; }, prompt_logprobs_);
      Own([](auto& row) -> auto& { return row.prompt.ranks; }, prompt_ranks_);
      Own([](auto& row) -> auto& { return row.prompt.ids; }, prompt_ids_);
      Own([](auto& row) -> auto& { return row.prompt.values; }, prompt_values_);
    }
    if (has_ends) {
      Own([](auto& row) -> auto& { return row.message; }, messages_);
      Own([](auto& row) -> auto& { return row.parameter; }, parameters_);
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
  template <typename ListOf, typename Store>
  void Own(ListOf list_of, Store& store) {
    store.clear();
    for (const Row& row : rows_) {
      store.insert(store.end(), list_of(row.row).begin(), list_of(row.row).end());
    }
    size_t begin = 0;
    for (Row& row : rows_) {
      auto& list = list_of(row.row);
      const size_t size = list.size();
      list = {store.data() + begin, size};
      begin += size;
    }
  }

  std::vector<Row> rows_;
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
  std::vector<int32_t> logprob_ids_;
  std::vector<float> logprob_values_;
  std::vector<float> prompt_logprobs_;
  std::vector<int32_t> prompt_ranks_;
  std::vector<int32_t> prompt_ids_;
  std::vector<float> prompt_values_;
  std::string messages_;
  std::string parameters_;
};

}  // namespace sluice::link
