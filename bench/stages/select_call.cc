#include "bench/stages/select_call.h"

#include <algorithm>
#include <memory>

namespace sluice::bench {

SelectCall::SelectCall(const CallSetup& setup) : setup_(setup) {
  // The functions check the view before they answer, so it needs some address that is not null.
  view_ = {this, 1, setup.vocab, setup.vocab, setup.dtype, {}};
  execution_.backend = setup.backend;
  core_ = research::CoreAlgorithm(setup.algorithm);
  if (core_.has_value()) execution_.algorithm = *core_;
  const size_t bytes = SelectWorkspaceBytes(view_, execution_);
  workspace_.resize(bytes + kWorkspaceAlignment);
  void* start = workspace_.data();
  size_t space = workspace_.size();
  std::align(kWorkspaceAlignment, bytes, start, space);
  execution_.workspace = {static_cast<std::byte*>(start), bytes};
}

void SelectCall::Prepare(const void* row, int64_t index) {
  view_.data = row;
  key_.position = static_cast<uint32_t>(index);
  input_ = {view_, {&setup_.params, 1}, {&key_, 1}, {}};
  result_ = {};
}

SelectWork SelectCall::Work() {
  SelectWork work;
  Execution execution = execution_;
  execution.work = {&work, 1};
  RunWith(execution);
  return work;
}

void SelectCall::RunWith(const Execution& execution) {
  if (setup_.draws && core_.has_value()) {
    Sample(input_, setup_.method, {&result_, 1}, execution);
  } else if (setup_.draws) {
    research::Sample(input_, setup_.method, setup_.algorithm, {&result_, 1}, execution);
  } else if (core_.has_value()) {
    Select(input_, {&result_.cut, 1}, {}, execution);
  } else {
    research::Select(input_, setup_.algorithm, {&result_.cut, 1}, {}, execution);
  }
}

void CheckedCall::Compare() {
  if (pending_ >= 0 && pending_ < std::ssize(expected_)) {
    const TokenResult& a = call_.result();
    const TokenResult& b = expected_[static_cast<size_t>(pending_)];
    ++compared_;
    different_ += a.id == b.id && a.status == b.status && a.cut == b.cut ? 0 : 1;
  }
  pending_ = -1;
}

std::vector<TokenResult> Expected(CallSetup setup, const RowStore& store, int64_t rows) {
  setup.backend = Backend::kRef;
  setup.algorithm = research::Algorithm::kAuto;
  std::vector<TokenResult> expected;
  SelectCall call(setup);
  for (int64_t row = 0; row < std::min(rows, store.rows()); ++row) {
    call.Prepare(store.Hot(row), row);
    call.Run();
    expected.push_back(call.result());
  }
  return expected;
}

RowReads ReadsOf(CheckedCall& call, const RowStore& store, int64_t rows) {
  int64_t elements = 0;
  int64_t once = 0;
  for (int64_t row = 0; row < rows; ++row) {
    call.Prepare(store.Hot(row), row);
    const int64_t read = call.Work().elements_read;
    elements += read;
    // A read and what it has collected, which is less than a second one.
    once += read > 0 && read < 2 * store.vocab() ? 1 : 0;
  }
  const auto count = static_cast<double>(rows);
  return {static_cast<double>(elements) / (count * static_cast<double>(store.vocab())),
          static_cast<double>(once) / count};
}

}  // namespace sluice::bench
