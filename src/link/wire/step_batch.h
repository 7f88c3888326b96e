// The results of a step, copied out of the engine, which goes on meanwhile. Used again, it takes no
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/token_columns.h"
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
  // The fields that most rows have. A step writes them on one core and they are read on another, so
  // a row costs its cache lines: 40 bytes, where an EngineOutput has four times as many.
  struct Row {
    uint64_t serial = 0;  // of the link, as the place
    int32_t place = -1;
    int32_t full = -1;  // of a row that has more: its number among those
    RequestAddress address = {};
    int64_t first_token = 0;
    uint32_t first_id = 0;  // index of the first in the batch's
    uint32_t ids = 0;

    LinkId link() const { return {place, serial}; }
  };
  struct Reset {
    LinkId link = {};
    std::string reason = {};
  };

  // link_of(ClientId) is the link of the row's client.
  template <typename LinkOf>
  void Take(std::span<const EngineOutput> outputs, LinkOf link_of) {
    rows_.clear();
    full_.clear();
    ids_.clear();
    for (const EngineOutput& output : outputs) {
      const OutputRow& row = output.row;
      const LinkId link = link_of(output.client);
      const bool is_full = HasMore(row);
      rows_.push_back({.serial = link.serial,
                       .place = link.place,
                       .full = is_full ? static_cast<int32_t>(full_.size()) : -1,
                       .address = row.address,
                       .first_token = row.first_token,
                       .first_id = static_cast<uint32_t>(ids_.size()),
                       .ids = static_cast<uint32_t>(row.ids.size())});
      if (is_full) full_.push_back(row);
      ids_.insert(ids_.end(), row.ids.begin(), row.ids.end());
    }
    OwnLogprobs([](auto& row) -> auto& { return row; }, logprobs_);
    OwnLogprobs([](auto& row) -> auto& { return row.prompt; }, prompt_);
    Own([](auto& row) -> auto& { return row.message; }, messages_);
    Own([](auto& row) -> auto& { return row.parameter; }, parameters_);
    for (const Row& row : rows_) {
      if (row.full >= 0) full_[static_cast<size_t>(row.full)].ids = ids(row);
    }
  }

  std::span<const Row> rows() const { return rows_; }
  std::span<const int32_t> ids(const Row& row) const {
    return {ids_.data() + row.first_id, row.ids};
  }
  // For a row that has more than its own fields.
  const OutputRow& full(const Row& row) const { return full_[static_cast<size_t>(row.full)]; }
  // Any row.
  OutputRow Whole(const Row& row) const {
    if (row.full >= 0) return full(row);
    return {.address = row.address, .first_token = row.first_token, .ids = ids(row)};
  }

  // Whether all rows together fit into a frame of so many bytes.
  bool FitsInto(size_t bytes) const {
    const size_t numbers = rows_.size() * 8 + ids_.size() + logprobs_.numbers() + prompt_.numbers();
    return 5 * numbers + full_.size() * 64 + messages_.size() + parameters_.size() <= bytes;
  }

  int64_t step = 0;
  int64_t time_ns = 0;
  GrammarCounters grammars;   // of the engine, for the answers to
  std::vector<LinkId> pongs;  // PINGs that the step loop has come by
  std::vector<Reset> resets;
  bool is_last = false;  // the engine ends, for this reason
  std::string reason;

 private:
  static bool HasMore(const OutputRow& row) {
    return row.end != GenerationEnd::kNone || row.logprob_width != 0 || !row.logprobs.empty() ||
           !row.prompt.IsEmpty();
  }

  // Copies a list of every full row, one row after the other, and points the row to the copy.
  template <typename ListOf, typename Store>
  void Own(ListOf list_of, Store& store) {
    store.clear();
    for (const OutputRow& row : full_) {
      store.insert(store.end(), list_of(row).begin(), list_of(row).end());
    }
    size_t begin = 0;
    for (OutputRow& row : full_) {
      auto& list = list_of(row);
      const size_t size = list.size();
      list = {store.data() + begin, size};
      begin += size;
    }
  }

  template <typename PartOf>
  void OwnLogprobs(PartOf part_of, engine::LogprobColumns& columns) {
    columns.Clear();
    for (const OutputRow& row : full_) columns.Append(engine::LogprobsOf(part_of(row)));
    engine::LogprobCursor copies(columns);
    for (OutputRow& row : full_) {
      auto& part = part_of(row);
      engine::SetLogprobs(part, copies.Next(engine::LogprobsOf(part)));
    }
  }

  std::vector<Row> rows_;
  std::vector<OutputRow> full_;
  std::vector<int32_t> ids_;
  engine::LogprobColumns logprobs_;
  engine::LogprobColumns prompt_;
  std::string messages_;
  std::string parameters_;
};

}  // namespace sluice::link
