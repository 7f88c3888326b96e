// Names of what engine_messages.hpp and generation_end.hpp list, and the hash of a tokenizer.
#include <iterator>

#include "sluice/engine_messages.hpp"
#include "sluice/tokenizer.hpp"
#include "support/check.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice {
namespace {

constexpr std::string_view kEndNames[] = {"none",      "stop_string", "stop_token",
                                          "length",    "context",     "status",
                                          "cancelled", "rejected",    "engine_lost"};
static_assert(std::size(kEndNames) == kGenerationEnds);
constexpr std::string_view kCodeNames[] = {"invalid_value", "invalid_type", "unavailable",
                                           "exhausted"};
static_assert(std::size(kCodeNames) == static_cast<size_t>(ErrorCode::kExhausted) + 1);
constexpr std::string_view kStopAtNames[] = {"engine", "frontend"};

}  // namespace

std::string_view Name(GenerationEnd end) { return kEndNames[static_cast<size_t>(end)]; }
std::string_view Name(ErrorCode code) { return kCodeNames[static_cast<size_t>(code)]; }
std::string_view Name(StopAt stop_at) { return kStopAtNames[static_cast<size_t>(stop_at)]; }

StopAt StopAtByName(std::string_view name) {
  for (size_t i = 0; i < std::size(kStopAtNames); ++i) {
    if (kStopAtNames[i] == name) return static_cast<StopAt>(i);
  }
  ThrowInvalid("stop_at", ToText(name), "engine or frontend");
}

// FNV-1a over what decoding reads of every token, and the rules for the ends of a text.
uint64_t TokenizerHash(const Tokenizer& tokenizer) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  const auto add_number = [&add](uint64_t number) {
    for (int i = 0; i < 8; ++i) add(static_cast<uint8_t>(number >> (8 * i)));
  };
  const auto add_text = [&](std::string_view text) {
    add_number(text.size());
    for (const char c : text) add(static_cast<uint8_t>(c));
  };
  const text::Vocabulary& vocabulary = tokenizer.impl().vocabulary();
  const auto add_piece = [&](const text::TokenEntry& piece) {
    add(piece.flags);
    add_text(vocabulary.Bytes(piece));
  };
  add_number(static_cast<uint64_t>(vocabulary.size()));
  add(vocabulary.HasFirstPieces() ? 1 : 0);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    add(vocabulary.Flags(id));
    if (!vocabulary.IsKnown(id)) continue;
    add_text(vocabulary.Token(id));
    add_piece(vocabulary.Piece(id));
    if (vocabulary.HasFirstPieces()) add_piece(vocabulary.FirstPiece(id));
  }
  const text::DecodeRules& rules = tokenizer.impl().rules();
  add_text(rules.stripped);
  add(rules.leading);
  add(rules.trailing);
  add(rules.has_byte_runs ? 1 : 0);
  return hash;
}

}  // namespace sluice
