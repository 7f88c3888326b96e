// A Sampler and a DeviceSampler that are told the same, step by step: random requests join, leave,
// are rolled back and go on, with drafts in chains and trees, bitmasks and forced tokens; with a
// head in the graph, with processors, and with answers that are read late or never, if that is
// asked for.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "sluice/cuda/sampler.hpp"
#include "tests/sampler/certified/identity_head.h"
#include "tests/sampler/device/test_processors.h"
#include "tests/sampler/stepping.h"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {

// Of a step on a device and on the host, with lists of `width` entries where there are some.
inline void ExpectSame(const cuda::DeviceStepResult& actual, const Stepped& expected,
                       int64_t width) {
  std::vector<int32_t> ids;
  std::vector<RowStatus> statuses;
  std::vector<Cut> cuts;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  for (const TokenResult& token : expected.tokens) {
    ids.push_back(token.id);
    statuses.push_back(token.status);
    cuts.push_back(token.cut);
    logprobs.push_back(token.logprob);
    ranks.push_back(token.rank);
  }
  ASSERT_TRUE(SameSequence(actual.ids, ids));
  ASSERT_TRUE(SameSequence(actual.statuses, statuses));
  ASSERT_TRUE(SameSequence(actual.emitted, expected.emitted));
  if (!actual.cuts.empty()) {
    ASSERT_TRUE(SameSequence(actual.cuts, cuts));
  }
  if (!actual.logprobs.empty()) {
    ASSERT_TRUE(SameSequence(actual.logprobs, logprobs));
    ASSERT_TRUE(SameSequence(actual.ranks, ranks));
  }
  if (actual.width > 0) {
    ASSERT_EQ(actual.width, width);
    ASSERT_TRUE(SameSequence(actual.list_ids, expected.ids));
    ASSERT_TRUE(SameSequence(actual.list_values, expected.values));
  }
}

struct MixOptions {
  int64_t vocab = 40;  // at least max_logprobs
  DType dtype = DType::kF32;
  int32_t max_requests = 8;
  int32_t max_drafts = 3;
  int32_t max_tokens = 48;
  int32_t max_logprobs = 5;
  bool cuts = false;
  bool only_match = false;
  bool logprobs = true;
  bool kept = false;  // and masses
  bool processors = false;
  bool head = false;   // computes the logits in the graph
  int32_t unread = 0;  // how many answers are read later, fewer than kStepsKept; some of them never
  double trees = 0.5;  // of the requests with drafts
};

class Mix {
 public:
  Mix(const MixOptions& options, uint64_t seed)
      : options_(options),
        random_(seed),
        host_({.vocab = options.vocab, .max_requests = options.max_requests}),
        device_({.vocab = options.vocab,
                 .max_requests = options.max_requests,
                 .max_drafts = options.max_drafts,
                 .max_tokens = options.max_tokens,
                 .max_listed_ids = 32,
                 .max_logprobs = options.max_logprobs,
                 .cuts = options.cuts,
                 .kept = options.kept,
                 .masses = options.kept,
                 .max_processed_rows =
                     options.processors ? options.max_requests * (1 + options.max_drafts) : 0}),
        logits_(MostRows() * static_cast<size_t>(options.vocab + 8) * 4 + 64),
        probabilities_(MostRows() * static_cast<size_t>(options.vocab)),
        models_(MostRows() * static_cast<size_t>(options.vocab + 8) * 4) {
    if (options.head) head_.emplace(options.vocab, options.dtype, MostRows());
  }

