#include "cli/demo.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/demo_report.h"
#include "cli/demo_row.h"
#include "cli/demo_stages.h"
#include "sluice/shards.hpp"

namespace sluice::cli {
namespace {

// Memory for the calls of the library, at the alignment that they ask for.
struct alignas(kWorkspaceAlignment) WorkspaceLine {
  std::byte bytes[kWorkspaceAlignment];
};

LogitsView RowView(std::span<const float> logits) {
  const auto vocab = static_cast<int64_t>(logits.size());
  return {logits.data(), 1, vocab, vocab};
}

RequestTokens DemoTokens() {
  RequestTokens tokens{{DemoPrompt().begin(), DemoPrompt().end()}, DemoPrompt().size()};
  tokens.ids.insert(tokens.ids.end(), DemoOutput().begin(), DemoOutput().end());
  return tokens;
}

struct Sampled {
  TokenResult token;
  CutMass mass;
  std::vector<float> adjusted;
};

// Samples the request as row `row` of a batch. Its neighbours have the same logits and other seeds.
Sampled SampleInBatch(std::span<const float> logits, const SamplingParams& params, size_t batch,
                      size_t row) {
  Sampler sampler({.vocab = kDemoVocab, .max_requests = static_cast<int32_t>(batch)});
  std::vector<float> rows;
  std::vector<StepRequest> requests;
  for (size_t r = 0; r < batch; ++r) {
    rows.insert(rows.end(), logits.begin(), logits.end());
    Request request{.params = params, .prompt = DemoPrompt()};
    if (r != row) request.params.seed = params.seed.value_or(0) + r + 1;
    requests.push_back({.request = sampler.Add(request)});
    sampler.Accept(requests.back().request, DemoOutput());
  }

  const auto count = static_cast<int64_t>(batch);
  std::vector<TokenResult> tokens(batch);
  std::vector<int32_t> emitted(batch);
  std::vector<CutMass> masses(batch);
  std::vector<float> adjusted(rows.size());
  sampler.Step({{rows.data(), count, kDemoVocab, kDemoVocab}, requests},
               {.tokens = tokens,
                .emitted = emitted,
                .masses = masses,
                .adjusted = {adjusted.data(), count, kDemoVocab, kDemoVocab}});
  const auto begin = adjusted.begin() + static_cast<std::ptrdiff_t>(row * logits.size());
  return {tokens[row], masses[row], {begin, begin + kDemoVocab}};
}

int32_t SampleSharded(std::span<const float> adjusted, const SelectParams& params,
                      const NoiseKey& key, int32_t shards) {
  const int32_t width = kDemoVocab / shards;
  std::vector<Shard> parts;
  for (int32_t s = 0; s < shards; ++s) {
    const int32_t first_id = s * width;
    parts.push_back(
        {RowView(adjusted.subspan(static_cast<size_t>(first_id), static_cast<size_t>(width))),
         first_id});
  }
  TokenResult result;
  SampleShards({parts, {&params, 1}, {&key, 1}, {}}, DrawMethod::kGumbel, {&result, 1}, {});
  return result.id;
}

// Draws from the same Cut at one position after the other, as an engine would if the logits stayed.
void CountDraws(std::span<const float> adjusted, const SelectParams& params, NoiseKey key,
                const Cut& cut, std::vector<DrawScore>& scores) {
  const LogitsView view = RowView(adjusted);
  std::vector<WorkspaceLine> lines(SelectWorkspaceBytes(view, {}) / kWorkspaceAlignment + 1);
  const Execution execution{.workspace = std::as_writable_bytes(std::span(lines))};
  std::vector<int32_t> times_drawn(adjusted.size(), 0);
  for (int32_t n = 0; n < kDemoDraws; ++n, ++key.position) {
    TokenResult result;
    Draw({view, {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, {&cut, 1}, {&result, 1}, execution);
    ++times_drawn[static_cast<size_t>(result.id)];
  }
  for (DrawScore& score : scores) score.times_drawn = times_drawn[static_cast<size_t>(score.id)];
}

int32_t BestScore(std::span<const DrawScore> scores) {
  // The scores come by the total order, which also decides between equal ones: the first wins.
  const auto best =
      std::max_element(scores.begin(), scores.end(),
                       [](const DrawScore& a, const DrawScore& b) { return a.score < b.score; });
  return best->id;
}

DemoReport MakeReport(const DemoOptions& options) {
  DemoReport report;
  report.params = options.params;
  const std::vector<float> logits = DemoLogits();
  const Sampled sampled = SampleInBatch(logits, options.params, 1, 0);
  report.token = sampled.token;
  report.mass = sampled.mass;

  const SelectParams params = options.params.Select();
  const RequestTokens tokens = DemoTokens();
  report.key = {options.params.seed.value_or(0), static_cast<uint32_t>(tokens.ids.size()), 0};
  std::vector<float> adjusted = logits;
  report.adjustments = AdjustStageByStage(adjusted, options.params, tokens, report.off);
  std::vector<semantics::Token> sorted(adjusted.size());
  const semantics::SelectedRow row = semantics::SelectRow(
      {adjusted.data(), DType::kF32, kDemoVocab}, params, report.key, {}, sorted.data());
  if (row.status != RowStatus::kOk) return report;

  report.filters = FilterStages(row, options.params, report.key, report.off);
  report.candidates = TraceCandidates(logits, adjusted, row, params, report.adjustments,
                                      static_cast<size_t>(options.show_candidates));
  report.ties_at_lower = std::count(adjusted.begin(), adjusted.end(), report.token.cut.lower);
  report.scores = ScoreKept(row, params, report.key);
  CountDraws(adjusted, params, report.key, report.token.cut, report.scores);

  auto prove = [&](const char* way, int32_t id, bool also = true) {
    report.proofs.push_back({way, id, id == report.token.id && also});
  };
  prove("the stages above, one by one", BestScore(report.scores),
        adjusted == sampled.adjusted && row.ToCut() == report.token.cut &&
            semantics::MassesOf(row.sorted, params, row.trace) == report.mass);
  prove("the same seed once more", SampleInBatch(logits, options.params, 1, 0).token.id);
  prove("as row 3 of a batch of 4", SampleInBatch(logits, options.params, 4, 2).token.id);
  prove("the vocabulary on 8 shards", SampleSharded(adjusted, params, report.key, 8));
  return report;
}

}  // namespace

SamplingParams DemoParams() {
  SamplingParams params;
  params.temperature = 0.8f;
  params.min_p = 0.05f;
  params.top_k = 8;
  params.top_p = 0.9f;
  params.repetition_penalty = 1.2f;
  params.bad_words = {{kDemoBannedId}};
  params.stop_token_ids = {kDemoEndOfTextId};
  params.seed = 7;
  return params;
}

void RunDemo(const DemoOptions& options, std::ostream& out, const Terminal& terminal) {
  const DemoReport report = MakeReport(options);
  if (options.as_json) {
    PrintDemoJson(report, out);
  } else {
    PrintDemo(report, out, terminal);
  }
  if (report.token.status != RowStatus::kOk) {
    throw std::runtime_error("the row gave no token: " + std::string(Name(report.token.status)));
  }
  for (const Proof& proof : report.proofs) {
    if (!proof.holds) throw std::runtime_error("not the same token: " + proof.way);
  }
}

}  // namespace sluice::cli
