// Stages 3 to 9 for the rows of a step, a block a row: the ids that the request watches get their
// values, by the definition in semantics/, and those that differ from what the row has without them
// become its patch. The row itself is read at those ids alone.
#include "backend/cuda_check.h"
#include "pipeline/device_kernels.h"
#include "semantics/adjust.h"
#include "semantics/widen.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr uint32_t kEndsBadWord = 1u << 31;  // beside the longest repeat of a token

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// In shared memory.
struct PatchMemory {
  int32_t drafts[kMostDrafts];  // before the row
  // Those that are not watched yet, ascending, and their places in the list with both.
  int32_t added[kMostDrafts];
  int32_t places[kMostDrafts];
  int32_t added_count;
  int32_t last_breaker;  // how far from the end; the smallest
  int32_t of_warp[kThreads / kWarp];
};

// The tokens of a request and the drafts before the row: what the definition has in one piece.
struct Tokens {
  const int32_t* accepted;
  int32_t accepted_size;
  const int32_t* drafts;
  int32_t first;
  int32_t count;

  __device__ size_t size() const { return static_cast<size_t>(count); }
  __device__ int32_t operator[](size_t i) const {
    const int32_t place = first + static_cast<int32_t>(i);
    return place < accepted_size ? accepted[place] : drafts[place - accepted_size];
  }
  __device__ int32_t FromEnd(int32_t d) const {
    return (*this)[static_cast<size_t>(count - 1 - d)];
  }
  // Without the first ones.
  __device__ Tokens From(int32_t begin) const {
    return {accepted, accepted_size, drafts, first + begin, count - begin};
  }
};

// What is watched, with the drafts before the row.
class Watched {
 public:
  __device__ Watched(const WatchedToken* tokens, int32_t size, const PatchMemory& memory,
                     int32_t drafts)
      : tokens_(tokens), size_(size), memory_(memory), drafts_(drafts) {}

  __device__ int32_t size() const { return size_ + memory_.added_count; }
  // Of an id that is there.
  __device__ int32_t PlaceOf(int32_t id) const {
    int32_t place = LowerBound(tokens_, size_, id);
    for (int32_t i = 0; i < memory_.added_count; ++i) place += memory_.added[i] < id ? 1 : 0;
    return place;
  }
  __device__ WatchedToken operator[](int32_t place) const {
    int32_t before = 0;
    while (before < memory_.added_count && memory_.places[before] < place) ++before;
    const bool is_added = before < memory_.added_count && memory_.places[before] == place;
    WatchedToken token{is_added ? memory_.added[before] : 0, 0, 0, 0};
    if (!is_added) token = tokens_[place - before];
    for (int32_t d = 0; d < drafts_; ++d) token.in_output += memory_.drafts[d] == token.id ? 1 : 0;
    return token;
  }

 private:
  const WatchedToken* tokens_;
  int32_t size_;
  const PatchMemory& memory_;
  int32_t drafts_;
};

// By all threads, with a barrier in front and behind.
__device__ void AddDrafts(PatchMemory& memory, const WatchedToken* tokens, int32_t size,
                          int32_t drafts) {
  const int t = Thread();
  bool is_new = t < drafts;
  if (is_new) {
    const int32_t id = memory.drafts[t];
    const int32_t at = LowerBound(tokens, size, id);
    is_new = !(at < size && tokens[at].id == id);
    for (int32_t d = 0; d < t; ++d) is_new = is_new && memory.drafts[d] != id;
  }
  if (t < kMostDrafts) memory.places[t] = is_new ? 1 : 0;
  __syncthreads();
  int32_t rank = 0;
  if (is_new) {
    for (int32_t d = 0; d < drafts; ++d) {
      rank += memory.places[d] != 0 && memory.drafts[d] < memory.drafts[t] ? 1 : 0;
    }
    memory.added[rank] = memory.drafts[t];
    atomicAdd(&memory.added_count, 1);
  }
  __syncthreads();
  if (t < memory.added_count) memory.places[t] = LowerBound(tokens, size, memory.added[t]) + t;
  __syncthreads();
}

