// A runner without a model that holds the Engine to the contract of StepRunner. It looks at a plan
// as late as a device may: when the step is awaited. Its tokens are a function of a request's
// prompt, seed, choice and of how many there were before.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/step_runner.hpp"

namespace sluice::test {

inline uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// What decides the tokens of a request.
struct TokenSource {
  std::vector<int32_t> prompt;
  uint64_t seed = 0;
  uint32_t choice = 0;
};

inline uint64_t TokenBits(const TokenSource& source, int64_t index) {
  uint64_t bits = Mix(source.seed + 0x9e3779b97f4a7c15 * (source.choice + 1));
  for (const int32_t id : source.prompt) bits = Mix(bits + static_cast<uint64_t>(id) + 1);
  return Mix(bits + static_cast<uint64_t>(index));
}

// What the prompt token of that place has, and the entries of its list.
inline float PromptLogprob(int64_t place) { return -static_cast<float>(place) / 8.0f; }
inline int32_t PromptRank(int32_t id) { return id + 1; }
inline int32_t PromptEntry(int32_t id, int32_t entry, int64_t vocab) {
  return static_cast<int32_t>((id + entry) % vocab);
}

struct CheckingOptions {
  RunnerInfo info = {.vocab = 100,
                     .context = 64,
                     .max_requests = 4,
                     .max_step_tokens = 16,
                     .page_tokens = 4,
                     .pages = 64,
                     .max_logprobs = 5};
  // The token with this number; a negative id has a status.
  std::function<TokenResult(const TokenSource&, int64_t index)> token = {};
  // Not empty: the row fails.
  std::function<std::string(const TokenSource&, int64_t index)> failure = {};
  ErrorCode failure_code = ErrorCode::kUnavailable;
  bool fails_to_begin = false;  // a request with a failure never has a cache
  // Of a row that scores a prompt.
  std::function<void(StepRowResult& row)> spoil = {};
  std::function<void(int64_t step)> before_launch = {};
  std::function<void(int64_t step)> before_await = {};
};

class CheckingRunner final : public StepRunner {
 public:
  explicit CheckingRunner(CheckingOptions options)
      : options_(std::move(options)), slots_(static_cast<size_t>(options_.info.max_requests)) {}

  const RunnerInfo& info() const override { return options_.info; }

  void Launch(const StepPlan& plan) override {
    if (options_.before_launch) options_.before_launch(launched_);
    ++launched_;
    on_their_way_.push_back(plan);
    EXPECT_LE(on_their_way_.size(), 2u);
    most_on_their_way = std::max(most_on_their_way, on_their_way_.size());
  }

  const StepResults& Await() override {
    if (options_.before_await) options_.before_await(awaited_);
    ++awaited_;
    EXPECT_FALSE(on_their_way_.empty()) << "nothing to wait for";
    // Whoever still reads the last results reads these.
    for (std::vector<TokenResult>& tokens : tokens_)
      std::ranges::fill(tokens, TokenResult{.id = 7});
    for (std::string& failure : failures_) std::ranges::fill(failure, '?');
    for (std::vector<float>& values : prompt_logprobs_) std::ranges::fill(values, 1.0f);
    for (std::vector<int32_t>& ids : prompt_ids_) std::ranges::fill(ids, 7);
    const StepPlan plan = on_their_way_.front();
    on_their_way_.pop_front();
    Run(plan);
    return results_;
  }

  int64_t taken_slots() const {
    return std::ranges::count_if(slots_, [](const auto& slot) { return slot.has_value(); });
  }
  size_t on_their_way() const { return on_their_way_.size(); }
  int64_t most_rows = 0;  // of a step
  int64_t longest_chunk = 0;
  int64_t most_prompt_entries = 0;
  int64_t scored = 0;  // tokens of prompts
  int64_t begun = 0;
  int64_t preempted = 0;
  int64_t shared_tokens = 0;
  int64_t trimmed = 0;
  int64_t preempted_in_vain = 0;  // of these, that had drawn nothing since they began or went on
  size_t most_on_their_way = 0;

 private:
  // One of the cache's pages. Several requests and prefixes may own it; it counts once.
  class CountedPage {
   public:
    explicit CountedPage(int64_t& count) : count_(count) { ++count_; }
    CountedPage(const CountedPage&) = delete;
    CountedPage& operator=(const CountedPage&) = delete;
    ~CountedPage() { --count_; }

