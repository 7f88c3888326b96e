// Log-probabilities of tokens with memory of their own: one column each for their values, ranks and
// lists. OutputRow, StepRowResult, ClientOutput and PromptLogprobs point into such columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/prompt_logprobs.hpp"

namespace sluice::engine {

// Some tokens' columns in memory of another.
struct LogprobView {
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};
  int32_t width = 0;  // entries of a token's list
  std::span<const int32_t> ids = {};
  std::span<const float> values = {};
};

inline LogprobView LogprobsOf(const PromptLogprobs& prompt) {
  return {prompt.logprobs, prompt.ranks, prompt.width, prompt.ids, prompt.values};
}
inline void SetLogprobs(PromptLogprobs& prompt, const LogprobView& view) {
  prompt.logprobs = view.logprobs;
  prompt.ranks = view.ranks;
  prompt.width = view.width;
  prompt.ids = view.ids;
  prompt.values = view.values;
}

// Row: OutputRow or ClientOutput.
template <typename Row>
LogprobView LogprobsOf(const Row& row) {
  return {row.logprobs, row.ranks, row.logprob_width, row.logprob_ids, row.logprob_values};
}
template <typename Row>
void SetLogprobs(Row& row, const LogprobView& view) {
  row.logprobs = view.logprobs;
  row.ranks = view.ranks;
  row.logprob_width = view.width;
  row.logprob_ids = view.ids;
  row.logprob_values = view.values;
}

template <typename T>
void AppendTo(std::vector<T>& column, std::span<const T> more) {
  column.insert(column.end(), more.begin(), more.end());
}
template <typename T>
void DropFirstOf(std::vector<T>& column, size_t count) {
  column.erase(column.begin(),
               column.begin() + static_cast<ptrdiff_t>(std::min(count, column.size())));
}

class LogprobColumns {
 public:
  void Reserve(size_t tokens, size_t entries) {
    logprobs.reserve(tokens);
    ranks.reserve(tokens);
    ids.reserve(entries);
    values.reserve(entries);
  }
  // Keeps the memory.
  void Clear() {
    logprobs.clear();
    ranks.clear();
    ids.clear();
    values.clear();
    width = 0;
  }
  // `width` becomes that of the view. Parts need one width for all, Cursor does not.
  void Append(const LogprobView& more) {
    AppendTo(logprobs, more.logprobs);
    AppendTo(ranks, more.ranks);
    AppendTo(ids, more.ids);
    AppendTo(values, more.values);
    width = more.width;
  }
  void DropFirst(size_t tokens) {
    DropFirstOf(logprobs, tokens);
    DropFirstOf(ranks, tokens);
    DropFirstOf(ids, tokens * static_cast<size_t>(width));
    DropFirstOf(values, tokens * static_cast<size_t>(width));
  }

  LogprobView View() const { return {logprobs, ranks, width, ids, values}; }
  // Of a column that has less, what it has.
  LogprobView Part(size_t first, size_t tokens) const {
    const auto lists = static_cast<size_t>(width);
    return {PartOf(logprobs, first, tokens), PartOf(ranks, first, tokens), width,
            PartOf(ids, first * lists, tokens * lists),
            PartOf(values, first * lists, tokens * lists)};
  }
  size_t numbers() const { return logprobs.size() + ranks.size() + ids.size() + values.size(); }

  friend bool operator==(const LogprobColumns&, const LogprobColumns&) = default;

  std::vector<float> logprobs = {};
  std::vector<int32_t> ranks = {};
  int32_t width = 0;
  std::vector<int32_t> ids = {};
  std::vector<float> values = {};

 private:
  template <typename T>
  static std::span<const T> PartOf(const std::vector<T>& column, size_t first, size_t count) {
    const size_t begin = std::min(first, column.size());
    return std::span(column).subspan(begin, std::min(count, column.size() - begin));
  }
};

// Reads columns in the order in which they were appended.
class LogprobCursor {
 public:
  explicit LogprobCursor(const LogprobColumns& columns) : columns_(columns) {}

  // The copy of `original`, which may point to memory that is gone: only its sizes are read.
  LogprobView Next(const LogprobView& original) {
    return {Take(columns_.logprobs, logprob_, original.logprobs.size()),
            Take(columns_.ranks, rank_, original.ranks.size()), original.width,
            Take(columns_.ids, id_, original.ids.size()),
            Take(columns_.values, value_, original.values.size())};
  }

 private:
  template <typename T>
  static std::span<const T> Take(const std::vector<T>& column, size_t& begin, size_t count) {
    const std::span<const T> part = std::span(column).subspan(begin, count);
    begin += count;
    return part;
  }

  const LogprobColumns& columns_;
  size_t logprob_ = 0;
  size_t rank_ = 0;
  size_t id_ = 0;
  size_t value_ = 0;
};

// Ids, and their log-probabilities where they were requested. Row: OutputRow or ClientOutput.
struct TokenColumns {
  void Clear() {
    ids.clear();
    scores.Clear();
  }
  template <typename Row>
  void Append(const Row& row) {
    if (row.ids.empty()) return;
    AppendTo(ids, row.ids);
    scores.Append(LogprobsOf(row));
  }
  void Append(const TokenColumns& more) {
    if (more.ids.empty()) return;
    AppendTo<int32_t>(ids, more.ids);
    scores.Append(more.scores.View());
  }
  void DropFirst(size_t tokens) {
    DropFirstOf(ids, tokens);
    scores.DropFirst(tokens);
  }
  // Row::ids and its log-probabilities become those of some tokens.
  template <typename Row>
  void SetPart(Row& row, size_t first, size_t tokens) const {
    row.ids = std::span(ids).subspan(first, tokens);
    SetLogprobs(row, scores.Part(first, tokens));
  }

  friend bool operator==(const TokenColumns&, const TokenColumns&) = default;

  std::vector<int32_t> ids = {};
  LogprobColumns scores = {};
};

}  // namespace sluice::engine
