#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

constexpr uint32_t kEnd = UINT32_MAX;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// Up to here, looking at all pairs for each merge is quicker than a heap.
constexpr size_t kShort = 48;

}  // namespace

Bpe::Bpe(BpeOptions options, TokenMap tokens, const std::vector<BpeMerge>& merges, int32_t size)
    : options_(std::move(options)),
      tokens_(std::move(tokens)),
      merges_(merges.size()),
      shortcuts_(static_cast<size_t>(size)) {
  for (const BpeMerge& merge : merges) {
    CheckInRange("merge.rank", merge.rank, 0, int64_t{MergeMap::kNone} - 1);
    merges_.Add(merge.left, merge.right, merge.rank);
    if (merge.rank >= merged_.size()) merged_.resize(merge.rank + 1, -1);
    merged_[merge.rank] = merge.merged;
  }
  cuts_at_marks_ = CutsAtMarks(merges);
  byte_ids_ = ByteIds(tokens_);
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (options_.is_byte_level) byte_ids_[byte] = tokens_.Find({&c, 1});
    if (byte < 128) ascii_ids_[byte] = tokens_.Find({&c, 1});
  }
}

// Merges act between neighbours only, so that where none can ever join two of them, what is on each
// side is encoded on its own. An affix, and a piece that is a token, look at the whole piece; where
// unknown characters are dropped, marks on both sides become neighbours.
bool Bpe::CutsAtMarks(const std::vector<BpeMerge>& merges) const {
  if (options_.is_byte_level || options_.ignores_merges || !options_.prefix.empty() ||
      !options_.suffix.empty() || options_.unknown_id < 0 || tokens_.Find(kSpaceMark) < 0) {
    return false;
  }
  std::vector<bool> begins(shortcuts_.size());
  std::vector<bool> ends(shortcuts_.size());
  tokens_.ForEach([&](std::string_view token, int32_t id) {
    begins[static_cast<size_t>(id)] = token.starts_with(kSpaceMark);
    ends[static_cast<size_t>(id)] = token.ends_with(kSpaceMark);
  });
  return std::none_of(merges.begin(), merges.end(), [&](const BpeMerge& merge) {
    return begins[static_cast<size_t>(merge.right)] && !ends[static_cast<size_t>(merge.left)];
  });
}

void Bpe::Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  if (!cuts_at_marks_) return EncodeWord(piece, scratch, ids);
  size_t begin = 0;
  for (size_t at = piece.find(kSpaceMark, 1); at != std::string_view::npos;
       at = piece.find(kSpaceMark, at + kSpaceMark.size())) {
    // Marks in a row may be one token.
    if (piece.substr(begin, at - begin).ends_with(kSpaceMark)) continue;
    EncodeWord(piece.substr(begin, at - begin), scratch, ids);
    begin = at;
  }
  EncodeWord(piece.substr(begin), scratch, ids);
}

void Bpe::EncodeWord(std::string_view piece, ModelScratch& scratch,
                     std::vector<int32_t>& ids) const {
  const bool may_be_token = options_.ignores_merges || piece.size() <= kShort;
  const int32_t id = may_be_token ? tokens_.Find(piece) : -1;
  if (id < 0) return EncodeByMerging(piece, scratch, ids);
  std::atomic<Shortcut>& shortcut = shortcuts_[static_cast<size_t>(id)];
  const Shortcut known = shortcut.load(std::memory_order_relaxed);
  if (options_.ignores_merges || known == Shortcut::kYes) {
    ids.push_back(id);
    return;
  }
  const size_t before = ids.size();
  EncodeByMerging(piece, scratch, ids);
  if (known == Shortcut::kUnknown) {
    const bool is_itself = ids.size() == before + 1 && ids.back() == id;
    shortcut.store(is_itself ? Shortcut::kYes : Shortcut::kNo, std::memory_order_relaxed);
  }
}

void Bpe::EncodeByMerging(std::string_view piece, ModelScratch& scratch,
                          std::vector<int32_t>& ids) const {
  if (piece.size() >= kEnd) ThrowInvalid("text.size()", "4 GiB or more", "less");
  Start(piece, scratch);
  if (scratch.symbols.size() <= kShort) {
    MergeShort(scratch);
    for (const auto& symbol : scratch.symbols) ids.push_back(symbol.id);
    return;
  }
  MergeLong(scratch);
  for (uint32_t at = 0; at != kEnd; at = scratch.symbols[at].next) {
    ids.push_back(scratch.symbols[at].id);
  }
}

