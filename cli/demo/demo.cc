#include "cli/demo/demo.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/demo/demo_report.h"
#include "cli/demo/demo_row.h"
#include "cli/demo/demo_stages.h"
#include "cli/workspace.h"
#include "sluice/shards.hpp"

namespace sluice::cli {
namespace {

LogitsView RowView(std::span<const float> logits) {
  const auto vocab = static_cast<int64_t>(logits.size());
  return {logits.data(), 1, vocab, vocab};
}

std::vector<int32_t> DemoTokens() {
  std::vector<int32_t> tokens(DemoPrompt().begin(), DemoPrompt().end());
  tokens.insert(tokens.end(), DemoOutput().begin(), DemoOutput().end());
  return tokens;
}

struct Sampled {
  TokenResult token;
  CutMass mass;
  std::vector<float> adjusted;
};

// Samples the request as row `row` of a batch. Its neighbours have the same logits and other seeds.
Sampled SampleInBatch(std::span<const float> logits, const SamplingParams& params, Backend backend,
                      size_t batch, size_t row) {
  Sampler sampler(
      {.vocab = kDemoVocab, .max_requests = static_cast<int32_t>(batch), .backend = backend});
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

int32_t SampleSharded(std::span<const float> adjusted, const SamplingParams& params,
                      const NoiseKey& key, int32_t shards) {
  const SelectParams select = params.Select();
  const int32_t width = kDemoVocab / shards;
  std::vector<Shard> parts;
  for (int32_t s = 0; s < shards; ++s) {
    const int32_t first_id = s * width;
    parts.push_back(
        {RowView(adjusted.subspan(static_cast<size_t>(first_id), static_cast<size_t>(width))),
         first_id});
  }
  TokenResult result;
  SampleShards({parts, {&select, 1}, {&key, 1}, {}}, params.draw_method, {&result, 1}, {});
  return result.id;
}

// The row by one of the ways to select.
int32_t SampleBy(std::span<const float> adjusted, const SamplingParams& params, const NoiseKey& key,
                 const ExecutionOptions& execution) {
  const LogitsView view = RowView(adjusted);
  const SelectParams select = params.Select();
  Workspace workspace(view, execution.backend);
  TokenResult result;
  research::Sample({view, {&select, 1}, {&key, 1}}, params.draw_method, execution.algorithm,
                   {&result, 1}, {.backend = execution.backend, .workspace = workspace.span()});
  return result.id;
}

// Draws from the same Cut at one position after the other, as an engine would if the logits stayed.
void CountDraws(std::span<const float> adjusted, const SamplingParams& params, NoiseKey key,
                const Cut& cut, Backend backend, std::vector<DrawScore>& scores) {
  const LogitsView view = RowView(adjusted);
  const SelectParams select = params.Select();
  Workspace workspace(view, backend);
  const Execution execution{.backend = backend, .workspace = workspace.span()};
  std::vector<int32_t> times_drawn(adjusted.size(), 0);
  for (int32_t n = 0; n < kDemoDraws; ++n, ++key.position) {
    TokenResult result;
    Draw({view, {&select, 1}, {&key, 1}}, params.draw_method, {&cut, 1}, {&result, 1}, execution);
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
  const Backend backend = options.execution.backend;
  const Sampled sampled = SampleInBatch(logits, options.params, backend, 1, 0);
  report.token = sampled.token;
  report.mass = sampled.mass;
  report.logprobs = MakeLogprobs(RowView(logits), RowView(sampled.adjusted), options.params,
                                 sampled.token, backend);

  const SelectParams params = options.params.Select();
  const std::vector<int32_t> tokens = DemoTokens();
  report.key = {options.params.seed.value_or(0), static_cast<uint32_t>(tokens.size()), 0};
  std::vector<int32_t> ids(kDemoVocab);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<Explanation> explained = Explain({.logits = RowView(logits),
                                                      .params = options.params,
                                                      .key = report.key,
                                                      .tokens = tokens,
                                                      .prompt_length = DemoPrompt().size()},
                                                     ids);
  std::vector<float> adjusted;
  for (const Explanation& e : explained) adjusted.push_back(e.adjusted);
  report.adjustments = AdjustStages(explained, options.params, report.off);
  std::vector<semantics::Token> sorted(adjusted.size());
  const semantics::SelectedRow row = semantics::SelectRow(
      {adjusted.data(), DType::kF32, kDemoVocab}, params, report.key, {}, sorted.data());
  if (row.status != RowStatus::kOk) return report;

  report.filters = FilterStages(explained.front(), options.params, report.off);
  report.candidates = TraceCandidates(explained, static_cast<size_t>(options.show_candidates));
  report.ties_at_lower = std::count(adjusted.begin(), adjusted.end(), report.token.cut.lower);
  report.scores = ScoreKept(row, params, report.key);
  CountDraws(adjusted, options.params, report.key, report.token.cut, backend, report.scores);

  auto prove = [&](const char* way, int32_t id, bool also = true) {
    report.proofs.push_back({way, id, id == report.token.id && also});
  };
  const bool is_gumbel = options.params.draw_method == DrawMethod::kGumbel;
  prove("the stages above, one by one",
        is_gumbel ? BestScore(report.scores) : explained.front().drawn_id,
        adjusted == sampled.adjusted && row.ToCut() == report.token.cut &&
            semantics::MassesOf(row.sorted, params, row.trace) == report.mass);
  prove("the same seed once more", SampleInBatch(logits, options.params, backend, 1, 0).token.id);
  prove("as row 3 of a batch of 4", SampleInBatch(logits, options.params, backend, 4, 2).token.id);
  prove("the vocabulary on 8 shards", SampleSharded(adjusted, options.params, report.key, 8));
  if (options.execution.algorithm != research::Algorithm::kAuto) {
    prove("the algorithm that was named",
          SampleBy(adjusted, options.params, report.key, options.execution));
  }
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
