#include "engine/runner/head_stage.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/clock.h"
#include "sampler/request_state.h"
#include "semantics/filters/filter_class.h"
#include "sluice/certified_sample.hpp"
#include "sluice/select.hpp"

namespace sluice::engine {
namespace {

// Rows that are projected together at least: the head's weights are read once for them.
constexpr int64_t kScoredRows = 16;

void Add(const CertifiedStats& call, CertifiedStats& sum) {
  sum.least_margin =
      sum.rows == 0 ? call.least_margin : std::min(sum.least_margin, call.least_margin);
  sum.rows += call.rows;
  sum.dense_rows += call.dense_rows;
  sum.survivors += call.survivors;
  sum.bytes_read += call.bytes_read;
  sum.dense_bytes += call.dense_bytes;
}

// Entries that the lists of the rows have, so that lists without a reader cost nothing.
template <typename Row>
int32_t WidestLists(std::span<const Row> rows, int64_t vocab) {
  int64_t widest = 0;
  for (const Row& row : rows) {
    const std::optional<int32_t>& listed = row.params->logprobs;
    if (listed.has_value()) widest = std::max(widest, 1 + (*listed < 0 ? vocab : *listed));
  }
  return static_cast<int32_t>(widest);
}

// Why the head for the first k tokens cannot serve. Its row has no other logits to report.
DenseCause CauseForTopK(const SamplingParams& params, int64_t output_length, int64_t vocab,
                        float logit_softcap, const GenerationReports& reports) {
  if (logit_softcap != 0.0f) return DenseCause::kSoftCap;
  if (params.logprobs.has_value() || reports.logits) return DenseCause::kLogprobs;
  if (ChangesLogits(params, output_length)) return DenseCause::kAdjustments;
  // A cut that keeps every token equal to the k-th needs those after it.
  if (params.temperature > 0.0f && params.profile.ties == Ties::kAll) return DenseCause::kMass;
  const bool is_first = semantics::FilterClassOf(params.Select(), params.draw_method, vocab) ==
                        semantics::FilterClass::kFirst;
  return is_first && !reports.HasSets() ? DenseCause::kNone : DenseCause::kMass;
}

}  // namespace

DenseCause CauseOf(const SamplingParams& params, int64_t output_length, int64_t vocab,
                   float logit_softcap, const GenerationReports& reports) {
  if (logit_softcap != 0.0f) return DenseCause::kSoftCap;
  if (params.logprobs.has_value()) return DenseCause::kLogprobs;
  if ((reports.kept || reports.masses) && ChangesLogits(params, output_length)) {
    return DenseCause::kAdjustments;
  }
  const SelectParams select = params.Select();
  if (semantics::FilterClassOf(select, params.draw_method, vocab) !=
      semantics::FilterClass::kMass) {
    return DenseCause::kNone;
  }
  // The token of a nucleus alone is known for little (docs/certified-head-scope.md); its Cut is
  // not.
  const bool is_token_alone =
      semantics::IsNucleus(select) && params.draw_method == DrawMethod::kGumbel &&
      !Has(semantics::RulesOf(select), semantics::Filter::kXtc) && !reports.HasSets();
  return is_token_alone ? DenseCause::kNone : DenseCause::kMass;
}

void HeadResults::Resize(size_t rows, size_t vocab, int32_t width,
                         const GenerationReports& reports) {
  const size_t lists = rows * static_cast<size_t>(width);
  logprob_width = width;
  tokens.assign(rows, {});
  certificates.assign(rows, {});
  logprob_ids.assign(lists, -1);
  logprob_values.assign(lists, std::numeric_limits<float>::quiet_NaN());
  if (reports.logits) logits.resize(rows * vocab);
  if (reports.kept) kept.resize(rows * ((vocab + 31) / 32));
  if (reports.masses) masses.assign(rows, {});
}

HeadStage::HeadStage(const HeadStageOptions& options)
    : options_(options), vocab_(static_cast<size_t>(options.head.weight.rows)) {
  const DenseHead& head = options_.head;
  const auto rows = static_cast<size_t>(options_.max_rows);
  const Execution execution{options_.backend, options_.parallel};
  const int64_t vocab = head.weight.rows;
  const int64_t dim = head.weight.columns;
  const int64_t most_rows =
      std::max({options_.max_rows, options_.scores ? kScoredRows : 0, options_.verified_rows});
  if (options_.scores) scored_.resize(static_cast<size_t>(most_rows));
  logits_.resize(static_cast<size_t>(most_rows) * vocab_);
  gathered_.resize(rows * static_cast<size_t>(dim));
  const MatrixView hidden{gathered_.data(), most_rows, dim, dim};
  const LogitsView logits{logits_.data(), most_rows, vocab, vocab};
  size_t bytes = std::max(ProjectWorkspaceBytes(head, hidden, execution),
                          SelectWorkspaceBytes(logits, execution));
  if (options_.planes.has_value()) {
    certified_.emplace(head, *options_.planes);
    bytes =
        std::max(bytes, SampleFromHeadWorkspaceBytes(*certified_, options_.max_rows, execution));
  }
  workspace_ = AlignedBytes(bytes);
  indices_.reserve(rows);
  handles_.reserve(rows);
  ids_.resize(rows);
  statuses_.resize(rows);
  params_.reserve(rows);
  keys_.reserve(rows);
  requests_.reserve(rows);
  routes_.reserve(rows);
  cuts_.reserve(rows);
  emitted_.resize(rows);
  for (HeadResults* results : {&part_, &results_}) {
    results->Resize(rows, vocab_, options_.logprob_width, options_.reports);
  }
  verified_.Resize(static_cast<size_t>(options_.verified_rows), vocab_, options_.logprob_width, {});
}

void HeadStage::Sample(const MatrixView& hidden, std::span<const HeadRow> rows, Sampler& sampler,
                       GenerationStats& stats) {
  const int32_t width = WidestLists(rows, static_cast<int64_t>(vocab_));
  results_.Resize(rows.size(), vocab_, width, options_.reports);
  // Each row gets the head that it needs, whatever its neighbours do.
  routes_.clear();
  const bool has_top_k = options_.top_k_head != nullptr;
  for (const HeadRow& row : rows) {
    const int64_t output_length =
        std::ssize(sampler.Tokens(row.request)) - sampler.PromptLength(row.request);
    const auto cause_of = has_top_k ? CauseForTopK : CauseOf;
    const DenseCause cause = !has_top_k && !certified_.has_value() ? DenseCause::kNone
                             : row.mask != nullptr && row.mask->open_draws() == 0
                                 ? DenseCause::kAdjustments
                                 : cause_of(*row.params, output_length, options_.head.weight.rows,
                                            options_.logit_softcap, options_.reports);
    const Route route = cause != DenseCause::kNone ? Route::kDense
                        : has_top_k                ? Route::kTopK
                        : certified_.has_value()   ? Route::kCertified
                                                   : Route::kDense;
    if (route == Route::kDense) ++stats.dense_rows[static_cast<size_t>(cause)];
    routes_.push_back(route);
  }
  for (const Route route : {Route::kDense, Route::kCertified, Route::kTopK}) {
    indices_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (routes_[i] == route) indices_.push_back(i);
    }
    if (indices_.empty()) continue;
    part_.Resize(indices_.size(), vocab_, width, options_.reports);
    const MatrixView states = Gather(hidden);
    if (route == Route::kDense) {
      SampleDense(states, rows, sampler, stats);
    } else if (route == Route::kTopK) {
      SampleTopK(states, rows, sampler, stats);
    } else {
      SampleCertified(states, rows, sampler, stats);
    }
    Scatter();
  }
}

