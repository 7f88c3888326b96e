// The forward pass. A batch is rows, one a token, from any sequences; each step below is done for
// all rows, and no row sees another one but through the cache.
#include "sluice/decoder.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "head/dense_table.h"
#include "model/cache.h"
#include "model/layer_backend.h"
#include "model/model_impl.h"
#include "model/pages.h"
#include "semantics/widen.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

using model::LayerConfig;
using model::LayerWeights;
using model::Linear;

constexpr int64_t kMostSequences = int64_t{1} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 32;
constexpr int64_t kMostBatch = int64_t{1} << 20;
constexpr int64_t kMatrixRowsAtOnce = 64;  // of a parallel-for's task

static_assert(Decoder::kPageTokens == model::kPagePositions);

int64_t PagesOfContext(const ModelInfo& info) {
  return (info.context + Decoder::kPageTokens - 1) / Decoder::kPageTokens;
}

int64_t PagesOfCache(const ModelInfo& info, const DecoderOptions& options) {
  if (options.cache_tokens == 0) return options.max_sequences * PagesOfContext(info);
  return (options.cache_tokens + Decoder::kPageTokens - 1) / Decoder::kPageTokens;
}

// No sequence has more than the cache has.
int64_t PagesOfSequence(const ModelInfo& info, const DecoderOptions& options) {
  return std::min(PagesOfContext(info), PagesOfCache(info, options));
}

void CheckOptions(const ModelInfo& info, const DecoderOptions& options) {
  CheckInRange("max_sequences", options.max_sequences, 1, kMostSequences);
  CheckInRange("cache_tokens", options.cache_tokens, 0, kMostTokens);
  CheckInRange("max_batch_tokens", options.max_batch_tokens, 1, kMostBatch);
  CheckInRange("parallel.workers", options.parallel.workers, 1, 1 << 16);
  const int64_t pages = PagesOfCache(info, options);
  CheckInRange("cache_tokens", pages * Decoder::kPageTokens, 1, INT32_MAX);
}

// Heads that share keys, as far as their scores are held together.
size_t HeadsAtOnce(const ModelInfo& info) {
  return std::min(static_cast<size_t>(info.heads / info.kv_heads), model::kHeadsAtOnce);
}

// A row of the batch: a token at its place.
struct Token {
  const model::Sequence* sequence;
  int64_t position;
  int32_t id;
};

// The buffers of a step; a row of each for every row of the batch.
struct Buffers {
  Buffers(const ModelInfo& info, size_t rotaries, const DecoderOptions& options)
      : query_width(static_cast<size_t>(info.heads * info.head_dim)),
        key_width(static_cast<size_t>(info.kv_heads * info.head_dim)),
        dim(static_cast<size_t>(info.dim)),
        ffn(static_cast<size_t>(info.ffn_dim)),
        pairs(static_cast<size_t>(info.head_dim / 2)),
        code_width(model::CodeStride(std::max({query_width, dim, ffn}))),
        score_width(static_cast<size_t>(PagesOfSequence(info, options) * Decoder::kPageTokens)) {
    const auto n = static_cast<size_t>(options.max_batch_tokens);
    for (auto* wide : {&x, &normed, &added}) wide->resize(n * dim);
    for (auto* wide : {&query, &mixed}) wide->resize(n * query_width);
    for (auto* wide : {&key, &value}) wide->resize(n * key_width);
    for (auto* wide : {&gate, &up}) wide->resize(n * ffn);
    codes.resize(n * code_width);
    bytes.resize(n * code_width);
    scales.resize(n);
    sums.resize(n);
    for (auto* wide : {&cosines, &sines}) wide->resize(n * rotaries * pairs);
    scores.resize(static_cast<size_t>(options.parallel.workers) * score_width * HeadsAtOnce(info));
    tokens.reserve(n);
  }

