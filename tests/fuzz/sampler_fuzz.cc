// Any sequence of requests, steps, drafts in chains and trees, and rollbacks: histories are what
// was emitted, tokens are kept ones, and a step that is taken back and done again is the same step.
#include <optional>
#include <vector>

#include "sluice/sluice.hpp"
#include "tests/fuzz/bytes.h"

namespace sluice::fuzz {
namespace {

constexpr int32_t kMaxRequests = 4;

// A request as the outside sees it.
struct Live {
  RequestHandle handle;
  std::vector<int32_t> tokens;
  size_t prompt_length;
};

struct Outputs {
  std::vector<TokenResult> tokens;
  std::vector<int32_t> emitted;
  std::vector<int32_t> kept;
  std::vector<float> adjusted;
  std::vector<int32_t> path;
};

class Session {
 public:
  explicit Session(Bytes bytes)
      : bytes_(bytes),
        vocab_(bytes_.Between(1, 70)),
        sampler_({.vocab = vocab_, .max_requests = kMaxRequests}) {}

  void Run() {
    for (int operations = 0; operations < 60 && !bytes_.IsEmpty(); ++operations) {
      switch (bytes_.Between(0, 7)) {
        case 0:
        case 1:
          Add();
          break;
        case 2:
          Remove();
          break;
        case 3:
          Accept();
          break;
        case 4:
          Rollback();
          break;
        default:
          Step();
          break;
      }
      for (const Live& live : live_) {
        Check(SameSequence(sampler_.Tokens(live.handle), live.tokens));
        Check(sampler_.PromptLength(live.handle) == static_cast<int64_t>(live.prompt_length));
      }
    }
  }

 private:
  // Now and then not one of the vocabulary.
  int32_t AnyId() { return static_cast<int32_t>(bytes_.Between(-1, vocab_ + 1)); }
  int32_t Id() { return static_cast<int32_t>(bytes_.Between(0, vocab_ - 1)); }
  std::vector<int32_t> Ids(int64_t most) {
    std::vector<int32_t> ids(static_cast<size_t>(bytes_.Between(0, most)));
    for (int32_t& id : ids) id = Id();
    return ids;
  }
  Live* AnyLive() {
    if (live_.empty()) return nullptr;
    return &live_[static_cast<size_t>(bytes_.Raw<uint8_t>()) % live_.size()];
  }

  void Add() {
    SamplingParams params;
    ReadSelectParams(bytes_, &params);
    const uint16_t on = bytes_.Raw<uint16_t>();
    if (on & 1u) params.repetition_penalty = Parameter(bytes_);
    if (on & 2u) params.frequency_penalty = Parameter(bytes_);
    if (on & 4u) params.presence_penalty = Parameter(bytes_);
    if (on & 8u) params.min_tokens = bytes_.Raw<int8_t>();
    if (on & 16u) {
      params.dry_multiplier = Parameter(bytes_);
      params.dry_base = 1.0f + Parameter(bytes_);
      params.dry_allowed_length = bytes_.Raw<int8_t>();
      params.dry_range = bytes_.Raw<int8_t>();
      params.dry_sequence_breakers = Ids(3);
    }
    if (on & 32u) params.logit_bias = {{AnyId(), Parameter(bytes_)}, {Id(), bytes_.Raw<float>()}};
    if (on & 64u) params.allowed_token_ids = Ids(6);
    if (on & 128u) params.bad_words = {Ids(3), {Id()}, {Id(), Id()}};
    if (on & 256u) params.stop_token_ids = {AnyId()};
    if (on & 512u) params.draft_mode = DraftMode::kReject;
    if (on & 1024u) params.draw_method = DrawMethod::kCdf;
    params.seed = bytes_.Raw<uint16_t>();
    std::vector<int32_t> prompt = Ids(12);
    const Request request{.params = params,
                          .prompt = prompt,
                          .choice = bytes_.Raw<uint8_t>(),
                          .max_new_tokens = bytes_.Raw<int8_t>()};
    try {
      const RequestHandle handle = sampler_.Add(request);
      Check(live_.size() < kMaxRequests);
      Check(sampler_.Seed(handle) == *params.seed);
      live_.push_back({handle, prompt, prompt.size()});
    } catch (const Error&) {
    }
  }

  void Remove() {
    Live* live = AnyLive();
    if (live == nullptr) return;
    const RequestHandle handle = live->handle;
    sampler_.Remove(handle);
    live_.erase(live_.begin() + (live - live_.data()));
    try {
      sampler_.Remove(handle);
      Check(false);
    } catch (const Error&) {
    }
  }

  void Accept() {
    Live* live = AnyLive();
    if (live == nullptr) return;
    const std::vector<int32_t> ids = Ids(10);
    sampler_.Accept(live->handle, ids);
    live->tokens.insert(live->tokens.end(), ids.begin(), ids.end());
  }

  void Rollback() {
    Live* live = AnyLive();
    if (live == nullptr) return;
    const int64_t count = bytes_.Between(0, 12);
    try {
      sampler_.Rollback(live->handle, count);
      live->tokens.resize(live->tokens.size() - static_cast<size_t>(count));
      Check(live->tokens.size() >= live->prompt_length);
    } catch (const Error&) {
      Check(live->tokens.size() - live->prompt_length < static_cast<size_t>(count));
    }
  }

