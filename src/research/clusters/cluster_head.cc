// Rows in clusters as a head of the engine.
#include "sluice/research/cluster_head.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "research/clusters/cluster_file.h"
#include "sluice/tokenizer.hpp"
#include "support/check.h"

namespace sluice::research {
namespace {

bool IsLetter(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool IsFine(std::string_view text) {
  const bool is_plain = std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x80 && !IsLetter(byte);
  });
  return is_plain && std::ranges::any_of(text, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte > ' ' && byte < 0x7f;
         });
}

// Of everything but rows of the output matrix.
int64_t BoundBytes(const ClusterView& view) {
  return view.header->centroids * view.header->dim * static_cast<int64_t>(sizeof(float)) +
         std::ssize(view.shapes) * static_cast<int64_t>(sizeof(ClusterShape));
}

}  // namespace

std::vector<int32_t> FineTokens(const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> found;
  const auto end = static_cast<int32_t>(std::min<int64_t>(tokenizer.size(), vocab));
  for (int32_t id = 0; id < end; ++id) {
    if (!tokenizer.Token(id).has_value()) continue;
    if (IsFine(tokenizer.Decode({&id, 1}, false))) found.push_back(id);
  }
  return found;
}

ClusterOptions WithFineTokens(const ClusterOptions& options, std::span<const int32_t> tokens,
                              int64_t vocab) {
  ClusterOptions fine = options;
  const int64_t count = std::ssize(tokens);
  fine.clusters = std::clamp<int64_t>(vocab - count, 1, std::max<int64_t>(options.clusters, 1));
  if (tokens.empty()) return fine;
  fine.fine_tokens = tokens;
  fine.fine_clusters = std::clamp<int64_t>(2 * options.clusters * count / vocab, 1, count);
  return fine;
}

ClusterHead::ClusterHead(const DenseHead& head, HeadClusters clusters, const ClusterBudget& budget,
                         Backend backend)
    : clusters_(std::move(clusters)),
      search_(head, clusters_, budget, backend),
      row_bytes_(head.weight.columns * static_cast<int64_t>(SizeOf(head.weight.dtype))),
      bound_bytes_(BoundBytes(ClusterAccess::View(clusters_))) {}

TopKAnswer ClusterHead::TopK(const MatrixView& hidden, int64_t position, std::span<int32_t> ids,
                             std::span<float> logits) {
  CheckSize("logits", logits.size(), std::ssize(ids));
  const ClusterAnswer answer =
      search_.Search(hidden, {.k = static_cast<int32_t>(ids.size())}, position);
  TopKAnswer result{.holds = answer.ids.size() == ids.size(),
                    .is_whole = answer.path == ClusterPath::kDense,
                    .rows = answer.rows_opened,
                    .bytes = bound_bytes_ + answer.rows_opened * row_bytes_};
  if (result.holds) {
    std::ranges::copy(answer.ids, ids.begin());
    std::ranges::copy(answer.logits, logits.begin());
  }
  return result;
}

}  // namespace sluice::research