  static size_t Bytes(const ModelInfo& info, size_t rotaries, const DecoderOptions& options) {
    const int64_t queries = info.heads * info.head_dim, keys = info.kv_heads * info.head_dim;
    const auto widest = static_cast<size_t>(std::max({queries, info.dim, info.ffn_dim}));
    const auto floats = static_cast<size_t>(3 * info.dim + 2 * (queries + keys + info.ffn_dim)) +
                        rotaries * static_cast<size_t>(info.head_dim) + 1;
    const size_t row = floats * sizeof(float) +
                       model::CodeStride(widest) * (sizeof(int16_t) + sizeof(int8_t)) +
                       sizeof(int32_t) + sizeof(Token);
    const auto scores = static_cast<size_t>(options.parallel.workers *
                                            PagesOfSequence(info, options) * Decoder::kPageTokens) *
                        HeadsAtOnce(info);
    return static_cast<size_t>(options.max_batch_tokens) * row + scores * sizeof(float);
  }

  size_t query_width, key_width, dim, ffn, pairs, code_width, score_width;
  std::vector<float> x, normed, added;
  std::vector<float> query, key, value, mixed;
  std::vector<float> gate, up;
  std::vector<int16_t> codes;
  std::vector<int8_t> bytes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<float> cosines, sines;  // [rotaries, rows, pairs]
  std::vector<float> scores;          // rows of a worker: a head each
  std::vector<Token> tokens;
};

}  // namespace

class Decoder::Impl {
 public:
  Impl(const Model& model, const DecoderOptions& options)
      : model_(model),
        config_(model_.impl().config),
        weights_(model_.impl().weights),
        options_(options),
        table_(model::LayerTableFor(options.backend)),
        dense_(DenseHeadTableFor(options.backend)),
        execution_{.backend = options.backend, .parallel = options.parallel},
        sequences_(options.max_sequences, PagesOfCache(config_.info, options),
                   PagesOfSequence(config_.info, options)),
        cache_(config_.info, PagesOfCache(config_.info, options)),
        buffers_(config_.info, config_.rotaries.size(), options) {}

  const Model& model() const { return model_; }
  model::Sequences& sequences() { return sequences_; }

  void Forward(std::span<const DecodeChunk> chunks, std::span<float> hidden) {
    Check(chunks, hidden);
    const FloatEnvironment environment;
    TakeRows(chunks);
    try {
      Embed();
      for (size_t i = 0; i < weights_.layers.size(); ++i) RunLayer(i);
    } catch (...) {  // the caller's parallel-for
      for (const DecodeChunk& chunk : chunks) {
        const int64_t length = sequences_.At(chunk.sequence).length;
        sequences_.Truncate(chunk.sequence, length - std::ssize(chunk.tokens));
      }
      throw;
    }
    StoreHidden(chunks, hidden);
  }

 private:
  size_t rows() const { return buffers_.tokens.size(); }

  void Check(std::span<const DecodeChunk> chunks, std::span<const float> hidden) {
    const ModelInfo& info = config_.info;
    int64_t tokens = 0, hidden_rows = 0, lacks = 0;
    ++batch_;
    for (const DecodeChunk& chunk : chunks) {
      model::Sequence& sequence = sequences_.At(chunk.sequence);
      if (sequence.batch == batch_) {
        ThrowInvalid("chunks", "one sequence twice", "one chunk a sequence");
      }
      sequence.batch = batch_;
      const int64_t size = std::ssize(chunk.tokens);
      CheckInRange("chunk.tokens.size()", size, 1, options_.max_batch_tokens);
      if (sequence.length + size > info.context) {
        ThrowInvalid("sequence length", ToText(sequence.length + size),
                     std::string("at most the model's context, ").append(ToText(info.context)));
      }
      CheckInRange("chunk.hidden_rows", chunk.hidden_rows, 0, size);
      for (const int32_t id : chunk.tokens) CheckInRange("chunk.tokens", id, 0, info.vocab - 1);
      tokens += size;
      hidden_rows += chunk.hidden_rows;
      lacks += sequence.Lacks(sequences_.pages(), size);
    }
    CheckInRange("tokens of all chunks", tokens, 0, options_.max_batch_tokens);
    CheckSize("hidden", hidden.size(), hidden_rows * info.dim);
    if (lacks > sequences_.pages().free()) {
      throw Error(ErrorCode::kExhausted, "pages", ToText(lacks),
                  std::string("at most the free ones, ").append(ToText(sequences_.pages().free())));
    }
  }