void HeadStage::Verify(const MatrixView& hidden, std::span<const DraftedRow> rows, Sampler& sampler,
                       GenerationStats& stats) {
  Clock clock;
  verified_.Resize(static_cast<size_t>(hidden.rows), vocab_,
                   WidestLists(rows, static_cast<int64_t>(vocab_)), {});
  const LogitsView logits = ProjectInto(hidden, logits_);
  stats.head_ns += clock.Lap();
  requests_.clear();
  for (const DraftedRow& row : rows) {
    requests_.push_back({.request = row.request, .drafts = row.drafts, .bitmask = row.bitmask});
  }
  sampler.Step({logits, requests_}, {.tokens = verified_.tokens,
                                     .emitted = std::span(emitted_).first(rows.size()),
                                     .logprobs = {verified_.logprob_width, verified_.logprob_ids,
                                                  verified_.logprob_values}});
  stats.select_ns += clock.Lap();
}

// The hidden states of the rows that are being sampled; those of all are taken as they are.
MatrixView HeadStage::Gather(const MatrixView& hidden) {
  if (std::ssize(indices_) == hidden.rows) return hidden;
  const size_t row_bytes = static_cast<size_t>(hidden.columns) * SizeOf(hidden.dtype);
  auto* const to = reinterpret_cast<std::byte*>(gathered_.data());
  for (size_t i = 0; i < indices_.size(); ++i) {
    std::memcpy(to + i * row_bytes, hidden.Row(static_cast<int64_t>(indices_[i])), row_bytes);
  }
  return {gathered_.data(), std::ssize(indices_), hidden.columns, hidden.columns, hidden.dtype};
}

