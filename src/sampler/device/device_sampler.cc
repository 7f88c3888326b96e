#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "sampler/device/device_sampler_impl.h"
#include "sampler/request_checks.h"
#include "sluice/cuda/sampler.hpp"
#include "support/check.h"
#include "support/random_seed.h"

namespace sluice::cuda {
namespace {

constexpr int32_t kMostLogprobs = 128;
constexpr int32_t kMostGraphs = 4096;
constexpr int32_t kMostProcessedRows = 65535;  // a grid has that many in its second dimension

void CheckOptions(const DeviceSamplerOptions& options) {
  CheckInRange("vocab", options.vocab, 1, kMaxVocab);
  CheckInRange("max_requests", options.max_requests, 1, 1 << 16);
  CheckInRange("max_drafts", options.max_drafts, 0, kMostDrafts);
  CheckInRange("max_rows", options.max_rows, 0, 1 << 20);
  CheckInRange("max_tokens", options.max_tokens, 1, kMostTokens);
  CheckInRange("max_listed_ids", options.max_listed_ids, 0, 1 << 24);
  CheckInRange("max_logprobs", options.max_logprobs, 0, kMostLogprobs);
  CheckInRange("max_processed_rows", options.max_processed_rows, 0, kMostProcessedRows);
  CheckInRange("max_graphs", options.max_graphs, DeviceSampler::kStepsKept, kMostGraphs);
  CheckLimits(options.limits);
}

int64_t BitmaskBytes(const DeviceSamplerOptions& options) {
  return options.bitmasks ? MostRows(options) * ((options.vocab + 31) / 32) * 4 : 0;
}

// What one Add sends.
size_t RequestBytes(const RequestStore& store) {
  return sizeof(RequestRecord) + sizeof(RequestProgress) +
         4 * static_cast<size_t>(store.max_tokens + store.max_listed) +
         sizeof(WatchedToken) * static_cast<size_t>(store.max_watched);
}

// Room for two steps, and for as many new requests as 16 MiB hold, but for four at least.
size_t RingBytes(const DeviceSamplerOptions& options) {
  const DeviceBuffers buffers = BuffersOf(nullptr, options);
  const size_t step = static_cast<size_t>(BitmaskBytes(options)) + MostTableBytes(options);
  const size_t request = RequestBytes(buffers.store);
  return 2 * step +
         std::max(4 * request,
                  std::min(size_t{16} << 20, request * static_cast<size_t>(options.max_requests)));
}

// Longer repeats get the same penalty: its power is 1 throughout, or at its cap of 1e30, with a
// logarithm of 69.1.
uint32_t LongestRepeat(const SamplingParams& params, int32_t max_tokens) {
  const int32_t allowed = params.dry_allowed_length;
  const double growth = std::log(static_cast<double>(params.dry_base));
  if (growth == 0.0 || allowed >= max_tokens) return static_cast<uint32_t>(allowed);
  const double growing = std::min(70.0 / growth + 2.0, static_cast<double>(max_tokens - allowed));
  return static_cast<uint32_t>(allowed) + static_cast<uint32_t>(growing);
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}
bool CountsTokens(const SamplingParams& params) {
  return HasPenalties(params) || params.dry_multiplier != 0.0f;
}

int64_t ListedIds(const SamplingParams& params) {
  size_t count =
      params.logit_bias.size() + params.stop_token_ids.size() + params.dry_sequence_breakers.size();
  if (params.allowed_token_ids.has_value()) count += params.allowed_token_ids->size();
  for (const TokenIds& word : params.bad_words) count += word.size();
  return static_cast<int64_t>(count);
}

// What a request names, ascending.
std::vector<WatchedToken> WatchedAtFirst(const Request& request, bool counts_tokens) {
  std::vector<WatchedToken> named;
  const SamplingParams& params = request.params;
  if (counts_tokens) {
    for (const int32_t id : request.prompt) named.push_back({id, 1, 0, 0});
  }
  for (const BiasEntry& entry : params.logit_bias) named.push_back({entry.id, 0, 0, kBiasMark});
  for (const int32_t id : params.stop_token_ids) named.push_back({id, 0, 0, kStopMark});
  for (const TokenIds& word : params.bad_words) {
    named.push_back({word.back(), 0, 0, kBadWordMark});
  }
  if (params.allowed_token_ids.has_value()) {
    for (const int32_t id : *params.allowed_token_ids) named.push_back({id, 0, 0, kAllowedMark});
  }
  std::sort(named.begin(), named.end(),
            [](const WatchedToken& a, const WatchedToken& b) { return a.id < b.id; });
  std::vector<WatchedToken> watched;
  for (const WatchedToken& token : named) {
    if (watched.empty() || watched.back().id != token.id) {
      watched.push_back(token);
    } else {
      watched.back().in_prompt += token.in_prompt;
      watched.back().marks |= token.marks;
    }
  }
  return watched;
}

// In the order that RequestRecord defines.
std::vector<int32_t> ListsOf(const SamplingParams& params, RequestRecord& record) {
  std::vector<int32_t> lists;
  std::vector<BiasEntry> bias = params.logit_bias;  // of one id, in their order
  std::stable_sort(bias.begin(), bias.end(),
                   [](const BiasEntry& a, const BiasEntry& b) { return a.id < b.id; });
  for (const BiasEntry& entry : bias) {
    lists.push_back(entry.id);
    lists.push_back(std::bit_cast<int32_t>(entry.bias));
  }
  std::vector<int32_t> offsets = {0};
  for (const TokenIds& word : params.bad_words) {
    lists.insert(lists.end(), word.begin(), word.end());
    offsets.push_back(offsets.back() + static_cast<int32_t>(word.size()));
  }
  lists.insert(lists.end(), offsets.begin(), offsets.end());
  TokenIds breakers = params.dry_sequence_breakers;
  std::sort(breakers.begin(), breakers.end());
  lists.insert(lists.end(), breakers.begin(), breakers.end());
  record.bias_entries = static_cast<int32_t>(bias.size());
  record.bad_word_ids = offsets.back();
  record.bad_words = static_cast<int32_t>(params.bad_words.size());
  record.breakers = static_cast<int32_t>(breakers.size());
  return lists;
}

std::byte* MemoryFor(const DeviceSamplerOptions& options, DeviceArray<std::byte> memory,
                     std::optional<CudaBlock>& own) {
  const size_t bytes = DeviceSamplerBytes(options);
  if (memory.data == nullptr) {
    own.emplace(CudaBlock::Kind::kDevice, bytes);
    return own->data();
  }
  if (memory.size < static_cast<int64_t>(bytes)) {
    ThrowInvalid("memory.size", ToText(memory.size),
                 "at least DeviceSamplerBytes(options), " + ToText(static_cast<int64_t>(bytes)));
  }
  if (reinterpret_cast<uintptr_t>(memory.data) % 256 != 0) {
    ThrowInvalid("memory.data", "a misaligned pointer", "a multiple of 256");
  }
  return memory.data;
}

}  // namespace

size_t DeviceSamplerBytes(const DeviceSamplerOptions& options) {
  CheckOptions(options);
  return BuffersOf(nullptr, options).bytes;
}

DeviceSampler::Impl::Impl(const DeviceSamplerOptions& options, DeviceArray<std::byte> memory)
    : options_(options),
      buffers_(BuffersOf(MemoryFor(options, memory, own_memory_), options)),
      ring_(RingBytes(options)),
      answers_(CudaBlock::Kind::kPinned,
               kStepsKept * OutputsOf(nullptr, LargestOutput(options)).bytes),
      answer_bytes_(OutputsOf(nullptr, LargestOutput(options)).bytes),
      seen_(static_cast<size_t>(options.max_graphs)),
      graphs_(static_cast<size_t>(options.max_graphs)) {
  slots_.resize(static_cast<size_t>(options.max_requests));
  for (int32_t slot = options.max_requests - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (StepRecord& step : steps_kept_) step.members.reserve(slots_.size());
  tables_.reserve(MostTableBytes(options));
  new_tables_.reserve(MostTableBytes(options));
  bitmasks_.reserve(slots_.size());
  const SelectParams greedy{.temperature = 0.0f};
  const NoiseKey key;
  const Piece pieces[] = {{buffers_.greedy_params, &greedy, sizeof greedy},
                          {buffers_.greedy_key, &key, sizeof key}};
  Send(pieces);
}

DeviceSampler::Impl::~Impl() {
  for (const StepRecord& step : steps_kept_) {
    if (step.step != 0) cudaEventSynchronize(step.done);
  }
  cudaStreamSynchronize(changes_);
  cudaStreamSynchronize(copies_);
  if (has_failed_) cudaDeviceSynchronize();  // how much of a step was enqueued is unknown
}

RequestRecord DeviceSampler::Impl::RecordOf(const SamplingParams& params) const {
  RequestRecord record = {};
  record.select = params.Select();
  record.penalties = {params.repetition_penalty, params.frequency_penalty, params.presence_penalty};
  record.penalty_scope = params.profile.penalty_scope;
  record.has_allowed_ids = params.allowed_token_ids.has_value();
  record.counts_tokens = CountsTokens(params);
  record.has_patch = record.counts_tokens || record.has_allowed_ids || !params.bad_words.empty() ||
                     !params.logit_bias.empty() ||
                     (params.min_tokens > 0 && !params.stop_token_ids.empty());
  record.draw_method = params.draw_method;
  record.draft_mode = params.draft_mode;
  record.logprob_mode = params.logprob_mode;
  record.has_logprobs = params.logprobs.has_value();
  record.listed_logprobs = params.logprobs.value_or(0);
  record.dry_multiplier = params.dry_multiplier;
  record.dry_base = params.dry_base;
  record.dry_allowed_length = params.dry_allowed_length;
  record.dry_range = params.dry_range;
  record.dry_longest = LongestRepeat(params, options_.max_tokens);
  record.min_tokens = params.min_tokens;
  return record;
}

void DeviceSampler::Impl::CheckProcessors(const Request& request,
                                          std::span<const DeviceLogitsProcessor> processors) const {
  if (!request.processors.empty()) {
    throw Error(ErrorCode::kUnavailable, "request.processors",
                ToText(static_cast<int64_t>(request.processors.size())),
                "none on a device: a DeviceLogitsProcessor, or the Sampler of sampler.hpp");
  }
  if (!processors.empty() && options_.max_processed_rows == 0) {
    ThrowInvalid("processors", ToText(static_cast<int64_t>(processors.size())),
                 "none: options.max_processed_rows is 0");
  }
  for (const DeviceLogitsProcessor& processor : processors) {
    if (processor.apply == nullptr) ThrowInvalid("processors.apply", "null", "a function");
  }
}

RequestHandle DeviceSampler::Impl::Add(const Request& request,
                                       std::span<const DeviceLogitsProcessor> processors) {
  CheckNotCalledBack();
  const SamplingParams& params = request.params;
  CheckNewRequest(request, options_.vocab, options_.limits);
  CheckInRange("prompt.size()", static_cast<int64_t>(request.prompt.size()), 0,
               options_.max_tokens);
  CheckProcessors(request, processors);
  if (params.logprobs.has_value()) {
    CheckInRange("logprobs", *params.logprobs, 0, options_.max_logprobs);
  }
  CheckInRange("listed ids", ListedIds(params), 0, options_.max_listed_ids);
  if (free_slots_.empty()) ThrowAllSlotsTaken(options_.max_requests);
  const int32_t index = free_slots_.back();
  Slot& slot = slots_[static_cast<size_t>(index)];
  RequestRecord record = RecordOf(params);
  const std::vector<int32_t> lists = ListsOf(params, record);
  const std::vector<WatchedToken> watched = WatchedAtFirst(request, record.counts_tokens);
  record.seed = params.seed.has_value() ? *params.seed : RandomSeed();
  record.choice = request.choice;
  record.prompt_length = static_cast<int32_t>(request.prompt.size());
  SamplingParams kept = params;
  std::vector<DeviceLogitsProcessor> kept_processors(processors.begin(), processors.end());
  const RequestProgress progress{record.prompt_length, static_cast<int32_t>(watched.size())};
  const RequestStore& store = buffers_.store;
  const Piece pieces[] = {
      {store.records + index, &record, sizeof record},
      {store.progress + index, &progress, sizeof progress},
      {store.TokensOf(index), request.prompt.data(), request.prompt.size_bytes()},
      {store.WatchedOf(index), watched.data(), watched.size() * sizeof watched[0]},
      {store.ListsOf(index), lists.data(), lists.size() * sizeof lists[0]}};
  Send(pieces);
  slot.params = std::move(kept);
  slot.processors = std::move(kept_processors);
  slot.record = record;
  slot.tokens = record.prompt_length;
  slot.unread = 0;
  slot.is_live = true;
  free_slots_.pop_back();
  return {index, slot.generation};
}

// Copies to the device, after all changes so far. Adjacent pieces become one copy, because a copy
// costs a call of the driver.
void DeviceSampler::Impl::Send(std::span<const Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  if (bytes == 0) return;
  std::byte* from = ring_.Take(bytes);
  try {
    for (size_t i = 0; i < pieces.size();) {
      std::byte* const to = static_cast<std::byte*>(pieces[i].to);
      size_t size = 0;
      for (; i < pieces.size() && pieces[i].to == to + size; ++i) {
        if (pieces[i].bytes > 0) std::memcpy(from + size, pieces[i].from, pieces[i].bytes);
        size += pieces[i].bytes;
      }
      if (size == 0) continue;
      RequireCuda(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, changes_), "copy");
      from += size;
    }
    ring_.Sent(changes_);
  } catch (...) {
    ring_.NotSent(changes_);
    throw;
  }
}

void DeviceSampler::Impl::Remove(RequestHandle request) {
  CheckNotCalledBack();
  Slot& slot = SlotOf(request);
  slot.is_live = false;
  slot.params = {};
  slot.processors.clear();
  ++slot.generation;
  free_slots_.push_back(request.slot);
}

const DeviceSampler::Impl::Slot& DeviceSampler::Impl::SlotOf(RequestHandle request) const {
  CheckInRange("request.slot", request.slot, 0, options_.max_requests - 1);
  const Slot& slot = slots_[static_cast<size_t>(request.slot)];
  if (!slot.is_live || slot.generation != request.generation) ThrowRemovedRequest();
  return slot;
}

void DeviceSampler::Impl::Update(RequestHandle request, const SamplingParams& params) {
  CheckNotCalledBack();
  Slot& slot = SlotOf(request);
  Validate(params, options_.vocab, options_.limits);
  auto check_same = [](std::string_view name, bool is_same) {
    if (!is_same) ThrowInvalid(name, "another value", "that of Add; Remove and Add the request");
  };
  const SamplingParams& old = slot.params;
  check_same("logit_bias", params.logit_bias == old.logit_bias);
  check_same("allowed_token_ids", params.allowed_token_ids == old.allowed_token_ids);
  check_same("bad_words", params.bad_words == old.bad_words);
  check_same("stop_token_ids", params.stop_token_ids == old.stop_token_ids);
  check_same("dry_sequence_breakers", params.dry_sequence_breakers == old.dry_sequence_breakers);
  check_same("seed", params.seed == old.seed);
  check_same("logprobs", params.logprobs == old.logprobs);
  check_same("logprob_mode", params.logprob_mode == old.logprob_mode);
  if (CountsTokens(params) && !slot.record.counts_tokens) {
    ThrowInvalid("penalties", "some", "none for a request that was added without");
  }
  RequestRecord record = RecordOf(params);
  record.counts_tokens = slot.record.counts_tokens;
  record.has_patch = record.has_patch || record.counts_tokens;
  record.seed = slot.record.seed;
  record.choice = slot.record.choice;
  record.prompt_length = slot.record.prompt_length;
  record.bias_entries = slot.record.bias_entries;
  record.bad_word_ids = slot.record.bad_word_ids;
  record.bad_words = slot.record.bad_words;
  record.breakers = slot.record.breakers;
  SamplingParams kept = params;
  const Piece piece{buffers_.store.records + request.slot, &record, sizeof record};
  Send({&piece, 1});
  slot.record = record;
  slot.params = std::move(kept);
}

void DeviceSampler::Impl::CheckNotCalledBack() const {
  if (is_calling_back_)
    ThrowInvalid("sampler", "in a step", "not called by a source or a processor of it");
}

void DeviceSampler::Impl::CheckRoom(const Slot& slot, int64_t more,
                                    std::string_view parameter) const {
  const int64_t tokens = slot.tokens + slot.unread + more;
  if (tokens <= options_.max_tokens) return;
  throw Error(ErrorCode::kExhausted, std::string(parameter), ToText(tokens),
              "at most max_tokens, " + ToText(int64_t{options_.max_tokens}) + ", in a request");
}

void DeviceSampler::Impl::Accept(RequestHandle request, std::span<const int32_t> tokens) {
  CheckNotCalledBack();
  Slot& slot = SlotOf(request);
  for (const int32_t token : tokens) CheckInRange("tokens", token, 0, options_.vocab - 1);
  CheckRoom(slot, static_cast<int64_t>(tokens.size()), "tokens.size()");
  while (!tokens.empty()) {
    AppendArgument argument{.store = buffers_.store, .slot = request.slot, .count = 0, .ids = {}};
    const size_t count = std::min(tokens.size(), size_t{AppendArgument::kMost});
    std::copy_n(tokens.begin(), count, argument.ids);
    argument.count = static_cast<int32_t>(count);
    LaunchAppend(argument, changes_);
    slot.tokens += static_cast<int64_t>(count);
    tokens = tokens.subspan(count);
  }
}

void DeviceSampler::Impl::Rollback(RequestHandle request, int64_t count) {
  CheckNotCalledBack();
  Slot& slot = SlotOf(request);
  if (slot.unread > 0) {
    ThrowInvalid("request", "a request with a step that Get has not answered",
                 "a request with all of its steps answered");
  }
  CheckInRange("count", count, 0, slot.tokens - slot.record.prompt_length);
  if (count == 0) return;
  LaunchRollback(buffers_.store, request.slot, static_cast<int32_t>(count), changes_);
  slot.tokens -= count;
}

DeviceSampler::DeviceSampler(const DeviceSamplerOptions& options, DeviceArray<std::byte> memory) {
  CheckOptions(options);
  impl_ = std::make_unique<Impl>(options, memory);
}
DeviceSampler::~DeviceSampler() = default;

RequestHandle DeviceSampler::Add(const Request& request,
                                 std::span<const DeviceLogitsProcessor> processors) {
  return impl_->Add(request, processors);
}
void DeviceSampler::Remove(RequestHandle request) { impl_->Remove(request); }
int32_t DeviceSampler::FreeSlots() const { return impl_->FreeSlots(); }
uint64_t DeviceSampler::Seed(RequestHandle request) const { return impl_->Seed(request); }
void DeviceSampler::Update(RequestHandle request, const SamplingParams& params) {
  impl_->Update(request, params);
}
StepHandle DeviceSampler::Step(const StepInput& input, void* stream, const LogitsSource& source) {
  return impl_->Step(this, input, stream, source);
}
void DeviceSampler::Accept(RequestHandle request, std::span<const int32_t> tokens) {
  impl_->Accept(request, tokens);
}
void DeviceSampler::Rollback(RequestHandle request, int64_t count) {
  impl_->Rollback(request, count);
}
int64_t DeviceSampler::Waits() const { return impl_->Waits(); }

void StepHandle::Await() const {
  if (sampler_ == nullptr) ThrowInvalid("step", "", "a handle that Step returned");
  RequireCuda(cudaEventSynchronize(static_cast<cudaEvent_t>(copied_)), "event");
}

DeviceStepResult StepHandle::Get() const {
  if (sampler_ == nullptr) ThrowInvalid("step", "", "a handle that Step returned");
  return sampler_->impl_->Get(step_);
}

}  // namespace sluice::cuda