  // Makes room in the sequences and lists the rows.
  void TakeRows(std::span<const DecodeChunk> chunks) {
    model::Pages& pages = sequences_.pages();
    buffers_.tokens.clear();
    for (const DecodeChunk& chunk : chunks) {
      model::Sequence& sequence = sequences_.At(chunk.sequence);
      if (sequence.length % kPageTokens != 0 && pages.IsShared(sequence.pages.back())) {
        const int32_t own = pages.Take();
        cache_.CopyPage(sequence.pages.back(), own);
        pages.Release(sequence.pages.back());
        sequence.pages.back() = own;
      }
      for (const int32_t id : chunk.tokens) {
        if (sequence.length % kPageTokens == 0) sequence.pages.push_back(pages.Take());
        buffers_.tokens.push_back({&sequence, sequence.length++, id});
      }
    }
  }

  void Embed() {
    const size_t dim = buffers_.dim, pairs = buffers_.pairs;
    const MatrixView& table = weights_.embedding;
    ForEachToken([&](size_t r, int) {
      const Token& token = buffers_.tokens[r];
      float* const x = &buffers_.x[r * dim];
      for (size_t i = 0; i < dim; ++i) {
        x[i] = semantics::Load(table.Row(token.id), table.dtype, static_cast<int64_t>(i)) *
               config_.embedding_scale;
      }
      for (size_t k = 0; k < config_.rotaries.size(); ++k) {
        const size_t at = (k * rows() + r) * pairs;
        config_.rotaries[k].AnglesAt(token.position, &buffers_.cosines[at], &buffers_.sines[at]);
      }
    });
  }

  void RunLayer(size_t i) {
    const LayerWeights& layer = weights_.layers[i];
    Buffers& b = buffers_;
    Normalise(layer.attention_norm, b.x, b.normed);
    Project({&layer.query, &layer.key, &layer.value}, b.normed, {&b.query, &b.key, &b.value});
    Attend(i);
    Project({&layer.output}, b.mixed, {&b.added});
    AddTo(b.x, layer.post_attention_norm);

    Normalise(layer.ffn_norm, b.x, b.normed);
    Project({&layer.gate, &layer.up}, b.normed, {&b.gate, &b.up});
    ForEachToken([&](size_t r, int) {
      table_.activate(config_.activation, &b.gate[r * b.ffn], &b.up[r * b.ffn], b.ffn);
    });
    Project({&layer.down}, b.gate, {&b.added});
    AddTo(b.x, layer.post_ffn_norm);
  }

