// Draft verification for whole requests: rows are walked until the first disagreement.
#include "sluice/verify.hpp"

#include "draw/draw_table.h"
#include "semantics/cut.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {
namespace {

// One row of a SelectInput as an input of its own.
SelectInput RowOf(const SelectInput& input, int64_t row) {
  SelectInput one = input;
  one.logits.data = input.logits.Row(row);
  one.logits.rows = 1;
  one.params = {&PerRow(input.params, row), 1};
  if (!input.keys.empty()) one.keys = {&PerRow(input.keys, row), 1};
  return one;
}

void CheckDrafts(const SelectInput& target, const Drafts& drafts, DraftMode mode,
                 std::span<int32_t> emitted, const Execution& execution) {
  const int64_t rows = target.logits.rows;
  const int64_t vocab = target.logits.vocab;
  CheckSize("drafts.ids", drafts.ids.size(), rows);
  CheckSize("emitted", emitted.size(), static_cast<int64_t>(drafts.first_row.size()) - 1);
  CheckInRange("drafts.first_row[0]", drafts.first_row.front(), 0, 0);
  CheckInRange("drafts.first_row[requests]", drafts.first_row.back(), rows, rows);
  for (size_t r = 0; r + 1 < drafts.first_row.size(); ++r) {
    const int64_t first = drafts.first_row[r];
    const int64_t end = drafts.first_row[r + 1];
    CheckInRange("drafts.first_row", end, first + 1, rows);
    const int64_t last = end - 1;  // the bonus row
    for (int64_t row = first; row < last; ++row) {
      CheckInRange("drafts.ids", drafts.ids[static_cast<size_t>(row)], 0, vocab - 1);
    }
  }
  if (mode == DraftMode::kMatch) return;
  const bool given = drafts.probabilities.data != nullptr;
  const bool has_model = drafts.model.logits.data != nullptr;
  if (given && has_model) {
    ThrowInvalid("drafts.probabilities", "given with drafts.model", "at most one of the two");
  }
  if (given) {
    CheckMatrix("drafts.probabilities", "columns", drafts.probabilities, kMaxVocab);
    CheckDType("drafts.probabilities", drafts.probabilities.dtype, DType::kF32);
    CheckInRange("drafts.probabilities.rows", drafts.probabilities.rows, rows, rows);
    CheckInRange("drafts.probabilities.columns", drafts.probabilities.columns, vocab, vocab);
  }
  if (has_model) {
    CheckSelectInput("drafts.model", drafts.model, execution, 0);
    CheckInRange("drafts.model.logits.rows", drafts.model.logits.rows, rows, rows);
    CheckInRange("drafts.model.logits.vocab", drafts.model.logits.vocab, vocab, vocab);
    CheckSize("drafts.model_cuts", drafts.model_cuts.size(), rows);
  }
}

}  // namespace

size_t VerifyWorkspaceBytes(const LogitsView& logits, const Execution& execution) {
  return SelectWorkspaceBytes(logits, execution);
}

void Verify(const SelectInput& target, const Drafts& drafts, DraftMode mode, DrawMethod method,
            std::span<TokenResult> results, std::span<int32_t> emitted,
            const Execution& execution) {
  CheckLogits("target.logits", target.logits);
  CheckSelectInput("target", target, execution, VerifyWorkspaceBytes(target.logits, execution));
  CheckInRange("mode", static_cast<int64_t>(mode), 0, 1);
  CheckMethod(method);
  CheckPerRow("target.keys", target.keys.size(), target.logits.rows);
  CheckSize("results", results.size(), target.logits.rows);
  if (drafts.first_row.empty()) ThrowInvalid("drafts.first_row", "empty", "requests + 1 elements");
  CheckDrafts(target, drafts, mode, emitted, execution);

  const Backend backend = ResolveBackend(execution.backend);
  const DrawTable& table = DrawTableFor(backend);
  const size_t bytes =
      SelectWorkspaceBytes({nullptr, 0, target.logits.vocab, target.logits.vocab}, {backend});
  ForEachRow(execution.parallel, static_cast<int64_t>(emitted.size()), [&](int64_t r, int worker) {
    const Execution serial{backend, {}, {WorkerWorkspace(execution, bytes, worker), bytes}};
    const int64_t first = drafts.first_row[static_cast<size_t>(r)];
    const int64_t last = drafts.first_row[static_cast<size_t>(r) + 1] - 1;
    int32_t& count = emitted[static_cast<size_t>(r)];
    count = 0;
    bool goes_on = true;
    for (int64_t row = first; row <= last; ++row) {
      TokenResult& result = results[static_cast<size_t>(row)];
      result = TokenResult{};
      if (!goes_on) continue;
      const SelectInput one = RowOf(target, row);
      const int32_t draft = drafts.ids[static_cast<size_t>(row)];
      if (row == last || mode == DraftMode::kMatch) {
        Sample(one, method, {&result, 1}, serial);
        goes_on = row < last && result.id == draft;
      } else {
        Select(one, {&result.cut, 1}, {}, serial);
        result.status = result.cut.status;
        if (result.status == RowStatus::kOk) {
          SelectInput draft_row;
          DraftToTry one_draft{draft, {}};
          DraftSource& source = one_draft.source;
          if (drafts.probabilities.data != nullptr) {
            source.probabilities = static_cast<const float*>(drafts.probabilities.Row(row));
          } else if (drafts.model.logits.data != nullptr) {
            draft_row = RowOf(drafts.model, row);
            source.model = &draft_row;
            source.cut = &drafts.model_cuts[static_cast<size_t>(row)];
          }
          const Verdict verdict = table.verify(one, result.cut, {&one_draft, 1});
          result.id = verdict.id;
          result.status = verdict.status;
          if (result.status != RowStatus::kOk) result.cut = semantics::CutOfStatus(result.status);
          goes_on = verdict.accepted == 0;
        } else {
          goes_on = false;
        }
      }
      if (result.status == RowStatus::kOk) ++count;
    }
  });
}

}  // namespace sluice