// The longest repeat that each watched token would extend, as far as its length matters. By all
// threads, with barriers in front and behind. A thread looks at some of the places before the end;
// repeats are compared no further than the penalty grows, which bounds the work.
__device__ void FindRepeats(const RequestRecord& record, const int32_t* lists, Tokens tokens,
                            const Watched& watched, PatchMemory& memory, uint32_t* repeats) {
  if (record.dry_range >= 0 && tokens.count > record.dry_range) {
    tokens = tokens.From(tokens.count - record.dry_range);
  }
  const int32_t n = tokens.count;
  const semantics::Dry dry{
      record.dry_multiplier,
      record.dry_base,
      record.dry_allowed_length,
      record.dry_range,
      {lists + 2 * record.bias_entries + record.bad_word_ids + record.bad_words + 1,
       static_cast<size_t>(record.breakers)}};
  if (record.breakers > 0) {
    for (int32_t d = Thread(); d < memory.last_breaker && d < n; d += kThreads) {
      if (semantics::IsBreaker(dry, tokens.FromEnd(d))) atomicMin(&memory.last_breaker, d);
    }
    __syncthreads();
  }
  const int32_t longest =
      min(min(n, memory.last_breaker), static_cast<int32_t>(record.dry_longest));
  for (int32_t d = 1 + Thread(); d < n; d += kThreads) {
    int32_t length = 0;
    while (length < longest && d + length < n &&
           tokens.FromEnd(length) == tokens.FromEnd(d + length)) {
      ++length;
    }
    if (length < record.dry_allowed_length) continue;
    atomicMax(repeats + watched.PlaceOf(tokens.FromEnd(d - 1)), static_cast<uint32_t>(length));
  }
  __syncthreads();
}

__device__ void FindBadWords(const RequestRecord& record, const int32_t* lists,
                             const Tokens& output, const Watched& watched, uint32_t* repeats) {
  const int32_t* ids = lists + 2 * record.bias_entries;
  const int32_t* offsets = ids + record.bad_word_ids;
  const semantics::BadWords words{{ids, static_cast<size_t>(record.bad_word_ids)},
                                  {offsets, static_cast<size_t>(record.bad_words) + 1}};
  for (int32_t w = Thread(); w < record.bad_words; w += kThreads) {
    const auto word = words[static_cast<size_t>(w)];
    if (semantics::EndsWith(output, word.first(word.size() - 1))) {
      atomicOr(repeats + watched.PlaceOf(word.back()), kEndsBadWord);
    }
  }
  __syncthreads();
}

// The value of a watched token before any stage, and behind all of them.
struct RowValues {
  const PatchArgument& argument;
  const RequestRecord& record;
  const char* row;
  const int32_t* bitmask;
  std::span<const BiasEntry> bias;  // by id
  int32_t generated;

  __device__ float Raw(int32_t id) const {
    if (bitmask != nullptr && !semantics::BitmaskAllows(bitmask, id)) return -INFINITY;
    return semantics::Load(row, argument.dtype, id);
  }

  // Whether a token may have another value than Raw. repeat: with the mark of bad words.
  __device__ bool IsAdjusted(const WatchedToken& token, uint32_t repeat) const {
    if (token.marks != 0 || repeat != 0) return true;
    return (token.in_prompt + token.in_output > 0 && record.penalties.repetition != 1.0f) ||
           Count(token).in_output > 0 ||
           (record.penalty_scope == PenaltyScope::kPromptAndOutput && token.in_prompt > 0);
  }

  __device__ float Adjusted(const WatchedToken& token, float x, uint32_t repeat) const {
    if (record.has_allowed_ids && (token.marks & kAllowedMark) == 0) x = -INFINITY;
    if ((repeat & kEndsBadWord) != 0) x = -INFINITY;
    if ((token.marks & kStopMark) != 0 && generated < record.min_tokens) x = -INFINITY;
    if ((token.marks & kBiasMark) != 0) x = WithBias(token.id, x);
    if (token.in_prompt + token.in_output > 0 && record.counts_tokens) {
      x = semantics::Penalized(x, record.penalties, Count(token), record.penalty_scope);
    }
    const uint32_t length = repeat & ~kEndsBadWord;
    if (length > 0) {  // noted where it is long enough
      const semantics::Dry dry{
          record.dry_multiplier, record.dry_base, record.dry_allowed_length, record.dry_range, {}};
      x = x - semantics::DryPenalty(dry, length);
    }
    return x;
  }