  // Queries, keys and values to their place, keys and values into the cache, and the mixture of
  // values for each row and head.
  void Attend(size_t i) {
    const LayerWeights& layer = weights_.layers[i];
    const LayerConfig& layer_config = config_.layers[i];
    const auto heads = static_cast<size_t>(config_.info.heads);
    const auto kv_heads = static_cast<size_t>(config_.info.kv_heads);
    const auto head_dim = static_cast<size_t>(config_.info.head_dim);
    Buffers& b = buffers_;
    ForEachToken([&](size_t r, int) {
      const Token& token = b.tokens[r];
      const size_t angles = (static_cast<size_t>(layer_config.rotary) * rows() + r) * b.pairs;
      const auto place = [&](float* head, const std::vector<float>& norm) {
        if (!norm.empty()) {
          table_.rms_norm(head, norm.data(), head_dim, config_.norm_eps, head);
        }
        table_.rotate(head, b.pairs, &b.cosines[angles], &b.sines[angles]);
      };
      for (size_t h = 0; h < heads; ++h) {
        place(&b.query[r * b.query_width + h * head_dim], layer.query_norm);
      }
      for (size_t h = 0; h < kv_heads; ++h) {
        place(&b.key[r * b.key_width + h * head_dim], layer.key_norm);
      }
      const auto page = static_cast<size_t>(token.position / kPageTokens);
      cache_.Write(i, token.sequence->pages[page],
                   static_cast<size_t>(token.position % kPageTokens), &b.key[r * b.key_width],
                   &b.value[r * b.key_width]);
    });

    const size_t group = heads / kv_heads;
    ForEachRow(options_.parallel, static_cast<int64_t>(rows() * kv_heads),
               [&](int64_t task, int worker) {
                 const size_t r = static_cast<size_t>(task) / kv_heads;
                 const size_t h = static_cast<size_t>(task) % kv_heads;
                 const Token& token = b.tokens[r];
                 const size_t at = r * b.query_width + h * group * head_dim;
                 const int64_t end = token.position + 1;
                 const int64_t window = layer_config.window;
                 table_.attend({.queries = &b.query[at],
                                .group = group,
                                .head_dim = head_dim,
                                .value_stride = cache_.value_stride(),
                                .cache = cache_.Head(i, h),
                                .page_stride = cache_.page_stride(),
                                .pages = token.sequence->pages.data(),
                                .begin = window > 0 ? std::max<int64_t>(end - window, 0) : 0,
                                .end = end,
                                .scale = config_.attention_scale,
                                .softcap = config_.attention_softcap,
                                .scores = &b.scores[static_cast<size_t>(worker) * b.score_width *
                                                    HeadsAtOnce(config_.info)],
                                .score_stride = b.score_width,
                                .out = &b.mixed[at]});
               });
  }

  // Each output has the rows of x times its matrix. All matrices have the width of x.
  void Project(std::initializer_list<const Linear*> matrices, const std::vector<float>& x,
               std::initializer_list<std::vector<float>*> outputs) {
    const bool any_int8 =
        std::any_of(matrices.begin(), matrices.end(), [](const Linear* m) { return m->is_int8(); });
    if (any_int8) Encode(x, (*matrices.begin())->width());
    auto output = outputs.begin();
    for (const Linear* const matrix : matrices) {
      if (matrix->is_int8()) {
        MultiplyCodes(*matrix, **output++);
      } else {
        MultiplyFloats(*matrix, x, **output++);
      }
    }
  }

  void Encode(const std::vector<float>& x, size_t width) {
    const size_t stride = model::CodeStride(width);
    ForEachToken([&](size_t r, int) {
      int16_t* const codes = &buffers_.codes[r * stride];
      buffers_.scales[r] = table_.encode(&x[r * width], width, codes);
      if (table_.narrow == nullptr || rows() == 1) return;
      buffers_.sums[r] = table_.narrow(codes, width, &buffers_.bytes[r * stride]);
    });
  }

  void MultiplyCodes(const Linear& linear, std::vector<float>& y) {
    const int64_t height = linear.codes.rows;
    const auto stride = static_cast<size_t>(height);
    const int64_t tasks = (height + kMatrixRowsAtOnce - 1) / kMatrixRowsAtOnce;
    const model::CodedRows codes{buffers_.codes.data(), buffers_.scales.data(),
                                 buffers_.bytes.data(), buffers_.sums.data()};
    ForEachRow(options_.parallel, tasks, [&](int64_t task, int) {
      const int64_t begin = task * kMatrixRowsAtOnce;
      const int64_t end = std::min(begin + kMatrixRowsAtOnce, height);
      table_.multiply(linear.codes, codes, static_cast<int64_t>(rows()), begin, end, y.data(),
                      stride);
      if (linear.bias.empty()) return;
      for (size_t r = 0; r < rows(); ++r) {
        table_.add(&y[r * stride + static_cast<size_t>(begin)],
                   &linear.bias[static_cast<size_t>(begin)], static_cast<size_t>(end - begin));
      }
    });
  }

  // The dense head's product: its order of summation is the same everywhere too.
  void MultiplyFloats(const Linear& linear, const std::vector<float>& x, std::vector<float>& y) {
    const MatrixView& matrix = linear.floats;
    const auto count = static_cast<int64_t>(rows());
    const MatrixView from{x.data(), count, matrix.columns, matrix.columns, DType::kF32, {}};
    const MutableLogitsView to{y.data(), count, matrix.rows, matrix.rows, DType::kF32, {}};
    dense_.project({matrix, linear.bias}, from, {}, to, execution_);
  }