   private:
    int64_t& count_;
  };
  using Page = std::shared_ptr<CountedPage>;
  struct Prefix {
    std::vector<int32_t> tokens;
    std::vector<Page> pages;
  };
  struct Slot {
    TokenSource source;
    int64_t max_tokens = 0;
    std::optional<int32_t> logprobs;
    int32_t prompt_logprob_width = 0;
    int64_t scored = 1;            // up to that place of the prompt
    std::vector<int32_t> tokens;   // prompt and what was drawn
    std::vector<int32_t> cache;    // what the model has read
    std::vector<Page> pages = {};  // of the cache
    size_t last_drawn = 0;
    bool has_drawn = false;  // since its cache was empty
    bool has_failed = false;
    bool has_status = false;
    bool has_row = false;  // in this step

    int64_t drawn() const { return std::ssize(tokens) - std::ssize(source.prompt); }
  };

  std::optional<Slot>& At(int32_t slot) { return slots_.at(static_cast<size_t>(slot)); }

  size_t PagesOf(size_t tokens) const {
    const auto size = static_cast<size_t>(options_.info.page_tokens);
    return (tokens + size - 1) / size;
  }

  void Keep(const KeptPrefix& kept, const StepPlan& plan) {
    ASSERT_TRUE(At(kept.slot).has_value());
    EXPECT_TRUE(std::ranges::find(plan.ended, kept.slot) != plan.ended.end());
    EXPECT_GE(kept.prefix, 0);
    EXPECT_LT(kept.prefix, options_.info.max_prefixes);
    EXPECT_FALSE(prefixes_.contains(kept.prefix)) << "a taken place";
    const Slot& slot = *At(kept.slot);
    const auto tokens = static_cast<size_t>(kept.tokens);
    EXPECT_GT(tokens, 0u);
    EXPECT_EQ(kept.tokens % options_.info.page_tokens, 0);
    ASSERT_LE(tokens, slot.cache.size());
    prefixes_[kept.prefix] = {
        {slot.cache.begin(), slot.cache.begin() + kept.tokens},
        {slot.pages.begin(), slot.pages.begin() + static_cast<ptrdiff_t>(PagesOf(tokens))}};
  }

  void Share(const SharedPrefix& shared) {
    ASSERT_TRUE(At(shared.slot).has_value());
    ASSERT_TRUE(prefixes_.contains(shared.prefix));
    const Prefix& prefix = prefixes_[shared.prefix];
    Slot& slot = *At(shared.slot);
    EXPECT_TRUE(slot.cache.empty());
    EXPECT_EQ(slot.prompt_logprob_width, 0) << "tokens that are scored are read";
    const auto tokens = static_cast<size_t>(shared.tokens);
    ASSERT_LE(tokens, prefix.tokens.size());
    ASSERT_LT(tokens, slot.tokens.size());
    EXPECT_EQ(shared.tokens % options_.info.page_tokens, 0);
    shared_tokens += shared.tokens;
    if (slot.has_failed) return;
    slot.cache.assign(prefix.tokens.begin(), prefix.tokens.begin() + shared.tokens);
    slot.pages.assign(prefix.pages.begin(),
                      prefix.pages.begin() + static_cast<ptrdiff_t>(PagesOf(tokens)));
    EXPECT_TRUE(std::ranges::equal(slot.cache, std::span(slot.tokens).first(tokens)));
  }

  void Trim(const TrimmedPrefix& trim) {
    ASSERT_TRUE(prefixes_.contains(trim.prefix));
    Prefix& prefix = prefixes_[trim.prefix];
    ASSERT_LT(static_cast<size_t>(trim.tokens), prefix.tokens.size());
    EXPECT_EQ(trim.tokens % options_.info.page_tokens, 0);
    ++trimmed;
    prefix.tokens.resize(static_cast<size_t>(trim.tokens));
    prefix.pages.resize(PagesOf(prefix.tokens.size()));
    if (trim.tokens == 0) prefixes_.erase(trim.prefix);
  }

  void CheckPages() {
    for (auto& slot : slots_) {
      if (!slot.has_value()) continue;
      while (slot->pages.size() < PagesOf(slot->cache.size())) {
        slot->pages.push_back(std::make_shared<CountedPage>(pages_));
      }
    }
    EXPECT_LE(pages_, options_.info.pages);
  }