  // One step of both, and the same answers.
  void Step() {
    JoinAndLeave();
    std::vector<size_t> chosen;
    for (size_t i = 0; i < live_.size(); ++i) {
      if (random_.Coin(0.8)) chosen.push_back(i);
    }
    for (size_t i = chosen.size(); i > 1; --i) {
      std::swap(chosen[i - 1], chosen[static_cast<size_t>(random_.Below(static_cast<int64_t>(i)))]);
    }
    if (chosen.empty()) return;

    std::vector<std::vector<float>> rows;
    std::vector<std::vector<int32_t>> drafts(chosen.size());
    std::vector<std::vector<int32_t>> parents(chosen.size());
    std::vector<std::vector<int32_t>> bitmasks(chosen.size());
    std::vector<std::vector<float>> probabilities(chosen.size());
    std::vector<StepRequest> for_host(chosen.size());
    std::vector<StepRequest> for_device(chosen.size());
    std::vector<DraftModel> models(chosen.size());
    size_t first_probability = 0;
    size_t first_model = 0;
    bool has_trees = false;
    for (size_t c = 0; c < chosen.size(); ++c) {
      const Live& live = live_[chosen[c]];
      const int64_t room = options_.max_tokens - MostLength(live) - 1;
      const int64_t most = std::min<int64_t>(options_.max_drafts, room);
      if (most > 0 && random_.Coin(0.4)) {
        for (int64_t n = random_.Between(1, most); n > 0; --n) drafts[c].push_back(Id());
      }
      const int64_t count = static_cast<int64_t>(drafts[c].size());
      if (count > 0 && random_.Coin(options_.trees)) parents[c] = RandomParents(count, random_);
      has_trees = has_trees || !parents[c].empty();
      for (int64_t d = 0; d <= count; ++d)
        rows.push_back(Row(DraftsBehind(drafts[c], parents[c], d)));
      if (random_.Coin(0.3)) bitmasks[c] = Bitmask(count + 1);
      const int32_t forced = random_.Coin(0.1) ? Id() : -1;
      for_host[c] = {.request = live.host,
                     .drafts = drafts[c],
                     .parents = parents[c],
                     .bitmask = bitmasks[c],
                     .forced = forced};
      for_device[c] = for_host[c];
      for_device[c].request = live.device;
      if (count > 0 && random_.Coin(0.5)) {
        for (int64_t i = 0; i < count * options_.vocab; ++i) {
          probabilities[c].push_back(static_cast<float>(random_.Uniform() * random_.Uniform()));
        }
        if (random_.Coin(0.05)) random_.Pick(probabilities[c]) = 1.5f;
        MatrixView view{probabilities[c].data(), count,       options_.vocab,
                        options_.vocab,          DType::kF32, {}};
        for_host[c].draft_probabilities = view;
        float* there = probabilities_.data() + first_probability;
        Require(cudaMemcpy(there, view.data, probabilities[c].size() * sizeof(float),
                           cudaMemcpyHostToDevice));
        view.data = there;
        view.device = {DeviceKind::kCuda, 0};
        for_device[c].draft_probabilities = view;
        first_probability += probabilities[c].size();
      } else if (count > 0 && random_.Coin(0.6)) {
        models[c] = DraftModel(rows, count, options_.vocab, random_);
        for_host[c].draft_model = models[c].Input();
        for_host[c].draft_cuts = models[c].cuts;
        for_device[c].draft_model = for_host[c].draft_model;
        for_device[c].draft_cuts = models[c].cuts;
        const auto bytes = models[c].batch->row_bytes();
        std::byte* there = models_.data() + first_model;
        Require(cudaMemcpy(there, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
        for_device[c].draft_model.logits.data = there;
        for_device[c].draft_model.logits.device = {DeviceKind::kCuda, 0};
        first_model += (bytes.size() + 15) / 16 * 16;
      }
    }
    Unread unread{.call = ++calls_, .has_trees = has_trees};
    for (size_t c = 0; c < chosen.size(); ++c) {
      unread.members.push_back({for_device[c].request, 1 + std::ssize(drafts[c])});
    }
    const int64_t width = 1 + options_.max_logprobs;
    const Logits logits = LogitsOf(rows);
    unread.expected = StepAll(host_, logits.host->view(), for_host, width);
    unread.step = device_.Step({logits.on_device, for_device}, nullptr, logits.source);
    unread.kept = KeptOf(unread.step, unread.expected);
    tokens_ += std::count_if(unread.expected.tokens.begin(), unread.expected.tokens.end(),
                             [](const TokenResult& token) { return token.id >= 0; });
    steps_ += static_cast<int64_t>(chosen.size());
    unread_.push_back(std::move(unread));
    ReadSome();
  }

  int64_t calls() const { return calls_; }
  // Of requests, and what they got.
  int64_t steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }
  cuda::DeviceSampler& device() { return device_; }

 private:
  struct Live {
    RequestHandle host;
    RequestHandle device;
  };

  // A step whose answer was not read, or never will be.
  struct Unread {
    struct Member {
      RequestHandle device;
      int64_t rows;
    };

    int64_t call;
    bool has_trees;
    bool is_dropped = false;
    cuda::StepHandle step = {};
    Stepped expected = {};
    std::vector<int32_t> kept = {};  // gone with the next step
    std::vector<Member> members = {};
  };

  struct Logits {
    std::unique_ptr<Batch> host;
    LogitsView on_device = {};
    cuda::LogitsSource source = {};
  };

  // A draft model's rows near the target's, with their parameters and Cuts.
  struct DraftModel {
    std::unique_ptr<Batch> batch;
    std::vector<SelectParams> params;
    std::vector<Cut> cuts;

    DraftModel() = default;
    DraftModel(const std::vector<std::vector<float>>& rows, int64_t count, int64_t vocab,
               Random& random) {
      std::vector<std::vector<float>> own(rows.end() - count - 1, rows.end() - 1);
      for (auto& row : own) {
        if (random.Coin()) random.Pick(row) += 1.0f;
      }
      batch = std::make_unique<Batch>(own, kAllDTypes[random.Below(3)]);
      for (int64_t i = random.Coin() ? count : 1; i > 0; --i) {
        params.push_back(RandomSelectParams(vocab, random));
        if (random.Coin()) params.back() = {.top_k = static_cast<int32_t>(random.Between(1, 9))};
      }
      if (random.Coin(0.05)) random.Pick(params).top_p = 2.0f;
      const std::vector<NoiseKey> keys(own.size(), NoiseKey{});
      SelectInput input = Input();
      input.keys = keys;
      cuts = Selected(input).cuts;
      if (random.Coin(0.05)) random.Pick(cuts).ties_kept += 2;  // of another row
    }
    SelectInput Input() const { return {batch->view(), params, {}}; }
  };

  static std::vector<int32_t> DraftsBehind(const std::vector<int32_t>& drafts,
                                           const std::vector<int32_t>& parents, int64_t node) {
    std::vector<int32_t> behind;
    for (int64_t i = 0; i < std::ssize(drafts); ++i) {
      const int64_t parent = parents.empty() ? i : parents[static_cast<size_t>(i)] + 1;
      if (parent == node) behind.push_back(drafts[static_cast<size_t>(i)]);
    }
    return behind;
  }

  size_t MostRows() const {
    return static_cast<size_t>(options_.max_requests * (1 + options_.max_drafts));
  }
  int32_t Id() { return static_cast<int32_t>(random_.Below(options_.vocab)); }
  int64_t Length(const Live& live) const { return std::ssize(host_.Tokens(live.host)); }
  int64_t UnreadRows(const Live& live) const {
    int64_t rows = 0;
    for (const Unread& unread : unread_) {
      for (const Unread::Member& member : unread.members) {
        const bool is_same = member.device.slot == live.device.slot &&
                             member.device.generation == live.device.generation;
        rows += is_same ? member.rows : 0;
      }
    }
    return rows;
  }
  // As far as the DeviceSampler knows.
  int64_t MostLength(const Live& live) const { return Length(live) + UnreadRows(live); }

  // Of the step, on both sides.
  Logits LogitsOf(const std::vector<std::vector<float>>& rows) {
    if (head_) {
      const int64_t count = std::ssize(rows);
      return {std::make_unique<Batch>(head_->Project(rows), DType::kF32), head_->View(count),
              head_->Source(count)};
    }
    Logits logits{std::make_unique<Batch>(rows, options_.dtype)};
    logits.on_device = logits.host->view();
    std::byte* data = logits_.data() + (random_.Coin(0.1) ? SizeOf(options_.dtype) : 0);
    const auto bytes = logits.host->row_bytes();
    Require(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    logits.on_device.data = data;
    logits.on_device.device = {DeviceKind::kCuda, 0};
    return logits;
  }

  // Until no more than options.unread are left to read.
  void ReadSome() {
    for (Unread& unread : unread_) {
      const int64_t left = std::count_if(unread_.begin(), unread_.end(),
                                         [](const Unread& each) { return !each.is_dropped; });
      if (left <= options_.unread) break;
      if (unread.is_dropped) continue;
      unread.is_dropped = options_.unread > 0 && random_.Coin(0.2);
      if (!unread.is_dropped) Read(unread);
    }
    // The DeviceSampler has counted the tokens of one that old by itself.
    std::erase_if(unread_, [&](const Unread& unread) {
      return unread.members.empty() || calls_ - unread.call >= cuda::DeviceSampler::kStepsKept;
    });
  }
  void Read(Unread& unread) {
    const Stepped& expected = unread.expected;
    const cuda::DeviceStepResult actual = unread.step.Get();
    unread.members.clear();
    unread.is_dropped = true;  // not to be read again
    ExpectSame(actual, expected, 1 + options_.max_logprobs);
    if (options_.kept) {
      ASSERT_TRUE(SameSequence(unread.kept, expected.kept));
      ASSERT_TRUE(SameSequence(actual.masses, expected.masses));
    }
    if (unread.has_trees) {
      ASSERT_TRUE(SameSequence(actual.path, expected.path));
    } else {
      ASSERT_TRUE(actual.path.empty());
    }
  }

  // Any row; often one that has a draft behind it on top, so that drafts are accepted, or all of
  // them among the likely tokens, so that it matters which are tried, and against what.
  std::vector<float> Row(const std::vector<int32_t>& behind) {
    std::vector<float> row = MakeRow(kAllRowKinds[random_.Below(8)], options_.vocab, random_);
    if (!behind.empty() && random_.Coin(0.5)) {
      row[static_cast<size_t>(random_.Pick(behind))] = 30.0f;
    } else if (random_.Coin()) {
      for (float& x : row) x = static_cast<float>(random_.Below(4)) * 0.25f;  // many ties
      for (const int32_t draft : behind) row[static_cast<size_t>(draft)] += 0.5f;
    }
    if (random_.Coin(0.03)) random_.Pick(row) = std::numeric_limits<float>::quiet_NaN();
    if (random_.Coin(0.03)) random_.Pick(row) = std::numeric_limits<float>::infinity();
    if (random_.Coin(0.02))
      std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
    return row;
  }
  std::vector<int32_t> Bitmask(int64_t rows) {
    std::vector<int32_t> words = RandomBitmask(options_.vocab, rows, random_);
    if (random_.Coin(0.1)) std::fill(words.begin(), words.end(), 0);
    return words;
  }

  void JoinAndLeave() {
    for (size_t i = 0; i < live_.size();) {
      const Live live = live_[i];
      const int64_t output = Length(live) - host_.PromptLength(live.host);
      if (output > 0 && UnreadRows(live) == 0 && random_.Coin(0.1)) {
        const int64_t count = random_.Between(0, output);
        host_.Rollback(live.host, count);
        device_.Rollback(live.device, count);
      }
      if (MostLength(live) < options_.max_tokens && random_.Coin(0.1)) {
        std::vector<int32_t> more;
        for (int64_t n =
                 random_.Between(1, std::min<int64_t>(5, options_.max_tokens - MostLength(live)));
             n > 0; --n) {
          more.push_back(Id());
        }
        host_.Accept(live.host, more);
        device_.Accept(live.device, more);
      }
      if (MostLength(live) >= options_.max_tokens || random_.Coin(0.04)) {
        host_.Remove(live.host);
        device_.Remove(live.device);
        live_.erase(live_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    while (host_.FreeSlots() > 0 && random_.Coin(0.7)) {
      LiteralRequest request = RandomLiteralRequest(options_.vocab, random_);
      SamplingParams& params = request.params;
      if (!options_.logprobs) params.logprobs.reset();
      if (params.logprobs.has_value()) {
        params.logprobs = static_cast<int32_t>(random_.Below(options_.max_logprobs + 1));
      }
      if (!options_.only_match && random_.Coin()) params.draft_mode = DraftMode::kReject;
      if (random_.Coin(0.2)) params = Plain(params);
      AddToBoth(request);
    }
  }
  void AddToBoth(LiteralRequest& request) {
    std::vector<LogitsProcessor> on_host;
    std::vector<cuda::DeviceLogitsProcessor> on_device;
    if (options_.processors && random_.Coin()) {
      for (TestProcessor& processor : processors_.emplace_back(RandomProcessors(random_))) {
        on_host.push_back(processor.OnHost());
        on_device.push_back(processor.OnDevice());
      }
    }
    Request added{.params = request.params, .prompt = request.prompt, .choice = request.choice};
    Live live;
    live.device = device_.Add(added, on_device);
    added.params.seed = device_.Seed(live.device);
    added.processors = on_host;
    live.host = host_.Add(added);
    live_.push_back(live);
  }
  // Without adjustments, and without a seed.
  static SamplingParams Plain(const SamplingParams& params) {
    SamplingParams plain;
    plain.temperature = params.temperature;
    plain.top_k = params.top_k;
    plain.top_p = params.top_p;
    return plain;
  }

  std::vector<int32_t> KeptOf(const cuda::StepHandle& step, const Stepped& expected) const {
    EXPECT_EQ(step.kept().size, options_.kept ? std::ssize(expected.kept) : 0);
    std::vector<int32_t> kept(static_cast<size_t>(step.kept().size));
    Require(cudaMemcpy(kept.data(), step.kept().data, kept.size() * sizeof(int32_t),
                       cudaMemcpyDeviceToHost));
    return kept;
  }

  MixOptions options_;
  Random random_;
  Sampler host_;
  cuda::DeviceSampler device_;
  OnDevice<std::byte> logits_;
  OnDevice<float> probabilities_;
  OnDevice<std::byte> models_;
  std::optional<IdentityHead> head_;
  std::vector<Live> live_;
  std::deque<std::vector<TestProcessor>> processors_;  // they stay in place
  std::deque<Unread> unread_;
  int64_t calls_ = 0;
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace sluice::test
