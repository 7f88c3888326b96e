// Frames to test with: every field at random, with the ends of its range.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "link/wire/wire.h"
#include "tests/support/random.h"

namespace sluice::test {

class RandomFrames {
 public:
  explicit RandomFrames(uint64_t seed) : random_(seed) {}

  Random& random() { return random_; }

  link::FrameHead Head(link::FrameType type) {
    return {type, Number<uint64_t>(), Number<uint64_t>()};
  }
  link::Hello Hello() {
    return {.name = Text().substr(0, link::kLongestName),
            .pid = Natural(),
            .credits = Natural() & 0xffff};
  }
  RequestAddress Address() { return {Number<int32_t>(), Number<uint32_t>()}; }

  SamplingParams Params() {
    SamplingParams params;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Fill(params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Fill(params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) Fill(params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) Fill(params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) Fill(params.name);
#include "sluice/params.def"
    return params;
  }

  EngineRequest Request() {
    EngineRequest request;
    request.address = Address();
    request.params = Params();
    Fill(request.prompt);
    request.choice = Number<uint32_t>();
    request.group = Number<uint64_t>();
    request.priority = Number<int32_t>();
    request.max_tokens = Number<int64_t>();
    Fill(request.prompt_logprobs);
    request.stop_at = random_.Coin() ? StopAt::kEngine : StopAt::kFrontend;
    for (int64_t stops = random_.Below(4); stops > 0; --stops) request.text.stops.push_back(Text());
    request.text.include_stop = random_.Coin();
    request.text.detokenizer = {random_.Coin(), random_.Coin(),
                                random_.Coin() ? Utf8Errors::kMaximal : Utf8Errors::kHfRun};
    request.text.incomplete = random_.Coin() ? Incomplete::kReplace : Incomplete::kDrop;
    if (random_.Coin()) {
      request.grammar = {.kind = static_cast<GrammarKind>(random_.Below(6)),
                         .text = Text(),
                         .options = {random_.Coin(), Number<int32_t>()}};
    }
    if (random_.Coin()) {
      request.thinking = {.format = static_cast<ReasoningFormat>(random_.Below(5)),
                          .tokens = Number<int64_t>(),
                          .is_open = random_.Coin()};
    }
    return request;
  }

  link::Ready Ready() {
    EngineInfo info;
    info.model = Text();
    info.version = Text();
    info.vocab = Natural();
    info.context = Natural();
    info.max_requests = Number<int32_t>();
    info.max_client_requests = Number<int32_t>();
    info.max_logprobs = Number<int32_t>();
    info.steps_in_flight = Number<int32_t>();
    info.tokenizer_hash = Number<uint64_t>();
    Fill(info.end_tokens);
    info.has_text = random_.Coin();
    info.has_grammars = random_.Coin();
    info.limits.max_temperature = Float();
    info.max_frame_bytes = Natural();
    return {link::kProtocol, info};
  }

  // Rows, valid until the next call.
  std::span<const OutputRow> Rows(int64_t count) {
    rows_.assign(static_cast<size_t>(count), {});
    data_.assign(static_cast<size_t>(count), {});
    for (size_t i = 0; i < rows_.size(); ++i) FillRow(data_[i], rows_[i]);
    return rows_;
  }

  // One written frame of any kind.
  std::string FrontendFrame() {
    using link::FrameType;
    std::string frame;
    switch (random_.Below(6)) {
      case 0:
        link::WriteHello(Head(FrameType::kHello), Hello(), frame);
        break;
      case 1:
        link::WriteAdd(Head(FrameType::kAdd), Request(), frame);
        break;
      case 2: {
        std::vector<RequestAddress> addresses(static_cast<size_t>(random_.Below(5)));
        for (RequestAddress& address : addresses) address = Address();
        link::WriteAbort(Head(FrameType::kAbort), addresses, frame);
        break;
      }
      case 3:
        link::WriteCredit(Head(FrameType::kCredit), Natural() & 0xffff, frame);
        break;
      case 4:
        link::WriteEmpty(Head(FrameType::kPing), frame);
        break;
      default:
        link::WriteEmpty(Head(FrameType::kBye), frame);
    }
    return frame;
  }
  std::string EngineFrame() {
    using link::FrameType;
    std::string frame;
    switch (random_.Below(5)) {
      case 0:
        link::WriteReady(Head(FrameType::kReady), Ready(), frame);
        break;
      case 1:
      case 2:
        link::WriteOutput(Head(FrameType::kOutput), Natural(), Natural(), Rows(random_.Below(6)),
                          frame);
        break;
      case 3:
        link::WriteReason(Head(random_.Coin() ? FrameType::kDead : FrameType::kReset), Text(),
                          frame);
        break;
      default:
        link::WritePong(Head(FrameType::kPong), Grammars(), frame);
    }
    return frame;
  }

 private:
  GrammarCounters Grammars() {
    return {.compiling = Natural(),
            .compiled = Natural(),
            .cached = Natural(),
            .masks = Natural(),
            .mask_waits = Natural(),
            .mask_wait_ns = Natural()};
  }
  struct RowData {
    std::vector<int32_t> ids, ranks, logprob_ids;
    std::vector<float> logprobs, logprob_values;
    std::vector<int32_t> prompt_ranks, prompt_ids;
    std::vector<float> prompt_logprobs, prompt_values;
    std::string message, parameter;
  };

  // Of any size in bits, so that every encoding comes up; now and then an end of the range.
  template <typename T>
  T Number() {
    if (random_.Coin(0.1)) return std::numeric_limits<T>::min();
    if (random_.Coin(0.1)) return std::numeric_limits<T>::max();
    const uint64_t magnitude = random_.Bits() >> random_.Below(64);
    return static_cast<T>(random_.Coin() ? magnitude : ~magnitude);
  }
  int64_t Natural() { return Number<int64_t>() & std::numeric_limits<int64_t>::max(); }
  float Float() {
    if (random_.Coin(0.1)) return random_.Coin() ? -0.0f : 1.0f;
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random_.Bits()));
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  }
  std::string Text() {
    const std::vector<int64_t> sizes = {0, 1, 7, 31, 32, 255, 256, 70'000};
    std::string text(
        static_cast<size_t>(sizes[static_cast<size_t>(random_.Below(random_.Coin(0.02) ? 8 : 6))]),
        '\0');
    for (char& c : text) c = static_cast<char>(random_.Bits());
    return text;
  }

  void Fill(float& to) { to = Float(); }
  void Fill(int32_t& to) { to = Number<int32_t>(); }
  void Fill(uint64_t& to) { to = Number<uint64_t>(); }
  void Fill(DrawMethod& to) { to = static_cast<DrawMethod>(random_.Below(2)); }
  void Fill(DraftMode& to) { to = static_cast<DraftMode>(random_.Below(2)); }
  void Fill(LogprobMode& to) { to = static_cast<LogprobMode>(random_.Below(4)); }
  void Fill(BiasEntry& to) { to = {Number<int32_t>(), Float()}; }
  void Fill(Profile& to) {
    to = {static_cast<Ties>(random_.Below(2)),
          static_cast<TopKTopP>(random_.Below(2)),
          static_cast<MinPStage>(random_.Below(2)),
          static_cast<TopPBoundary>(random_.Below(2)),
          static_cast<PenaltyScope>(random_.Below(2)),
          static_cast<TemperatureStage>(random_.Below(2))};
  }
  template <typename T>
  void Fill(std::vector<T>& to) {
    to.resize(static_cast<size_t>(random_.Coin(0.1) ? random_.Below(300) : random_.Below(5)));
    for (T& element : to) Fill(element);
  }
  template <typename T>
  void Fill(std::optional<T>& to) {
    to.reset();
    if (random_.Coin()) Fill(to.emplace());
  }

  void FillRow(RowData& data, OutputRow& row) {
    row.address = Address();
    row.first_token = Natural();
    Fill(data.ids);
    row.ids = data.ids;
    if (random_.Coin(0.3)) {
      const size_t tokens = data.ids.size();
      row.logprob_width = static_cast<int32_t>(random_.Below(4));
      data.logprobs.resize(tokens);
      data.ranks.resize(tokens);
      data.logprob_ids.resize(tokens * static_cast<size_t>(row.logprob_width));
      data.logprob_values.resize(data.logprob_ids.size());
      for (auto* list : {&data.logprobs, &data.logprob_values}) {
        for (float& value : *list) value = Float();
      }
      for (auto* list : {&data.ranks, &data.logprob_ids}) {
        for (int32_t& value : *list) value = Number<int32_t>();
      }
      row.logprobs = data.logprobs;
      row.ranks = data.ranks;
      row.logprob_ids = data.logprob_ids;
      row.logprob_values = data.logprob_values;
    }
    if (random_.Coin(0.3)) FillPrompt(data, row.prompt);
    if (random_.Coin(0.3)) {
      row.end = static_cast<GenerationEnd>(random_.Between(1, kGenerationEnds - 1));
      row.status = static_cast<RowStatus>(16 * random_.Below(5));
      data.message = Text();
      row.message = data.message;
      row.code = static_cast<ErrorCode>(random_.Below(4));
      data.parameter = Text();
      row.parameter = data.parameter;
      row.cached_tokens = random_.Below(2) == 0 ? -1 : random_.Below(100'000);
    }
  }

  void FillPrompt(RowData& data, PromptLogprobs& prompt) {
    const auto tokens = static_cast<size_t>(random_.Between(1, 6));
    prompt.first_token = random_.Between(1, INT32_MAX);
    prompt.width = static_cast<int32_t>(random_.Between(1, 5));
    data.prompt_logprobs.resize(tokens);
    data.prompt_ranks.resize(tokens);
    data.prompt_ids.resize(tokens * static_cast<size_t>(prompt.width));
    data.prompt_values.resize(data.prompt_ids.size());
    for (auto* list : {&data.prompt_logprobs, &data.prompt_values}) {
      for (float& value : *list) value = Float();
    }
    for (auto* list : {&data.prompt_ranks, &data.prompt_ids}) {
      for (int32_t& value : *list) value = Number<int32_t>();
    }
    prompt.logprobs = data.prompt_logprobs;
    prompt.ranks = data.prompt_ranks;
    prompt.ids = data.prompt_ids;
    prompt.values = data.prompt_values;
  }

  Random random_;
  std::vector<OutputRow> rows_;
  std::vector<RowData> data_;
};

inline bool IsSame(const OutputRow& a, const OutputRow& b) {
  return a.address == b.address && a.first_token == b.first_token &&
         std::ranges::equal(a.ids, b.ids) && std::ranges::equal(a.logprobs, b.logprobs) &&
         std::ranges::equal(a.ranks, b.ranks) && a.logprob_width == b.logprob_width &&
         std::ranges::equal(a.logprob_ids, b.logprob_ids) &&
         std::ranges::equal(a.logprob_values, b.logprob_values) &&
         a.prompt.first_token == b.prompt.first_token && a.prompt.width == b.prompt.width &&
         std::ranges::equal(a.prompt.logprobs, b.prompt.logprobs) &&
         std::ranges::equal(a.prompt.ranks, b.prompt.ranks) &&
         std::ranges::equal(a.prompt.ids, b.prompt.ids) &&
         std::ranges::equal(a.prompt.values, b.prompt.values) && a.end == b.end &&
         a.status == b.status && a.message == b.message && a.code == b.code &&
         a.parameter == b.parameter && a.cached_tokens == b.cached_tokens;
}

// What was read, written again.
inline std::string Rewritten(const link::FrontendFrame& frame) {
  using link::FrameType;
  std::string bytes;
  switch (frame.head.type) {
    case FrameType::kHello:
      link::WriteHello(frame.head, frame.hello, bytes);
      break;
    case FrameType::kAdd:
      link::WriteAdd(frame.head, frame.request, bytes);
      break;
    case FrameType::kAbort:
      link::WriteAbort(frame.head, frame.aborted, bytes);
      break;
    case FrameType::kCredit:
      link::WriteCredit(frame.head, frame.credits, bytes);
      break;
    default:
      link::WriteEmpty(frame.head, bytes);
  }
  return bytes;
}
inline std::string Rewritten(const link::EngineFrame& frame) {
  using link::FrameType;
  std::string bytes;
  switch (frame.head.type) {
    case FrameType::kReady:
      link::WriteReady(frame.head, frame.ready, bytes);
      break;
    case FrameType::kOutput:
      link::WriteOutput(frame.head, frame.step, frame.time_ns, frame.rows, bytes);
      break;
    case FrameType::kPong:
      link::WritePong(frame.head, frame.grammars, bytes);
      break;
    default:
      link::WriteReason(frame.head, frame.reason, bytes);
  }
  return bytes;
}

}  // namespace sluice::test