  void Run(const StepPlan& plan) {
    for (const KeptPrefix& kept : plan.kept) Keep(kept, plan);
    for (const int32_t slot : plan.ended) {
      EXPECT_TRUE(At(slot).has_value()) << "a free slot ended: " << slot;
      At(slot).reset();
    }
    for (const int32_t slot : plan.preempted) {
      ASSERT_TRUE(At(slot).has_value());
      EXPECT_TRUE(At(slot)->has_failed || !At(slot)->cache.empty()) << "nothing to give back";
      At(slot)->cache.clear();
      At(slot)->pages.clear();
      ++preempted;
      if (!At(slot)->has_drawn && !At(slot)->has_failed) ++preempted_in_vain;
      At(slot)->has_drawn = false;
    }
    for (const RunnerRequest& request : plan.begun) {
      EXPECT_FALSE(At(request.slot).has_value()) << "a taken slot began: " << request.slot;
      ASSERT_TRUE(request.params->seed.has_value());
      EXPECT_FALSE(request.prompt.empty());
      ++begun;
      const std::vector<int32_t> prompt(request.prompt.begin(), request.prompt.end());
      At(request.slot) = Slot{.source = {prompt, *request.params->seed, request.choice},
                              .max_tokens = request.max_tokens,
                              .logprobs = request.params->logprobs,
                              .prompt_logprob_width = request.prompt_logprob_width,
                              .tokens = prompt,
                              .cache = {}};
      Slot& slot = *At(request.slot);
      slot.has_failed = options_.fails_to_begin && !options_.failure(slot.source, 0).empty();
    }
    for (const SharedPrefix& shared : plan.shared) Share(shared);
    for (const TrimmedPrefix& trim : plan.trimmed) Trim(trim);
    rows_.clear();
    tokens_.resize(plan.rows.size());
    failures_.resize(plan.rows.size());
    logprob_ids_.resize(plan.rows.size());
    logprob_values_.resize(plan.rows.size());
    prompt_logprobs_.resize(plan.rows.size());
    prompt_ranks_.resize(plan.rows.size());
    prompt_ids_.resize(plan.rows.size());
    prompt_values_.resize(plan.rows.size());
    prompt_entries_ = 0;
    int64_t inputs = 0;
    for (auto& slot : slots_) {
      if (slot.has_value()) slot->has_row = false;
    }
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      inputs += std::max<int64_t>(1, std::ssize(plan.rows[i].tokens));
      longest_chunk = std::max(longest_chunk, std::ssize(plan.rows[i].tokens));
      RunRow(plan.rows[i], i);
    }
    EXPECT_LE(inputs, options_.info.max_step_tokens);
    const int64_t listed =
        options_.info.max_logprobs < 0 ? options_.info.vocab : options_.info.max_logprobs;
    EXPECT_LE(prompt_entries_, std::max(kUsualPromptEntries, 1 + listed));
    most_prompt_entries = std::max(most_prompt_entries, prompt_entries_);
    most_rows = std::max(most_rows, std::ssize(plan.rows));
    CheckPages();
    results_.rows = rows_;
  }

  void RunRow(const StepRow& row, size_t i) {
    tokens_[i].clear();
    rows_.emplace_back();
    ASSERT_TRUE(At(row.slot).has_value()) << "a row of a free slot: " << row.slot;
    Slot& slot = *At(row.slot);
    EXPECT_FALSE(slot.has_row) << "a second row";
    slot.has_row = true;
    Feed(row, slot);
    // Where a step gives several tokens, it is not known beforehand which of them is the last. One
    // that would not fit is not read all the same.
    const int64_t surplus = options_.info.max_given_tokens - 1;
    const int64_t context = options_.info.context;
    EXPECT_LE(std::ssize(slot.cache), std::min(context, context - 1 + surplus));
    if (row.samples) {
      EXPECT_LT(slot.drawn(), slot.max_tokens + surplus) << "known to be one too many";
    }
    if (options_.failure) failures_[i] = options_.failure(slot.source, slot.drawn());
    slot.has_failed |= !failures_[i].empty();
    if (slot.has_failed) {
      if (failures_[i].empty()) failures_[i] = "has failed before";
      rows_.back().failure = failures_[i];
      rows_.back().failure_code = options_.failure_code;
      return;
    }
    failures_[i].clear();
    Score(row, slot, i);
    if (!row.samples) return;
    slot.has_drawn = true;
    if (slot.has_status) {
      tokens_[i].push_back({.status = RowStatus::kNanInput});
    } else {
      Draw(slot, tokens_[i]);
    }
    rows_.back().tokens = tokens_[i];
    AddLists(slot, i);
  }

  // What the model reads must be what follows in the request's own tokens.
  void Feed(const StepRow& row, Slot& slot) {
    if (slot.has_failed || slot.has_status) return;
    if (row.tokens.empty()) {
      EXPECT_TRUE(row.samples);
      EXPECT_GT(slot.last_drawn, 0u) << "goes on from nothing";
      EXPECT_EQ(slot.cache.size() + slot.last_drawn, slot.tokens.size());
      slot.cache = slot.tokens;
      return;
    }
    const size_t begin = slot.cache.size();
    ASSERT_LE(begin + row.tokens.size(), slot.tokens.size());
    EXPECT_TRUE(
        std::ranges::equal(row.tokens, std::span(slot.tokens).subspan(begin, row.tokens.size())));
    slot.cache.insert(slot.cache.end(), row.tokens.begin(), row.tokens.end());
    const bool is_whole = slot.cache.size() == slot.tokens.size();
    EXPECT_EQ(row.samples, is_whole && slot.max_tokens > 0);
    EXPECT_FALSE(is_whole && slot.max_tokens == 0) << "a last token that nobody needs";
  }

