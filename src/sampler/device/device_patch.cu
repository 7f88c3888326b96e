// Stages 3 to 9 for the rows of a step, by the definition in semantics/, in two kernels of a block
// a row. The first one needs no logits, and runs while the model computes them: which of the ids
// that the request watches are adjusted, and by what. The second one reads the row at those ids
// alone.
#include "cuda/cuda_check.h"
#include "cuda/ptx.cuh"
#include "sampler/device/device_kernels.h"
#include "semantics/adjust/adjust.h"
#include "semantics/widen.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kApplyThreads = 512;
constexpr int kWarp = 32;
constexpr uint32_t kEndsBadWord = 1u << 31;  // or-ed to the longest repeat that a token extends
// Of a repeat by each thread for itself; to find the longer ones takes one thread, and time that
// grows with the tokens.
constexpr int32_t kMostCompared = 256;

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
  // Of an id that is watched.
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

// By all threads, with a barrier at its begin and its end.
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
// threads, with barriers at its begin and end. A thread looks at some of the places before the end.
// room: as many words as there are tokens.
__device__ void FindRepeats(const RequestRecord& record, const int32_t* lists, Tokens tokens,
                            const Watched& watched, PatchMemory& memory, uint32_t* endings,
                            uint32_t* room) {
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
      min(min(n - 1, memory.last_breaker), static_cast<int32_t>(record.dry_longest));
  if (longest < record.dry_allowed_length) return;
  auto note = [&](int32_t d, int32_t length) {
    if (length < record.dry_allowed_length) return;
    atomicMax(endings + watched.PlaceOf(tokens.FromEnd(d - 1)), static_cast<uint32_t>(length));
  };
  const int32_t compared = min(longest, kMostCompared);
  bool is_longer = false;
  for (int32_t d = 1 + Thread(); d < n; d += kThreads) {
    int32_t length = 0;
    while (length < compared && d + length < n &&
           tokens.FromEnd(length) == tokens.FromEnd(d + length)) {
      ++length;
    }
    is_longer |= length == compared;
    note(d, length);
  }
  if (__syncthreads_or(is_longer && compared < longest) == 0) return;
  if (Thread() == 0) semantics::FindRepeats(tokens, {room, static_cast<size_t>(n)});
  __syncthreads();
  for (int32_t d = 1 + Thread(); d < n; d += kThreads) {
    note(d, min(static_cast<int32_t>(room[d]), longest));
  }
  __syncthreads();
}

__device__ void FindBadWords(const RequestRecord& record, const int32_t* lists,
                             const Tokens& output, const Watched& watched, uint32_t* endings) {
  const int32_t* ids = lists + 2 * record.bias_entries;
  const int32_t* offsets = ids + record.bad_word_ids;
  const semantics::BadWords words{{ids, static_cast<size_t>(record.bad_word_ids)},
                                  {offsets, static_cast<size_t>(record.bad_words) + 1}};
  for (int32_t w = Thread(); w < record.bad_words; w += kThreads) {
    const auto word = words[static_cast<size_t>(w)];
    if (semantics::EndsWith(output, word.first(word.size() - 1))) {
      atomicOr(endings + watched.PlaceOf(word.back()), kEndsBadWord);
    }
  }
  __syncthreads();
}

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

// What becomes of a watched token; no marks: nothing.
__device__ PatchItem ItemOf(const RequestRecord& record, const WatchedToken& token, uint32_t ending,
                            int32_t generated) {
  PatchItem item{token.id, 0, token.in_output, 0.0f};
  if (record.penalty_scope == PenaltyScope::kPromptAndOutput) item.counted += token.in_prompt;
  const bool is_stopped = (token.marks & kStopMark) != 0 && generated < record.min_tokens;
  if (is_stopped || (ending & kEndsBadWord) != 0) item.marks |= kMaskedMark;
  item.marks |= token.marks & (kBiasMark | kAllowedMark);
  const bool is_seen = token.in_prompt + token.in_output > 0 && record.counts_tokens;
  if (is_seen && (item.counted > 0 || record.penalties.repetition != 1.0f)) {
    item.marks |= kSeenMark;
  }
  const uint32_t repeat = ending & ~kEndsBadWord;
  if (repeat > 0) {  // noted where it is long enough
    item.marks |= kRepeatMark;
    item.dry_penalty = semantics::DryPenalty(
        {record.dry_multiplier, record.dry_base, record.dry_allowed_length, record.dry_range, {}},
        repeat);
  }
  return item;
}

