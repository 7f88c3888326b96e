#include "sluice/grammar_service.hpp"

#include "engine/grammar/grammar_workers.h"

namespace sluice {

GrammarService::GrammarService(const GrammarLibrary& library, const Tokenizer& tokenizer,
                               std::span<const int32_t> stop_tokens, int32_t vocab,
                               const GrammarServiceOptions& options)
    : workers_(std::make_unique<engine::GrammarWorkers>(
          GrammarCompiler(library, tokenizer, stop_tokens, vocab, options.limits), stop_tokens,
          vocab, options)) {}
GrammarService::~GrammarService() = default;

const GrammarServiceOptions& GrammarService::options() const { return workers_->options(); }
int32_t GrammarService::vocab() const { return workers_->vocab(); }
std::span<const int32_t> GrammarService::stop_tokens() const { return workers_->stop_tokens(); }

}  // namespace sluice
