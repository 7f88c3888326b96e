#include "bench/select_call.h"

#include <memory>

namespace sluice::bench {

SelectCall::SelectCall(const CallSetup& setup) : setup_(setup) {
  // The functions check the view before they answer, so it needs some address that is not null.
  view_ = {this, 1, setup.vocab, setup.vocab, setup.dtype, {}};
  execution_.backend = setup.backend;
  execution_.algorithm = setup.algorithm;
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
  if (setup_.draws) {
    Sample(input_, setup_.method, {&result_, 1}, execution);
  } else {
    Select(input_, {&result_.cut, 1}, {}, execution);
  }
}

bool AreSame(const TokenResult& a, const TokenResult& b) {
  return a.id == b.id && a.status == b.status && a.cut == b.cut;
}

}  // namespace sluice::bench
