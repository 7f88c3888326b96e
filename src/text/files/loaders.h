// Files to tokenizers, one function a format. Malformed or hostile bytes are an Error, in time
// linear in their size.
#pragma once

#include <memory>
#include <string_view>

#include "sluice/tokenizer.hpp"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice::text {

std::shared_ptr<const TokenizerImpl> LoadJson(std::string_view json,
                                              const TokenizerOptions& options);
std::shared_ptr<const TokenizerImpl> LoadSentencePiece(std::string_view model,
                                                       const TokenizerOptions& options);
std::shared_ptr<const TokenizerImpl> LoadTiktoken(std::string_view ranks,
                                                  const TiktokenOptions& options);

}  // namespace sluice::text
