// tokenizer.model of SentencePiece: pieces with a score and a type, and how text is normalised.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/check.h"
#include "text/files/loaders.h"
#include "text/files/protobuf.h"
#include "text/tokenizer/rank_merges.h"
#include "text/tokenizer/unigram.h"

namespace sluice::text {
namespace {

constexpr std::string_view kFile = "tokenizer.model";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Numbers of sentencepiece_model.proto.
enum PieceType : uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
enum ModelType : uint64_t { kUnigramType = 1, kBpeType = 2 };

struct Piece {
  std::string_view text;
  float score = 0.0f;
  uint64_t type = kNormal;
};

struct ModelFile {
  std::vector<Piece> pieces;
  uint64_t model_type = 1;
  int64_t bos_id = 1;
  std::string_view unknown_surface = " \xE2\x81\x87 ";  // U+2047
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_spaces_behind = false;  // treat_whitespace_as_suffix
};

Piece ReadPiece(std::string_view message) {
  Piece piece;
  ProtobufReader reader(kFile, message);
  for (ProtobufField field; reader.Next(&field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = field.Float();
    if (field.number == 3) piece.type = field.value;
  }
  if (!IsUtf8(piece.text)) ThrowInvalid(kFile, "a piece that is not UTF-8", "UTF-8");
  if (!std::isfinite(piece.score)) ThrowInvalid(kFile, "a score that is not finite", "a number");
  return piece;
}

ModelFile ReadModel(std::string_view model) {
  ModelFile file;
  ProtobufReader reader(kFile, model);
  for (ProtobufField field; reader.Next(&field);) {
    if (field.number == 1) file.pieces.push_back(ReadPiece(field.bytes));
    if (field.number == 2) {
      ProtobufReader trainer(kFile, field.bytes);
      for (ProtobufField part; trainer.Next(&part);) {
        if (part.number == 3) file.model_type = part.value;
        if (part.number == 24) file.has_spaces_behind = part.value != 0;
        if (part.number == 44) file.unknown_surface = part.bytes;
        if (part.number == 41) file.bos_id = static_cast<int32_t>(part.value);
      }
    }
    if (field.number == 3) {
      ProtobufReader normalizer(kFile, field.bytes);
      for (ProtobufField part; normalizer.Next(&part);) {
        if (part.number == 2) file.charsmap = part.bytes;
        if (part.number == 3) file.add_dummy_prefix = part.value != 0;
        if (part.number == 4) file.remove_extra_whitespaces = part.value != 0;
        if (part.number == 5) file.escape_whitespaces = part.value != 0;
      }
    }
  }
  if (!IsUtf8(file.unknown_surface) || file.unknown_surface.size() > kMaxTokenBytes) {
    ThrowInvalid("unk_surface",
                 ToText(static_cast<int64_t>(file.unknown_surface.size())) + " bytes",
                 "UTF-8 of at most " + std::to_string(kMaxTokenBytes) + " bytes");
  }
  if (file.pieces.empty()) ThrowInvalid(kFile, "no pieces", "a model of SentencePiece");
  return file;
}

std::vector<NormalizerStep> NormalizerOf(const ModelFile& file) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  if (!file.charsmap.empty()) {
    std::vector<LongestMatcher::Pattern> kept;
    for (const Piece& piece : file.pieces) {
      if (piece.type != kUserDefined) continue;
      kept.push_back({piece.text, static_cast<int32_t>(piece.text.size())});
    }
    steps.push_back({.kind = Kind::kCharsmap,
                     .charsmap = std::make_shared<const Charsmap>(
                         "precompiled_charsmap", file.charsmap, LongestMatcher(kFile, kept))});
  }
  if (file.remove_extra_whitespaces) steps.push_back({.kind = Kind::kSingleSpaces});
  if (file.add_dummy_prefix) {
    const Kind kind = file.has_spaces_behind ? Kind::kAppend : Kind::kPrepend;
    steps.push_back({.kind = kind, .content = " "});
  }
  if (file.escape_whitespaces) {
    steps.push_back({.kind = Kind::kReplace, .pattern = " ", .content = std::string(kSpaceMark)});
  }
  return steps;
}

std::unique_ptr<const Model> BpeOf(const ModelFile& file, const Vocabulary& vocabulary) {
  BpeOptions options{.has_byte_fallback = true, .fuses_unknown = true};
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  TokenMap ids(file.pieces.size());
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const Piece& piece = file.pieces[static_cast<size_t>(id)];
    if (piece.type == kUnknown) options.unknown_id = id;
    if (piece.type == kControl || piece.type == kUnknown) continue;
    ids.Add(piece.text, id);
    if (piece.type == kNormal) tokens.emplace_back(piece.text, id);
  }
  std::stable_sort(tokens.begin(), tokens.end(), [&](const auto& a, const auto& b) {
    return file.pieces[static_cast<size_t>(a.second)].score >
           file.pieces[static_cast<size_t>(b.second)].score;
  });
  const std::vector<BpeMerge> merges = MergesOf(tokens, ids, true);
  return std::make_unique<const Bpe>(std::move(options), std::move(ids), merges, vocabulary.size());
}

std::unique_ptr<const Model> UnigramOf(const ModelFile& file) {
  UnigramOptions options{.is_single_precision = true};
  float least = std::numeric_limits<float>::max();
  float most = std::numeric_limits<float>::lowest();
  TokenMap ids(file.pieces.size());
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    if (piece.type == kUnknown) options.unknown_id = static_cast<int32_t>(i);
    if (piece.type == kByte) {
      options.has_byte_fallback = true;
      ids.Add(piece.text, static_cast<int32_t>(i));
    }
    if (piece.type != kNormal) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  options.unknown_score = static_cast<double>(least - 10.0f);
  std::vector<UnigramToken> tokens;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    if (piece.type != kNormal && piece.type != kUserDefined) continue;
    double score = static_cast<double>(piece.score);
    // So that it wins against any cut of its text.
    if (piece.type == kUserDefined) {
      score = static_cast<double>(static_cast<float>(piece.text.size()) * most) - 0.1;
    }
    tokens.push_back({piece.text, static_cast<int32_t>(i), score});
  }
  return std::make_unique<const Unigram>(options, tokens, ByteIds(ids));
}

