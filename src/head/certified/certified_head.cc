// The certified head: the checks of what it is made of, and the first k tokens.
#include "sluice/certified_head.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "head/certified/certified_rows.h"
#include "head/certified/planes.h"
#include "semantics/row_status.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Token;

// Where the first tokens of each row go.
class TopWriter {
 public:
  explicit TopWriter(const CertifiedTopK& top) : top_(top) {}

  void Write(int64_t row, std::span<const Token> tokens) const {
    top_.status[static_cast<size_t>(row)] = RowStatus::kOk;
    for (int32_t i = 0; i < top_.k; ++i) {
      const bool is_there = i < std::ssize(tokens);
      Set(row, i, is_there ? tokens[static_cast<size_t>(i)] : Token{-semantics::Infinity(), -1});
    }
  }

  void Fail(int64_t row, RowStatus status) const {
    top_.status[static_cast<size_t>(row)] = status;
    for (int32_t i = 0; i < top_.k; ++i) Set(row, i, {semantics::QuietNan(), -1});
  }

  // memory: a token for each of the logits.
  void WriteFirst(int64_t row, std::span<const float> logits, Token* memory) const {
    const semantics::Row view{logits.data(), DType::kF32, std::ssize(logits)};
    if (const RowStatus status = semantics::ScanRow(view).status; status != RowStatus::kOk) {
      return Fail(row, status);
    }
    int64_t size = 0;
    for (int64_t id = 0; id < view.size; ++id) {
      const float x = logits[static_cast<size_t>(id)];
      if (x != -semantics::Infinity()) memory[size++] = {x, static_cast<int32_t>(id)};
    }
    const int64_t kept = std::min<int64_t>(size, top_.k);
    std::partial_sort(memory, memory + kept, memory + size,
                      [](const Token& a, const Token& b) { return semantics::Before(a, b); });
    Write(row, {memory, static_cast<size_t>(kept)});
  }

 private:
  void Set(int64_t row, int32_t i, const Token& token) const {
    const auto at = static_cast<size_t>(row * top_.k + i);
    top_.ids[at] = token.id;
    top_.logits[at] = token.x;
  }

  const CertifiedTopK& top_;
};

// False: not decided.
bool WriteCertified(const TopWriter& writer, int64_t row, int32_t k, RowCertificate& certificate) {
  if (certificate.status() != RowStatus::kOk) {
    writer.Fail(row, certificate.status());
    return true;
  }
  if (const CertifiedTokens* const allowed = certificate.allowed(); allowed != nullptr) {
    writer.Write(row, allowed->span());
    return true;
  }
  const std::optional<CertifiedTokens> top = certificate.Top(k);
  if (top.has_value()) writer.Write(row, top->span());
  return top.has_value();
}

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
  return CertifiedRows::Bytes(*this, rows, execution, 0);
}

CertifiedStats CertifiedHead::TopK(const CertifiedInput& input, const CertifiedTopK& top,
                                   std::span<CertifiedRow> rows, const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckInRange("k", top.k, 1, head_.weight.rows);
  CheckSize("ids", top.ids.size(), input.hidden.rows * top.k);
  CheckSize("logits", top.logits.size(), input.hidden.rows * top.k);
  CheckSize("status", top.status.size(), input.hidden.rows);
  CertifiedRows states(*this, input, rows, execution, 0);
  const TopWriter writer(top);
  ForEachRow(execution.parallel, states.size(), [&](int64_t r, int) {
    const RowStatus status = states.Plan(r, CertifiedRows::Need::kPlanes);
    if (status != RowStatus::kOk) writer.Fail(r, status);
  });
  states.Score();
  ForEachRow(execution.parallel, states.size(), [&](int64_t r, int worker) {
    auto certificate = states.Certificate(r, worker);
    if (!certificate.has_value()) return;
    const bool is_decided = WriteCertified(writer, r, top.k, *certificate);
    states.Close(r, *certificate, is_decided ? DenseReason::kNone : DenseReason::kSurvivors);
  });
  ForEachRow(execution.parallel, states.ProjectRest(), [&](int64_t i, int worker) {
    const CertifiedRows::DenseRow row = states.Logits(i);
    writer.WriteFirst(row.row, row.logits, states.Tokens(worker));
  });
  return states.Finish();
}

}  // namespace sluice