  // Every token of the prompt once, in its order, as soon as the ones before it have been read.
  void Score(const StepRow& row, Slot& slot, size_t i) {
    if (slot.has_status) return;
    const int64_t end = std::min(std::ssize(slot.cache) + 1, std::ssize(slot.source.prompt));
    const int64_t due = slot.prompt_logprob_width > 0 ? std::max(end - slot.scored, int64_t{0}) : 0;
    EXPECT_EQ(row.scored, due);
    if (row.scored == 0) return;
    EXPECT_EQ(row.first_scored, slot.scored);
    slot.scored += row.scored;
    scored += row.scored;
    prompt_entries_ += row.scored * slot.prompt_logprob_width;
    prompt_logprobs_[i].clear();
    prompt_ranks_[i].clear();
    prompt_ids_[i].clear();
    prompt_values_[i].clear();
    for (int64_t place = row.first_scored; place < slot.scored; ++place) {
      const int32_t id = slot.source.prompt.at(static_cast<size_t>(place));
      prompt_logprobs_[i].push_back(PromptLogprob(place));
      prompt_ranks_[i].push_back(PromptRank(id));
      for (int32_t entry = 0; entry < slot.prompt_logprob_width; ++entry) {
        prompt_ids_[i].push_back(PromptEntry(id, entry, options_.info.vocab));
        prompt_values_[i].push_back(PromptLogprob(place) - static_cast<float>(entry));
      }
    }
    rows_.back().prompt = {.first_token = row.first_scored,
                           .logprobs = prompt_logprobs_[i],
                           .ranks = prompt_ranks_[i],
                           .width = slot.prompt_logprob_width,
                           .ids = prompt_ids_[i],
                           .values = prompt_values_[i]};
    if (options_.spoil) options_.spoil(rows_.back());
  }

  void Draw(Slot& slot, std::vector<TokenResult>& tokens) {
    const auto most = static_cast<uint64_t>(options_.info.max_given_tokens);
    const uint64_t count = 1 + Mix(TokenBits(slot.source, slot.drawn())) % most;
    slot.last_drawn = 0;
    for (uint64_t n = 0; n < count; ++n) {
      const int64_t index = slot.drawn();
      const TokenResult token = TokenOf(slot.source, index);
      tokens.push_back(token);
      slot.has_status = token.id < 0;
      if (slot.has_status) return;
      tokens.back().logprob = -static_cast<float>(index);
      tokens.back().rank = static_cast<int32_t>(index) + 1;
      slot.tokens.push_back(token.id);
      ++slot.last_drawn;
    }
  }

  void AddLists(const Slot& slot, size_t i) {
    if (!slot.logprobs.has_value()) return;
    const int32_t width = 1 + *slot.logprobs;
    logprob_ids_[i].clear();
    logprob_values_[i].clear();
    for (const TokenResult& token : tokens_[i]) {
      for (int32_t entry = 0; entry < width; ++entry) {
        logprob_ids_[i].push_back(token.id + entry);
        logprob_values_[i].push_back(token.logprob - static_cast<float>(entry));
      }
    }
    rows_.back().logprob_width = width;
    rows_.back().logprob_ids = logprob_ids_[i];
    rows_.back().logprob_values = logprob_values_[i];
  }

  TokenResult TokenOf(const TokenSource& source, int64_t index) const {
    if (options_.token) return options_.token(source, index);
    const auto vocab = static_cast<uint64_t>(options_.info.vocab);
    return {.id = static_cast<int32_t>(TokenBits(source, index) % vocab)};
  }

  CheckingOptions options_;
  int64_t pages_ = 0;  // that have an owner: before them, since they count themselves
  std::vector<std::optional<Slot>> slots_;
  std::map<int32_t, Prefix> prefixes_;
  std::deque<StepPlan> on_their_way_;
  int64_t launched_ = 0;
  int64_t awaited_ = 0;
  std::vector<std::vector<TokenResult>> tokens_;
  std::vector<std::vector<int32_t>> logprob_ids_;
  std::vector<std::vector<float>> logprob_values_;
  std::vector<std::vector<float>> prompt_logprobs_;
  std::vector<std::vector<int32_t>> prompt_ranks_;
  std::vector<std::vector<int32_t>> prompt_ids_;
  std::vector<std::vector<float>> prompt_values_;
  int64_t prompt_entries_ = 0;  // of the step
  std::vector<std::string> failures_;
  std::vector<StepRowResult> rows_;
  StepResults results_;
};

}  // namespace sluice::test