__global__ void __launch_bounds__(kThreads)
    PrepareKernel(const __grid_constant__ PatchArgument argument) {
  __shared__ PatchMemory memory;
  const int r = static_cast<int>(blockIdx.x);
  const StepRow row = argument.rows[r];
  const RequestRecord& record = argument.store.records[row.slot];
  const RequestProgress progress = argument.store.progress[row.slot];
  const int32_t* bitmask =
      row.bitmask < 0 ? nullptr : argument.bitmasks + int64_t{row.bitmask} * argument.bitmask_words;
  int32_t* ids = argument.ids + int64_t{r} * argument.max_patch;
  float* values = argument.values + int64_t{r} * argument.max_patch;
  PatchItem* items = argument.items + int64_t{r} * argument.max_patch;
  uint32_t* endings = argument.endings + int64_t{r} * argument.max_patch;
  const int32_t size = progress.tokens + row.depth;
  if (Thread() == 0) {
    argument.params[r] = record.select;
    argument.keys[r] = {record.seed, static_cast<uint32_t>(size), record.choice};
  }
  if (row.forced >= 0) {
    if (Thread() == 0) {
      ids[0] = row.forced;
      items[0] = {row.forced, kForcedMark, 0, 0.0f};
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
  if (argument.trees == nullptr) {
    if (Thread() < row.depth) memory.drafts[Thread()] = argument.drafts[row.first_draft + Thread()];
  } else if (Thread() < kMostDrafts) {
    const uint64_t before = argument.trees[r].before;
    const uint64_t own = uint64_t{1} << Thread();
    if ((before & own) != 0) {
      memory.drafts[__popcll(before & (own - 1))] = argument.drafts[row.first_draft + Thread()];
    }
  }
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
  const bool has_endings = has_dry || record.bad_words > 0;
  if (has_endings) {
    for (int32_t place = Thread(); place < count; place += kThreads) endings[place] = 0;
    __syncthreads();
  }
  if (has_dry) {  // the ids of the patch come later
    uint32_t* const room = reinterpret_cast<uint32_t*>(ids);
    FindRepeats(record, lists, tokens, watched, memory, endings, room);
  }
  if (record.bad_words > 0) FindBadWords(record, lists, output, watched, endings);

  int32_t kept = 0;
#pragma unroll 1
  for (int32_t first = 0; first < count; first += kThreads) {
    const int32_t place = first + Thread();
    PatchItem item = {};
    if (place < count) {
      item = ItemOf(record, watched[place], has_endings ? endings[place] : 0, output.count);
    }
    const bool is_kept =
        record.has_allowed_ids ? (item.marks & kAllowedMark) != 0 : item.marks != 0;
    int32_t all = 0;
    const int32_t before = CountBefore(is_kept, memory, all);
    if (is_kept) {
      ids[kept + before] = item.id;
      items[kept + before] = item;
    }
    kept += all;
  }
  if (Thread() == 0) {
    argument.patches[r] = {ids, values, kept, record.has_allowed_ids, bitmask};
  }
}

// Entries are by id, and of one id in the order of the request.
__device__ float WithBias(const BiasEntry* bias, int32_t size, int32_t id, float x) {
  int32_t begin = 0;
  int32_t end = size;
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (bias[middle].id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  for (; begin < size && bias[begin].id == id; ++begin) x = semantics::Biased(x, bias[begin].bias);
  return x;
}

__global__ void __launch_bounds__(kApplyThreads)
    ApplyKernel(const __grid_constant__ PatchArgument argument) {
  LetNextKernelStart();
  const int r = static_cast<int>(blockIdx.x);
  const int32_t count = argument.patches[r].count;
  const int32_t slot = argument.rows[r].slot;
  const int32_t place_of_bitmask = argument.rows[r].bitmask;
  const RequestRecord& record = argument.store.records[slot];
  const int32_t* bitmask =
      place_of_bitmask < 0 ? nullptr
                           : argument.bitmasks + int64_t{place_of_bitmask} * argument.bitmask_words;
  const PatchItem* items = argument.items + int64_t{r} * argument.max_patch;
  float* values = argument.values + int64_t{r} * argument.max_patch;
  const char* row = static_cast<const char*>(argument.logits) + r * argument.stride_bytes;
  for (int32_t i = Thread(); i < count; i += kApplyThreads) {
    const PatchItem item = items[i];
    float x = semantics::Load(row, argument.dtype, item.id);
    if (bitmask != nullptr && !semantics::BitmaskAllows(bitmask, item.id)) x = -INFINITY;
    if ((item.marks & kMaskedMark) != 0) x = -INFINITY;
    if ((item.marks & kBiasMark) != 0) {
      x = WithBias(reinterpret_cast<const BiasEntry*>(argument.store.ListsOf(slot)),
                   record.bias_entries, item.id, x);
    }
    if ((item.marks & kSeenMark) != 0) {
      x = semantics::Penalized(x, record.penalties, {item.id, 0, item.counted, 0},
                               PenaltyScope::kOutput);
    }
    if ((item.marks & kRepeatMark) != 0) x = x - item.dry_penalty;
    values[i] = (item.marks & kForcedMark) != 0 ? 0.0f : x;
  }
}

}  // namespace

void LaunchPrepare(const PatchArgument& argument, int64_t rows, void* stream) {
  if (rows == 0) return;
  PrepareKernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchApply(const PatchArgument& argument, int64_t rows, void* stream) {
  if (rows == 0) return;
  ApplyKernel<<<static_cast<unsigned>(rows), kApplyThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
