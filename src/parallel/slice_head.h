// A rank's slice of sampled rows from its certified head: first tokens, and the tokens that may win
// a draw from everything, from planes; the dense head's logits for what they do not decide.
#pragma once

#include <span>
#include <vector>

#include "head/certified/certified_rows.h"
#include "parallel/shard_rank.h"
#include "parallel/slice_source.h"

namespace sluice {

// The memory of calls, the largest so far.
struct SliceHeadMemory {
  std::vector<std::byte> workspace;
  std::vector<float> logits;                 // of opened rows
  std::vector<int64_t> places;               // of a row among them, -1
  std::vector<SliceDraw> draws;              // one a row
  std::vector<uint8_t> is_drawn;             // whether it says anything
  std::vector<std::vector<uint64_t>> lists;  // one a worker
};

struct SliceHeadCall {
  const CertifiedHead& head;
  const CertifiedInput& input;
  std::span<const SelectParams> params;
  std::span<const NoiseKey> keys;
  const Limits& limits;
  DrawMethod method;
  const Execution& execution;
};

class SliceHead final : public SliceSource {
 public:
  SliceHead(const ShardRank& rank, int64_t candidates, const SliceHeadCall& call,
            SliceHeadMemory& memory);

  int64_t ListSize(int64_t row) const override;
  void List(const RankReports& reports) override;
  const SliceDraw* Draw(int64_t row) const override {
    return memory_.is_drawn[static_cast<size_t>(row)] != 0
               ? &memory_.draws[static_cast<size_t>(row)]
               : nullptr;
  }
  void Open(std::span<const int64_t> rows) override;
  semantics::Row Part(int64_t row) const override;

  // Of List and what was opened.
  const CertifiedStats& stats() const { return stats_; }

 private:
  struct Plan {
    bool is_listed;  // from planes
    bool is_drawn;   // from everything
    int64_t wanted;
  };
  Plan PlanOf(int64_t row) const;

  void ListFromPlanes();
  // Why the certificate does not decide what the row needs; kNone: it does.
  DenseReason ListFrom(int64_t row, RowCertificate& certificate, std::byte* memory);
  void ListFromTokens(int64_t row, const CertifiedTokens& all);
  // memory: a token for each of the logits.
  void ListFromLogits(int64_t row, std::span<const float> logits, semantics::Token* memory);
  void Fail(int64_t row, RowStatus status);

  void Put(int64_t row, std::span<const semantics::Token> first, int64_t support);
  float ScoreOf(int64_t row, float x, int32_t local, float max) const;
  bool ListContenders(int64_t row, RowCertificate& certificate, const semantics::Token& first,
                      std::byte* memory);
  SliceDraw& DrawOf(int64_t row);

  const ShardRank& rank_;
  const int64_t candidates_;
  const SliceHeadCall& call_;
  SliceHeadMemory& memory_;
  const int64_t tokens_;  // of the slice
  const int32_t first_id_;
  RankReports reports_;
  CertifiedStats stats_;
};

}  // namespace sluice