void Bpe::Start(std::string_view piece, ModelScratch& scratch) const {
  std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  if (options_.is_byte_level) {
    AddBytes(piece, scratch);
  } else {
    AddCharacters(piece, scratch);
  }
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    symbols[i].rank = merges_.Find(symbols[i].id, symbols[i + 1].id);
  }
}

void Bpe::AddBytes(std::string_view piece, ModelScratch& scratch) const {
  bool was_unknown = false;
  for (const char c : piece) {
    int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const bool is_unknown = id < 0;
    if (is_unknown) {
      id = options_.unknown_id;
      if (id < 0 || (was_unknown && options_.fuses_unknown)) continue;
    }
    was_unknown = is_unknown;
    scratch.symbols.push_back({id, MergeMap::kNone, 0, 0});
  }
}

// An unknown character waits, so that its neighbours can join it, and precedes the next known one;
// bytes that stand for a character do not count as known.
void Bpe::AddCharacters(std::string_view piece, ModelScratch& scratch) const {
  std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
  const auto add = [&](int32_t id) { symbols.push_back({id, MergeMap::kNone, 0, 0}); };
  bool has_unknown = false;
  size_t at = 0;
  ForEachCharacter(piece, [&](uint32_t c, std::string_view bytes) {
    const bool is_first = at == 0;
    at += bytes.size();
    const bool is_last = at == piece.size();
    std::string_view symbol = bytes;
    int32_t id;
    const bool has_prefix = !is_first && !options_.prefix.empty();
    const bool has_suffix = is_last && !options_.suffix.empty();
    if (has_prefix || has_suffix) {
      scratch.text.assign(has_prefix ? options_.prefix : "").append(bytes);
      if (has_suffix) scratch.text.append(options_.suffix);
      symbol = scratch.text;
      id = tokens_.Find(symbol);
    } else {
      id = c < 128 ? ascii_ids_[c] : tokens_.Find(symbol);
    }
    if (id >= 0) {
      if (std::exchange(has_unknown, false)) add(options_.unknown_id);
      add(id);
      return;
    }
    const bool has_bytes =
        options_.has_byte_fallback && std::all_of(symbol.begin(), symbol.end(), [&](char b) {
          return byte_ids_[static_cast<uint8_t>(b)] >= 0;
        });
    if (has_bytes) {
      for (const char b : symbol) add(byte_ids_[static_cast<uint8_t>(b)]);
      return;
    }
    if (options_.unknown_id < 0) return;
    if (has_unknown && !options_.fuses_unknown) add(options_.unknown_id);
    has_unknown = true;
  });
  if (has_unknown) add(options_.unknown_id);
}

void Bpe::MergeShort(ModelScratch& scratch) const {
  std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == MergeMap::kNone) return;
    symbols[best].id = merged_[symbols[best].rank];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    const auto find = [&](size_t i) {
      symbols[i].rank =
          i + 1 < symbols.size() ? merges_.Find(symbols[i].id, symbols[i + 1].id) : MergeMap::kNone;
    };
    find(best);
    if (best > 0) find(best - 1);
  }
}

void Bpe::MergeLong(ModelScratch& scratch) const {
  std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
  using Candidate = ModelScratch::Candidate;
  std::vector<Candidate>& heap = scratch.heap;
  const auto is_later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap.clear();
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = i == 0 ? kEnd : i - 1;
    symbols[i].next = i + 1 == symbols.size() ? kEnd : i + 1;
    if (symbols[i].rank != MergeMap::kNone) heap.push_back({symbols[i].rank, i});
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  const auto find = [&](uint32_t at) {
    ModelScratch::Symbol& symbol = symbols[at];
    symbol.rank =
        symbol.next == kEnd ? MergeMap::kNone : merges_.Find(symbol.id, symbols[symbol.next].id);
    if (symbol.rank == MergeMap::kNone) return;
    heap.push_back({symbol.rank, at});
    std::push_heap(heap.begin(), heap.end(), is_later);
  };
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), is_later);
    heap.pop_back();
    ModelScratch::Symbol& left = symbols[top.at];
    if (left.rank != top.rank) continue;  // one of the two has merged with another since
    ModelScratch::Symbol& right = symbols[left.next];
    left.id = merged_[top.rank];
    right.rank = MergeMap::kNone;
    left.next = right.next;
    if (left.next != kEnd) symbols[left.next].previous = top.at;
    find(top.at);
    if (left.previous != kEnd) find(left.previous);
  }
}

}  // namespace sluice::text