 private:
  __device__ static semantics::TokenCount Count(const WatchedToken& token) {
    return {token.id, token.in_prompt, token.in_output, 0};
  }
  __device__ float WithBias(int32_t id, float x) const {
    size_t begin = 0;
    size_t end = bias.size();
    while (begin < end) {
      const size_t middle = begin + (end - begin) / 2;
      if (bias[middle].id < id) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    for (; begin < bias.size() && bias[begin].id == id; ++begin) {
      x = semantics::Biased(x, bias[begin].bias);
    }
    return x;
  }
};

// How many threads before this one say yes; `all`: of the block. With barriers inside.
__device__ int32_t CountBefore(bool yes, PatchMemory& memory, int32_t& all) {
  const int warp = Thread() / kWarp;
  const uint32_t ballot = __ballot_sync(~0u, yes);
  if (Thread() % kWarp == 0) memory.of_warp[warp] = __popc(ballot);
  __syncthreads();
  int32_t before = __popc(ballot & ((1u << (Thread() % kWarp)) - 1));
  all = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    before += w < warp ? memory.of_warp[w] : 0;
    all += memory.of_warp[w];
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kThreads)
    PatchKernel(const __grid_constant__ PatchArgument argument) {
  __shared__ PatchMemory memory;
  const int r = static_cast<int>(blockIdx.x);
  const StepRow row = argument.rows[r];
  const RequestRecord& record = argument.store.records[row.slot];
  const RequestProgress progress = argument.store.progress[row.slot];
  const int32_t* bitmask =
      row.bitmask < 0 ? nullptr : argument.bitmasks + int64_t{row.bitmask} * argument.bitmask_words;
  int32_t* ids = argument.ids + int64_t{r} * argument.max_patch;
  float* values = argument.values + int64_t{r} * argument.max_patch;
  uint32_t* repeats = argument.repeats + int64_t{r} * argument.max_patch;
  const int32_t size = progress.tokens + row.depth;
  if (Thread() == 0) {
    argument.params[r] = record.select;
    argument.keys[r] = {record.seed, static_cast<uint32_t>(size), record.choice};
  }
  if (row.forced >= 0) {
    if (Thread() == 0) {
      ids[0] = row.forced;
      values[0] = 0.0f;
      argument.patches[r] = {ids, values, 1, true, nullptr};
    }
    return;
  }
  if (!record.has_patch) {
    if (Thread() == 0) argument.patches[r] = {nullptr, nullptr, 0, false, bitmask};
    return;
  }

  const WatchedToken* list = argument.store.WatchedOf(row.slot);
  const int32_t* lists = argument.store.ListsOf(row.slot);
  if (Thread() < row.depth) memory.drafts[Thread()] = argument.drafts[row.first_draft + Thread()];
  if (Thread() == 0) {
    memory.added_count = 0;
    memory.last_breaker = INT32_MAX;
  }
  __syncthreads();
  if (record.counts_tokens && row.depth > 0) AddDrafts(memory, list, progress.watched, row.depth);
  const Watched watched(list, progress.watched, memory, record.counts_tokens ? row.depth : 0);
  const int32_t count = watched.size();
  const Tokens tokens{argument.store.TokensOf(row.slot), progress.tokens, memory.drafts, 0, size};
  const Tokens output = tokens.From(record.prompt_length);
  const bool has_dry = record.dry_multiplier != 0.0f;
  const bool has_repeats = has_dry || record.bad_words > 0;
  if (has_repeats) {
    for (int32_t place = Thread(); place < count; place += kThreads) repeats[place] = 0;
    __syncthreads();
  }
  if (has_dry) FindRepeats(record, lists, tokens, watched, memory, repeats);
  if (record.bad_words > 0) FindBadWords(record, lists, output, watched, repeats);

  const RowValues row_values{
      argument,
      record,
      static_cast<const char*>(argument.logits) + r * argument.stride_bytes,
      bitmask,
      {reinterpret_cast<const BiasEntry*>(lists), static_cast<size_t>(record.bias_entries)},
      output.count};
  int32_t kept = 0;
#pragma unroll 1
  for (int32_t first = 0; first < count; first += kThreads) {
    const int32_t place = first + Thread();
    bool differs = false;
    float x = 0.0f;
    int32_t id = 0;
    if (place < count) {
      const WatchedToken token = watched[place];
      const uint32_t repeat = has_repeats ? repeats[place] : 0;
      id = token.id;
      if (row_values.IsAdjusted(token, repeat)) {
        const float raw = row_values.Raw(id);
        x = row_values.Adjusted(token, raw, repeat);
        const float otherwise = record.has_allowed_ids ? -INFINITY : raw;
        differs = semantics::BitsOf(x) != semantics::BitsOf(otherwise);
      }
    }
    int32_t all = 0;
    const int32_t before = CountBefore(differs, memory, all);
    if (differs) {
      ids[kept + before] = id;
      values[kept + before] = x;
    }
    kept += all;
  }
  if (Thread() == 0) {
    argument.patches[r] = {ids, values, kept, record.has_allowed_ids, bitmask};
  }
}

}  // namespace

void LaunchPatch(const PatchArgument& argument, int64_t rows, void* stream) {
  if (rows == 0) return;
  PatchKernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