void HeadStage::Scatter() {
  const auto scatter = [&]<typename T>(const std::vector<T>& from, std::vector<T>& to) {
    const size_t width = from.size() / indices_.size();
    for (size_t i = 0; i < indices_.size(); ++i) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  to.begin() + static_cast<std::ptrdiff_t>(indices_[i] * width));
    }
  };
  scatter(part_.tokens, results_.tokens);
  scatter(part_.certificates, results_.certificates);
  scatter(part_.logprob_ids, results_.logprob_ids);
  scatter(part_.logprob_values, results_.logprob_values);
  scatter(part_.logits, results_.logits);
  scatter(part_.kept, results_.kept);
  scatter(part_.masses, results_.masses);
}

LogitsView HeadStage::Project(const MatrixView& hidden) {
  return ProjectInto(hidden, options_.reports.logits ? part_.logits : logits_);
}

LogitsView HeadStage::ProjectInto(const MatrixView& hidden, std::vector<float>& logits) {
  const auto vocab = static_cast<int64_t>(vocab_);
  const MutableLogitsView view{logits.data(), hidden.rows, vocab, vocab};
  sluice::Project(options_.head, hidden, {}, view, WithWorkspace());
  if (options_.logit_softcap != 0.0f) CapLogits(options_.logit_softcap, view, WithWorkspace());
  return view;
}

void HeadStage::Score(const MatrixView& hidden, std::span<const int32_t> tokens,
                      const PromptScores& scores, GenerationStats& stats) {
  const SelectParams params;  // which raw values have no use for
  const auto width = static_cast<size_t>(scores.lists.width);
  for (size_t begin = 0; begin < tokens.size(); begin += scored_.size()) {
    const size_t count = std::min(scored_.size(), tokens.size() - begin);
    const auto results = std::span(scored_).first(count);
    for (size_t i = 0; i < count; ++i) results[i] = {.id = tokens[begin + i]};
    Clock clock;
    const MatrixView states{hidden.Row(static_cast<int64_t>(begin)), static_cast<int64_t>(count),
                            hidden.columns, hidden.stride, hidden.dtype};
    const LogitsView logits = ProjectInto(states, logits_);
    stats.head_ns += clock.Lap();
    Logprobs({logits, LogprobMode::kRawLogprobs, {&params, 1}}, results,
             {scores.lists.width, scores.lists.ids.subspan(begin * width, count * width),
              scores.lists.values.subspan(begin * width, count * width)},
             WithWorkspace());
    for (size_t i = 0; i < count; ++i) {
      scores.logprobs[begin + i] = results[i].logprob;
      scores.ranks[begin + i] = results[i].rank;
    }
    stats.select_ns += clock.Lap();
  }
}

void HeadStage::SampleDense(const MatrixView& hidden, std::span<const HeadRow> rows,
                            Sampler& sampler, GenerationStats& stats) {
  Clock clock;
  const LogitsView logits = Project(hidden);
  stats.head_ns += clock.Lap();
  requests_.clear();
  for (const size_t i : indices_) {
    requests_.push_back({.request = rows[i].request});
    if (rows[i].mask == nullptr || rows[i].mask->open_draws() > 0) continue;
    requests_.back().bitmask = rows[i].mask->Await();
    requests_.back().forced = rows[i].mask->forced();
  }
  sampler.Step({logits, requests_},
               {.tokens = part_.tokens,
                .emitted = std::span(emitted_).first(indices_.size()),
                .logprobs = {part_.logprob_width, part_.logprob_ids, part_.logprob_values},
                .kept = part_.kept,
                .masses = part_.masses});
  NoteDrawn(rows);
  stats.select_ns += clock.Lap();
}

// One wake-up of a filler is enough for all rows.
void HeadStage::NoteDrawn(std::span<const HeadRow> rows) {
  DrawMask* drawn = nullptr;
  for (size_t i = 0; i < indices_.size(); ++i) {
    DrawMask* const mask = rows[indices_[i]].mask;
    if (mask == nullptr || part_.tokens[i].id < 0) continue;
    mask->Drew(part_.tokens[i].id);
    if (mask->makes_masks()) drawn = mask;
  }
  if (drawn != nullptr) drawn->Flush();
}