// From the beginning of what is decoded: the one that was put there, or all.
int32_t DroppedSpacesOf(const ModelFile& file) {
  constexpr int32_t kAll = 255;  // as many as a text is looked at for
  return file.remove_extra_whitespaces ? kAll : file.add_dummy_prefix ? 1 : 0;
}

}  // namespace

std::shared_ptr<const TokenizerImpl> LoadSentencePiece(std::string_view model,
                                                       const TokenizerOptions& options) {
  const ModelFile file = ReadModel(model);
  Vocabulary vocabulary(file.pieces.size());
  EncoderParts parts;
  Spellings surfaces;
  bool has_bytes = false;
  bool has_unused = false;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    const bool is_special = piece.type == kControl || piece.type == kUnknown;
    const bool is_added = is_special || piece.type == kUserDefined;
    has_bytes = has_bytes || piece.type == kByte;
    has_unused = has_unused || piece.type == kUnused;
    const auto id = static_cast<int32_t>(i);
    if (piece.type == kUnknown) surfaces.emplace(id, file.unknown_surface);
    vocabulary.Add(
        kFile, static_cast<int64_t>(i), piece.text,
        static_cast<uint8_t>((is_added ? kAddedToken : 0) | (is_special ? kSpecialToken : 0)));
    // Unigram weighs user-defined pieces with the others.
    const bool is_weighed = file.model_type == kUnigramType && piece.type == kUserDefined;
    if (!is_added || is_weighed) continue;
    parts.added_tokens.push_back({.content = std::string(piece.text),
                                  .id = id,
                                  .is_special = is_special,
                                  .is_normalized = false,
                                  .is_literal = piece.type == kUserDefined});
    if (piece.type == kControl && id == file.bos_id) parts.before = {id};
  }
  if (file.model_type != kBpeType && file.model_type != kUnigramType) {
    parts.refused_parameter = "model_type";
    parts.refused_value = ToText(static_cast<int64_t>(file.model_type));
    parts.refused_allowed = "1 (unigram) or 2 (BPE), to encode with";
  } else if (has_unused && file.model_type == kBpeType) {
    // Tokens that merge by way of unused pieces are taken apart again.
    parts.refused_parameter = "type";
    parts.refused_value = "UNUSED, of a piece of BPE";
    parts.refused_allowed = "another type, to encode with";
  } else {
    parts.normalizer = NormalizerOf(file);
    parts.model = file.model_type == kBpeType ? BpeOf(file, vocabulary) : UnigramOf(file);
  }
  DecoderSteps decoder = options.decoder == TokenDecoder::kByteLevel
                             ? ByteLevelDecoder()
                             : SentencePieceDecoder(DroppedSpacesOf(file));
  if (!has_bytes) {
    std::erase_if(decoder, [](const DecoderStep& step) {
      return step.kind == DecoderStep::Kind::kByteFallback;
    });
  }
  return std::make_shared<const TokenizerImpl>(std::move(vocabulary), decoder, std::move(parts),
                                               surfaces);
}

}  // namespace sluice::text