  void Normalise(const std::vector<float>& weight, const std::vector<float>& x,
                 std::vector<float>& y) {
    const size_t dim = buffers_.dim;
    ForEachToken([&](size_t r, int) {
      table_.rms_norm(&x[r * dim], weight.data(), dim, config_.norm_eps, &y[r * dim]);
    });
  }

  // x += added, after a norm where the model has one there.
  void AddTo(std::vector<float>& x, const std::vector<float>& norm) {
    const size_t dim = buffers_.dim;
    ForEachToken([&](size_t r, int) {
      float* const added = &buffers_.added[r * dim];
      if (!norm.empty()) table_.rms_norm(added, norm.data(), dim, config_.norm_eps, added);
      table_.add(&x[r * dim], added, dim);
    });
  }

  void StoreHidden(std::span<const DecodeChunk> chunks, std::span<float> hidden) {
    const size_t dim = buffers_.dim;
    size_t behind = 0, to = 0;
    for (const DecodeChunk& chunk : chunks) {
      behind += chunk.tokens.size();
      for (size_t r = behind - static_cast<size_t>(chunk.hidden_rows); r < behind; ++r, ++to) {
        table_.rms_norm(&buffers_.x[r * dim], weights_.last_norm.data(), dim, config_.norm_eps,
                        &hidden[to * dim]);
      }
    }
  }

  template <class Body>  // body(row, worker)
  void ForEachToken(Body&& body) {
    ForEachRow(options_.parallel, static_cast<int64_t>(rows()),
               [&](int64_t r, int worker) { body(static_cast<size_t>(r), worker); });
  }

  const Model model_;
  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const DecoderOptions options_;
  const model::LayerTable& table_;
  const DenseHeadTable& dense_;
  const Execution execution_;
  model::Sequences sequences_;
  uint64_t batch_ = 0;  // the one that is checked, by number from 1
  model::Cache cache_;
  Buffers buffers_;
};

Decoder::Decoder(const Model& model, const DecoderOptions& options) {
  CheckOptions(model.info(), options);
  impl_ = std::make_unique<Impl>(model, options);
}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Decoder::Impl& Decoder::Get() const {
  if (impl_ == nullptr) ThrowInvalid("decoder", "moved from", "a Decoder that was not moved from");
  return *impl_;
}

size_t Decoder::Bytes(const Model& model, const DecoderOptions& options) {
  CheckOptions(model.info(), options);
  const ModelInfo& info = model.info();
  return model::Cache::Bytes(info, PagesOfCache(info, options)) +
         Buffers::Bytes(info, model.impl().config.rotaries.size(), options);
}

const Model& Decoder::model() const { return Get().model(); }
SequenceHandle Decoder::Add() { return Get().sequences().Add(); }
SequenceHandle Decoder::Fork(SequenceHandle sequence, int64_t length) {
  return Get().sequences().Fork(sequence, length);
}
void Decoder::Remove(SequenceHandle sequence) { Get().sequences().Remove(sequence); }
int64_t Decoder::Length(SequenceHandle sequence) const {
  return Get().sequences().At(sequence).length;
}
void Decoder::Truncate(SequenceHandle sequence, int64_t length) {
  Get().sequences().Truncate(sequence, length);
}
int64_t Decoder::FreePages() const { return Get().sequences().pages().free(); }
int64_t Decoder::PagesFor(SequenceHandle sequence, int64_t tokens) const {
  model::Sequences& sequences = Get().sequences();
  CheckInRange("tokens", tokens, 0, model().info().context);
  return sequences.At(sequence).Lacks(sequences.pages(), tokens);
}
void Decoder::Forward(std::span<const DecodeChunk> chunks, std::span<float> hidden) {
  Get().Forward(chunks, hidden);
}

}  // namespace sluice