  // The first `count` of the live requests, with drafts, grammar and forced tokens.
  void Step() {
    if (live_.empty()) return;
    const size_t count = 1 + static_cast<size_t>(bytes_.Raw<uint8_t>()) % live_.size();
    const size_t words = static_cast<size_t>((vocab_ + 31) / 32);
    std::vector<std::vector<int32_t>> drafts(count);
    std::vector<std::vector<int32_t>> parents(count);
    std::vector<std::vector<int32_t>> bitmasks(count);
    std::vector<std::vector<float>> probabilities(count);
    std::vector<StepRequest> requests(count);
    size_t rows = 0;
    for (size_t i = 0; i < count; ++i) {
      drafts[i] = Ids(5);
      const size_t own_rows = drafts[i].size() + 1;
      requests[i] = {.request = live_[i].handle, .drafts = drafts[i]};
      if (bytes_.Coin()) {
        for (int32_t d = 0; d < static_cast<int32_t>(drafts[i].size()); ++d) {
          parents[i].push_back(static_cast<int32_t>(bytes_.Between(0, d)) - 1);
        }
        requests[i].parents = parents[i];
      }
      if (bytes_.Coin()) {
        bitmasks[i].resize(own_rows * words);
        for (int32_t& word : bitmasks[i]) word = bytes_.Raw<int32_t>();
        requests[i].bitmask = bitmasks[i];
      }
      if (bytes_.Coin() && !drafts[i].empty()) {
        probabilities[i].resize(drafts[i].size() * static_cast<size_t>(vocab_));
        for (float& q : probabilities[i]) q = Parameter(bytes_);
        requests[i].draft_probabilities = {probabilities[i].data(),
                                           static_cast<int64_t>(drafts[i].size()), vocab_, vocab_};
      }
      if (bytes_.Between(0, 7) == 0) requests[i].forced = Id();
      rows += own_rows;
    }
    const DType dtype = static_cast<DType>(bytes_.Between(0, 2));
    std::vector<float> memory(rows * static_cast<size_t>(vocab_));
    const LogitsView logits{memory.data(), static_cast<int64_t>(rows), vocab_, vocab_, dtype};
    for (int64_t r = 0; r < logits.rows; ++r) {
      FillRow(bytes_, dtype, vocab_, const_cast<void*>(logits.Row(r)));
    }

    const Outputs first = Stepped(logits, requests);
    for (size_t i = 0; i < count; ++i) {
      Check(sampler_.Tokens(live_[i].handle).size() ==
            live_[i].tokens.size() + static_cast<size_t>(first.emitted[i]));
      sampler_.Rollback(live_[i].handle, first.emitted[i]);
      Check(SameSequence(sampler_.Tokens(live_[i].handle), live_[i].tokens));
    }
    const Outputs again = Stepped(logits, requests);
    Check(SameSequence(again.tokens, first.tokens));
    Check(again.emitted == first.emitted && again.kept == first.kept);
    Check(SameSequence(again.adjusted, first.adjusted));
    Check(again.path == first.path);

    size_t row = 0;
    for (size_t i = 0; i < count; ++i) {
      for (size_t d = 0; d <= drafts[i].size(); ++d, ++row) {
        const TokenResult& result = first.tokens[row];
        const bool is_emitted = d < static_cast<size_t>(first.emitted[i]);
        Check((result.id >= 0) == is_emitted);
        Check(result.status == RowStatus::kOk || result.id == -1);
        if (!is_emitted) continue;
        const size_t node = static_cast<size_t>(first.path[row]);
        if (d == 0) {
          Check(node == 0);
        } else {
          Check(drafts[i][node - 1] == first.tokens[row - 1].id);
          Check(node > static_cast<size_t>(first.path[row - 1]));
        }
        Check(result.id < vocab_);
        const size_t word = row * words + static_cast<size_t>(result.id / 32);
        Check(static_cast<uint32_t>(first.kept[word]) >> (result.id % 32) & 1u);
        live_[i].tokens.push_back(result.id);
      }
    }
  }

  Outputs Stepped(const LogitsView& logits, const std::vector<StepRequest>& requests) {
    const size_t rows = static_cast<size_t>(logits.rows);
    Outputs out{std::vector<TokenResult>(rows), std::vector<int32_t>(requests.size()),
                std::vector<int32_t>(rows * static_cast<size_t>((vocab_ + 31) / 32)),
                std::vector<float>(rows * static_cast<size_t>(vocab_)), std::vector<int32_t>(rows)};
    sampler_.Step({logits, requests},
                  {.tokens = out.tokens,
                   .emitted = out.emitted,
                   .kept = out.kept,
                   .adjusted = {out.adjusted.data(), logits.rows, vocab_, vocab_},
                   .path = out.path});
    return out;
  }

  Bytes bytes_;
  int64_t vocab_;
  Sampler sampler_;
  std::vector<Live> live_;
};

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Session(sluice::fuzz::Bytes(data, size)).Run();
  return 0;
}
