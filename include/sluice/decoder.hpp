// The forward pass: tokens in, hidden states out, with a paged cache of keys and values.
//
// The hidden state of a position depends on the tokens up to it and on nothing else: it has the
// same bits on every backend, alone or in any batch, in one chunk or in many.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "sluice/execution.hpp"
#include "sluice/model.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

struct DecoderOptions {
  int32_t max_sequences = 1;
  // Room of the cache, for all sequences together; 0: a context's worth for each of them.
  int64_t cache_tokens = 0;
  // Tokens of one Forward, for all sequences together.
  int64_t max_batch_tokens = 512;
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

// Names a sequence from Add to Remove. A stale handle is an Error, never another sequence.
struct SequenceHandle {
  int32_t slot = -1;
  uint32_t generation = 0;
};

// Tokens that follow what the sequence already has.
struct DecodeChunk {
  SequenceHandle sequence = {};
  std::span<const int32_t> tokens = {};
  // How many of the last positions get a hidden state: 1 to sample, tokens.size() for all, 0 for a
  // chunk of a prompt that goes on.
  int64_t hidden_rows = 1;
};

// One thread at a time may call a Decoder.
class Decoder {
 public:
  Decoder(const Model& model, const DecoderOptions& options);  // allocates all that it will need
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  const Model& model() const;
  static constexpr int64_t kPageTokens = 16;
  // Memory of the cache and of a step, before a Decoder is made.
  static size_t Bytes(const Model& model, const DecoderOptions& options);

  // Throws Error with kExhausted when the decoder has max_sequences.
  SequenceHandle Add();
  // A sequence that begins with the first `length` tokens of this one and shares their pages.
  SequenceHandle Fork(SequenceHandle sequence, int64_t length);
  void Remove(SequenceHandle sequence);
  int64_t Length(SequenceHandle sequence) const;
  // Forgets all but the first `length` tokens.
  void Truncate(SequenceHandle sequence, int64_t length);

  int64_t FreePages() const;
  // Pages that `tokens` more tokens of this sequence would take.
  int64_t PagesFor(SequenceHandle sequence, int64_t tokens) const;

  // hidden: [sum of hidden_rows, dim], after the last norm, in the order of the chunks.
  // Throws Error before anything has changed when an argument does not fit, and with kExhausted
  // when there are not enough pages: as many as PagesFor says for each chunk, though the last of
  // several sequences that share a page and go on in one batch needs no copy of it. An exception of
  // a parallel-for leaves it, and the sequences as they were.
  void Forward(std::span<const DecodeChunk> chunks, std::span<float> hidden);

 private:
  class Impl;
  Impl& Get() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
