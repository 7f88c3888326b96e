// With the rule of top_a.patch built in: every backend, shards, draws and Explain apply it, and no
// fast path takes a row that has it. Prints what differs; exit status 1 then.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "parallel/first_tokens.h"
#include "sluice/draw.hpp"
#include "sluice/explain.hpp"
#include "sluice/select.hpp"
#include "sluice/shards.hpp"
#include "tests/drill/rows.h"

namespace sluice::drill {
namespace {

int failures = 0;

void Expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what.c_str());
  ++failures;
}

class Workspace {
 public:
  explicit Workspace(size_t bytes) : memory_(bytes + kWorkspaceAlignment) {}
  std::span<std::byte> bytes() {
    void* start = memory_.data();
    size_t room = memory_.size();
    std::align(kWorkspaceAlignment, memory_.size() - kWorkspaceAlignment, start, room);
    return {static_cast<std::byte*>(start), room};
  }

 private:
  std::vector<std::byte> memory_;
};

void RunBackend(const Case& c, const BackendInfo& backend, const std::vector<int32_t>& ids) {
  const std::string name = std::string(c.name) + " on " + std::string(backend.name);
  Execution execution{.backend = backend.backend};
  Workspace workspace(SelectWorkspaceBytes(c.Logits(), execution));
  execution.workspace = workspace.bytes();
  const NoiseKey key{.seed = 7};
  const SelectInput input{c.Logits(), {&c.params, 1}, {&key, 1}};
  Cut cut;
  Select(input, {&cut, 1}, {}, execution);
  std::printf("%s: %d kept\n", name.c_str(), cut.count);
  Expect(cut.count == c.kept, name + ": the rule is ignored");
  CutMass mass;
  Select(input, {&cut, 1}, {&mass, 1}, execution);
  Expect(cut.count == c.kept, name + ", with masses: the rule is ignored");
  for (size_t d = 0; d < ids.size(); ++d) {
    TokenResult result;
    Sample(input, static_cast<DrawMethod>(d), {&result, 1}, execution);
    Expect(result.id == ids[d] && result.cut == cut, name + ": another draw");
  }
}

void RunShards(const Case& c, const std::vector<int32_t>& ids) {
  const NoiseKey key{.seed = 7};
  const LogitsView whole = c.Logits();
  LogitsView left = whole, right = whole;
  left.vocab = 300;
  right.vocab = whole.vocab - left.vocab;
  right.data = static_cast<const float*>(whole.data) + left.vocab;
  const Shard shards[] = {{left, 0}, {right, 300}};
  const ShardInput input{shards, {&c.params, 1}, {&key, 1}};
  Execution execution;
  Workspace workspace(ShardsWorkspaceBytes(input, execution));
  execution.workspace = workspace.bytes();
  Cut cut;
  SelectShards(input, {&cut, 1}, execution);
  Expect(cut.count == c.kept, std::string(c.name) + " on shards: the rule is ignored");
  for (size_t d = 0; d < ids.size(); ++d) {
    TokenResult result;
    SampleShards(input, static_cast<DrawMethod>(d), {&result, 1}, execution);
    Expect(result.id == ids[d], std::string(c.name) + " on shards: another draw");
  }
  // Between processes, and by a certified head: the first tokens do not decide such a row.
  Expect(NeedOf(c.params, key, whole.vocab) == RowNeed::kRow,
         std::string(c.name) + ": ranks do not fetch the row");
  Expect(semantics::FilterClassOf(c.params, DrawMethod::kGumbel, whole.vocab) ==
                 semantics::FilterClass::kMass &&
             !semantics::IsNucleus(c.params),
         std::string(c.name) + ": a certified head takes the row");
}

void RunExplain(const Case& c) {
  ExplainInput input{.logits = c.Logits(), .key = {.seed = 7}};
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  input.params.name = c.params.name;
#include "sluice/params.def"
  const Explanation e = Explain(input, c.dropped);
  Expect(e[Stage::kTopA].is_on && !e.is_kept && e.dropped_by == Stage::kTopA,
         std::string(c.name) + ": Explain does not say that the rule dropped the token");
  std::printf("%s: %s\n", c.name, Sentence(e).c_str());
  Expect(Sentence(e).starts_with("top-a dropped it: its logit is "),
         std::string(c.name) + ": the sentence of Explain");
}

int Run() {
  for (const Case& c : Cases()) {
    const NoiseKey key{.seed = 7};
    Execution execution{.backend = Backend::kRef};
    Workspace workspace(SelectWorkspaceBytes(c.Logits(), execution));
    execution.workspace = workspace.bytes();
    std::vector<int32_t> ids;
    for (const DrawMethod method : {DrawMethod{0}, DrawMethod{1}}) {
      TokenResult result;
      Sample({c.Logits(), {&c.params, 1}, {&key, 1}}, method, {&result, 1}, execution);
      ids.push_back(result.id);
    }
    for (const BackendInfo& backend : Backends()) {
      if (backend.available) RunBackend(c, backend, ids);
    }
    RunShards(c, ids);
    RunExplain(c);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::drill

int main() { return sluice::drill::Run(); }
