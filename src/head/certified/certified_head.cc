// The certified head: the checks of what it is made of, and the first k tokens. Draws are
// sampler/certified/certified_sample.cc.
#include "sluice/certified_head.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "head/certified/certified_call.h"
#include "head/certified/planes.h"
#include "semantics/row_status.h"
#include "support/check.h"

namespace sluice {
namespace {

using semantics::Token;

class TopKQuestion : public RowQuestion {
 public:
  explicit TopKQuestion(const CertifiedTopK& top) : top_(top) {}

  Need Prepare(int64_t) override { return Need::kPlanes; }

  DenseReason Certify(int64_t row, RowCertificate& certificate, std::byte*) override {
    TopTokens top;
    if (!certificate.Top(top_.k, top)) return DenseReason::kSurvivors;
    Write(row, top.tokens);
    return DenseReason::kNone;
  }

  void FromTokens(int64_t row, const TopTokens& all, std::byte*) override {
    Write(row, all.tokens);
  }

  void FromLogits(int64_t row, std::span<const float> logits, const RowMemory& memory,
                  std::byte*) override {
    const semantics::Row view{logits.data(), DType::kF32, std::ssize(logits)};
    if (const RowStatus status = semantics::ScanRow(view).status; status != RowStatus::kOk) {
      return Fail(row, status);
    }
    int64_t size = 0;
    for (int64_t id = 0; id < view.size; ++id) {
      const float x = logits[static_cast<size_t>(id)];
      if (x != -semantics::Infinity()) memory.tokens[size++] = {x, static_cast<int32_t>(id)};
    }
    const int64_t kept = std::min<int64_t>(size, top_.k);
    std::partial_sort(memory.tokens, memory.tokens + kept, memory.tokens + size,
                      [](const Token& a, const Token& b) { return semantics::Before(a, b); });
    Write(row, {memory.tokens, static_cast<size_t>(kept)});
  }

  void Fail(int64_t row, RowStatus status) override {
    top_.status[static_cast<size_t>(row)] = status;
    for (int32_t i = 0; i < top_.k; ++i) Set(row, i, {semantics::QuietNan(), -1});
  }

 private:
  void Set(int64_t row, int32_t i, const Token& token) {
    const auto at = static_cast<size_t>(row * top_.k + i);
    top_.ids[at] = token.id;
    top_.logits[at] = token.x;
  }
  void Write(int64_t row, std::span<const Token> tokens) {
    top_.status[static_cast<size_t>(row)] = RowStatus::kOk;
    for (int32_t i = 0; i < top_.k; ++i) {
      const bool is_there = i < std::ssize(tokens);
      Set(row, i, is_there ? tokens[static_cast<size_t>(i)] : Token{-semantics::Infinity(), -1});
    }
  }

  const CertifiedTopK& top_;
};

}  // namespace

CertifiedHead::CertifiedHead(const DenseHead& head, HeadPlanes planes)
    : head_(head), planes_(std::move(planes)) {
  CheckMatrix("head.weight", "dim", head.weight, int64_t{1} << 20);
  CheckInRange("head.weight.rows", head.weight.rows, planes_.vocab(), planes_.vocab());
  CheckInRange("head.weight.dim", head.weight.columns, planes_.dim(), planes_.dim());
  CheckDType("head.weight", head.weight.dtype,
             static_cast<DType>(PlaneAccess::Header(planes_).dtype));
  if (!head.bias.empty()) CheckSize("head.bias", head.bias.size(), head.weight.rows);
  for (size_t v = 0; v < head.bias.size(); ++v) {
    if (std::isfinite(head.bias[v])) continue;
    ThrowInvalid("head.bias[" + std::to_string(v) + "]", ToText(static_cast<double>(head.bias[v])),
                 "a finite number");
  }
}

size_t CertifiedHead::TopKWorkspaceBytes(int64_t rows, const Execution& execution) const {
  return CertifiedCallBytes(*this, rows, execution, 0);
}

CertifiedStats CertifiedHead::TopK(const CertifiedInput& input, const CertifiedTopK& top,
                                   std::span<CertifiedRow> rows, const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckInRange("k", top.k, 1, head_.weight.rows);
  CheckSize("ids", top.ids.size(), input.hidden.rows * top.k);
  CheckSize("logits", top.logits.size(), input.hidden.rows * top.k);
  CheckSize("status", top.status.size(), input.hidden.rows);
  TopKQuestion question(top);
  return RunCertifiedCall(*this, input, question, rows, execution, 0);
}

}  // namespace sluice