void HeadStage::SampleCertified(const MatrixView& hidden, std::span<const HeadRow> rows,
                                Sampler& sampler, GenerationStats& stats) {
  Clock clock;
  const GenerationReports& reports = options_.reports;
  const bool is_reported = reports.logits || reports.kept || reports.masses;
  if (is_reported) NoteDraws(rows, sampler);
  handles_.clear();
  for (const size_t i : indices_) handles_.push_back(rows[i].request);
  CertifiedStats call;
  if (reports.HasSets()) {
    call = sampler.StepFromHead(*certified_, {.hidden = hidden}, handles_, part_.tokens,
                                part_.certificates, WithWorkspace());
  } else {
    const std::span<int32_t> ids = std::span(ids_).first(handles_.size());
    const std::span<RowStatus> statuses = std::span(statuses_).first(handles_.size());
    call = sampler.StepIdsFromHead(*certified_, {.hidden = hidden}, handles_, ids, statuses,
                                   part_.certificates, WithWorkspace());
    for (size_t i = 0; i < ids.size(); ++i) {
      part_.tokens[i] = {.id = ids[i], .status = statuses[i]};
    }
  }
  Add(call, stats.certified);
  NoteDrawn(rows);
  stats.head_ns += clock.Lap();
  if (!is_reported) return;
  ReportCertified(hidden);
  stats.report_ns += clock.Lap();
}

// A row with the first k logits and no others gives the token of all: top-k keeps these k, and no
// rule after it looks at another.
void HeadStage::SampleTopK(const MatrixView& hidden, std::span<const HeadRow> rows,
                           Sampler& sampler, GenerationStats& stats) {
  Clock clock;
  const auto vocab = static_cast<int64_t>(vocab_);
  const MatrixView& weight = options_.head.weight;
  requests_.clear();
  for (size_t i = 0; i < indices_.size(); ++i) {
    const HeadRow& row = rows[indices_[i]];
    requests_.push_back({.request = row.request});
    const SelectParams select = row.params->Select();
    const bool is_greedy = Has(semantics::RulesOf(select, vocab), semantics::Filter::kGreedy);
    const size_t k = is_greedy ? 1 : std::min(static_cast<size_t>(select.top_k), vocab_);
    first_ids_.resize(k);
    first_logits_.resize(k);
    const MatrixView state{hidden.Row(static_cast<int64_t>(i)), 1, hidden.columns, hidden.stride,
                           hidden.dtype};
    const int64_t position =
        std::ssize(sampler.Tokens(row.request)) - sampler.PromptLength(row.request);
    const TopKAnswer answer = options_.top_k_head->TopK(state, position, first_ids_, first_logits_);
    float* const logits = logits_.data() + i * vocab_;
    if (answer.holds) {
      std::fill_n(logits, vocab_, -std::numeric_limits<float>::infinity());
      for (size_t j = 0; j < k; ++j) logits[first_ids_[j]] = first_logits_[j];
    } else {
      sluice::Project(options_.head, state, {}, {logits, 1, vocab, vocab}, WithWorkspace());
    }
    const bool is_dense = answer.is_whole || !answer.holds;
    const int64_t dense_bytes = vocab * weight.columns * static_cast<int64_t>(SizeOf(weight.dtype));
    part_.certificates[i] = {.path = is_dense ? CertifiedPath::kDense : CertifiedPath::kPlanes,
                             .reason = !answer.holds ? DenseReason::kHidden
                                       : is_dense    ? DenseReason::kSurvivors
                                                     : DenseReason::kNone,
                             .survivors = static_cast<int32_t>(answer.rows)};
    Add({.rows = 1,
         .dense_rows = is_dense ? 1 : 0,
         .survivors = answer.rows,
         .bytes_read = answer.bytes + (answer.holds ? 0 : dense_bytes),
         .dense_bytes = dense_bytes},
        stats.certified);
  }
  stats.head_ns += clock.Lap();
  const LogitsView logits{logits_.data(), std::ssize(indices_), vocab, vocab};
  sampler.Step({logits, requests_},
               {.tokens = part_.tokens, .emitted = std::span(emitted_).first(indices_.size())});
  NoteDrawn(rows);
  stats.select_ns += clock.Lap();
}

// Notes what the step draws with, before its tokens are accepted.
void HeadStage::NoteDraws(std::span<const HeadRow> rows, const Sampler& sampler) {
  params_.clear();
  keys_.clear();
  for (const size_t i : indices_) {
    params_.push_back(rows[i].params->Select());
    keys_.push_back(sampler.Key(rows[i].request));
  }
}

// Reports the logits and Cuts that the dense head would have had at hand.
void HeadStage::ReportCertified(const MatrixView& hidden) {
  const GenerationReports& reports = options_.reports;
  const LogitsView logits = Project(hidden);
  std::vector<Cut>& cuts = cuts_;
  cuts.clear();
  for (const TokenResult& token : part_.tokens) cuts.push_back(token.cut);
  if (reports.kept) KeptBitmask(logits, cuts, part_.kept, WithWorkspace());
  if (reports.masses) {
    Select({logits, params_, keys_, options_.limits}, cuts, part_.masses, WithWorkspace());
  }
}

}  // namespace sluice::engine
