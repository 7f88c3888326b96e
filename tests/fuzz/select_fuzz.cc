// Any bytes as logits and parameters: every way to the kept set and the token agrees.
#include <algorithm>
#include <cmath>
#include <vector>

#include "semantics/validate.h"
#include "semantics/widen.h"
#include "sluice/research/algorithms.hpp"
#include "sluice/sluice.hpp"
#include "tests/fuzz/bytes.h"
#include "tests/support/run.h"

namespace sluice::fuzz {
namespace {

// The status by the definition, written out: the worst trouble of what is not masked.
RowStatus ExpectedStatus(const LogitsView& logits, const SelectParams& params,
                         const Limits& limits) {
  RowStatus status = RowStatus::kEmptySupport;
  bool has_support = false;
  RowStatus worst = RowStatus::kOk;
  for (int64_t i = 0; i < logits.vocab; ++i) {
    const float x = semantics::Load(logits.data, logits.dtype, i);
    if (x == -INFINITY) continue;
    has_support = true;
    if (std::isnan(x)) worst = std::max(worst, RowStatus::kNanInput);
    if (x == INFINITY) worst = std::max(worst, RowStatus::kPosInfInput);
  }
  if (has_support) status = worst;
  return semantics::AreValid(params, limits) ? status : RowStatus::kBadParam;
}

void CheckCollect(const SelectInput& input, const Cut& cut, const CutMass& mass,
                  const std::vector<int32_t>& kept, const Execution& execution) {
  const std::vector<int64_t> offsets = {0, cut.count};
  const size_t count = static_cast<size_t>(cut.count);
  std::vector<int32_t> ids(count);
  std::vector<float> values(count);
  std::vector<uint64_t> weights(count);
  Collect(input, {&cut, 1}, CandidateOrder::kById, {.offsets = offsets, .ids = ids}, execution);
  Check(ids == kept);
  Collect(input, {&cut, 1}, CandidateOrder::kByRank, {offsets, ids, values, weights}, execution);
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += weights[i];
    if (i == 0) continue;
    Check(values[i] < values[i - 1] || (values[i] == values[i - 1] && ids[i] > ids[i - 1]));
    Check(weights[i] <= weights[i - 1]);
  }
  const bool one_temperature =
      input.params[0].profile.temperature_stage == TemperatureStage::kBeforeTruncation;
  Check(!one_temperature || total == mass.kept);
  std::sort(ids.begin(), ids.end());
  Check(ids == kept);
}

void CheckMask(const LogitsView& logits, const Cut& cut, const std::vector<int32_t>& kept) {
  const size_t bytes = static_cast<size_t>(logits.vocab) * SizeOf(logits.dtype);
  const auto* from = static_cast<const std::byte*>(logits.data);
  std::vector<std::byte> copy(from, from + bytes);
  Mask({copy.data(), 1, logits.vocab, logits.vocab, logits.dtype}, {&cut, 1}, {});
  for (int32_t id = 0; id < logits.vocab; ++id) {
    const size_t size = SizeOf(logits.dtype);
    const bool is_kept = std::binary_search(kept.begin(), kept.end(), id);
    if (is_kept || cut.status != RowStatus::kOk) {
      const size_t at = static_cast<size_t>(id) * size;
      Check(std::equal(copy.begin() + static_cast<std::ptrdiff_t>(at),
                       copy.begin() + static_cast<std::ptrdiff_t>(at + size), from + at));
    } else {
      Check(semantics::Load(copy.data(), logits.dtype, id) == -INFINITY);
    }
  }
}

void CheckShards(const SelectInput& input, DrawMethod method, const TokenResult& expected,
                 Bytes& bytes) {
  const LogitsView& row = input.logits;
  std::vector<Shard> shards;
  for (int64_t first = 0; first < row.vocab;) {
    const int64_t width = std::min(bytes.Between(1, 64), row.vocab - first);
    LogitsView part = row;
    part.data =
        static_cast<const std::byte*>(row.data) + static_cast<size_t>(first) * SizeOf(row.dtype);
    part.vocab = width;
    shards.push_back({part, static_cast<int32_t>(first)});
    first += width;
  }
  TokenResult result;
  SampleShards({shards, input.params, input.keys, input.limits}, method, {&result, 1}, {});
  Check(SameBits(result, expected));
}

// The definition by the reference backend against every algorithm of the others.
void CheckAlgorithms(const SelectInput& input, const test::Selection& selection,
                     const Execution& execution) {
  const test::Selection expected = test::Selected(input, Backend::kRef);
  Check(selection.cuts == expected.cuts && selection.masses == expected.masses);
  for (const research::AlgorithmEntry& info : research::Algorithms()) {
    Cut cut;
    CutMass mass;
    research::Select(input, info.algorithm, {&cut, 1}, {&mass, 1}, execution);
    Check(cut == expected.cuts[0] && mass == expected.masses[0]);
    research::Select(input, info.algorithm, {&cut, 1}, {}, execution);
    Check(cut == expected.cuts[0]);
  }
}

void Run(Bytes bytes) {
  const DType dtype = static_cast<DType>(bytes.Between(0, 2));
  const int64_t vocab = bytes.Between(1, 100);
  SelectParams params;
  ReadSelectParams(bytes, &params);
  const NoiseKey key{bytes.Raw<uint64_t>(), bytes.Raw<uint16_t>(), bytes.Raw<uint8_t>()};
  const DrawMethod method = bytes.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
  const Limits limits{.max_temperature = bytes.Coin() ? 2.0f : 1e30f};
  std::vector<float> memory(static_cast<size_t>(vocab));
  FillRow(bytes, dtype, vocab, memory.data());

  const LogitsView logits{memory.data(), 1, vocab, vocab, dtype};
  const SelectInput input{logits, {&params, 1}, {&key, 1}, limits};
  const test::Workspace workspace(SelectWorkspaceBytes(logits, {}));
  const Execution execution{Backend::kAuto, {}, workspace.span()};
  const test::Selection selection = test::Selected(input, Backend::kAuto);
  const Cut& cut = selection.cuts[0];
  Check(cut.status == ExpectedStatus(logits, params, limits));
  CheckAlgorithms(input, selection, execution);

  const std::vector<int32_t> kept = test::KeptIds(logits, selection.cuts, Backend::kAuto)[0];
  Check(static_cast<int32_t>(kept.size()) == cut.count);
  Check((cut.count > 0) == (cut.status == RowStatus::kOk));
  CheckMask(logits, cut, kept);
  const TokenResult result = test::Sampled(input, method, Backend::kAuto)[0];
  TokenResult drawn;
  Draw(input, method, {&cut, 1}, {&drawn, 1}, execution);
  Check(SameBits(drawn, result) && SameBits(result.cut, cut));
  CheckShards(input, method, result, bytes);
  if (cut.status != RowStatus::kOk) {
    Check(result.id == -1 && selection.masses[0] == CutMass{});
    return;
  }
  Check(std::binary_search(kept.begin(), kept.end(), result.id));
  CheckCollect(input, cut, selection.masses[0], kept, execution);
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Run({data, size});
  return 0;
}
