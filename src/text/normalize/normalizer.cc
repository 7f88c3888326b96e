#include "text/normalize/normalizer.h"

#include "support/check.h"
#include "text/byte_alphabet.h"
#include "text/normalize/replace.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

// Every character given to f, which appends what it becomes.
template <typename F>
void MapCharacters(std::string& text, F f) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](uint32_t c, std::string_view bytes) { f(c, bytes, out); });
  text = std::move(out);
}

void Lowercase(std::string& text) {
  MapCharacters(text, [](uint32_t c, std::string_view, std::string& out) { AppendLower(c, out); });
}

// Those for which is_accent(character) holds.
void StripAccents(std::string& text, bool (*is_accent)(uint32_t)) {
  MapCharacters(text, [&](uint32_t c, std::string_view bytes, std::string& out) {
    if (!is_accent(c)) out.append(bytes);
  });
}

void Strip(std::string& text, bool left, bool right) {
  std::string_view rest = text;
  while (right && !rest.empty() && IsSpace(LastOf(rest).value)) {
    rest.remove_suffix(LastOf(rest).size);
  }
  while (left && !rest.empty() && IsSpace(FirstOf(rest).value)) {
    rest.remove_prefix(FirstOf(rest).size);
  }
  text = std::string(rest);
}

void SingleSpaces(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (out.ends_with(' ')) out.pop_back();
  text = std::move(out);
}

void Bert(std::string& text, const NormalizerStep& step) {
  if (step.clean_text) {
    MapCharacters(text, [](uint32_t c, std::string_view bytes, std::string& out) {
      const bool is_break = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == 0xFFFD || (!is_break && IsControl(c))) return;
      out.append(IsSpace(c) ? " " : bytes);
    });
  }
  if (step.spaces_chinese) {
    MapCharacters(text, [](uint32_t c, std::string_view bytes, std::string& out) {
      const std::string_view space = IsChinese(c) ? " " : "";
      out.append(space).append(bytes).append(space);
    });
  }
  if (step.strip_accents) {
    text = ToNormalForm(NormalForm::kNfd, text);
    StripAccents(text, IsNonspacingMark);
  }
  if (step.lowercase) Lowercase(text);
}

[[noreturn]] void RefuseGrowth(size_t growth) {
  throw Error(ErrorCode::kExhausted, "normalizer",
              "a step that makes the text grow by more than " + std::to_string(growth) + " bytes",
              "at most 64 KiB and 32 bytes for each byte of the text, in all steps");
}

}  // namespace

void Normalize(const std::vector<NormalizerStep>& steps, std::string& text, size_t& growth) {
  using Kind = NormalizerStep::Kind;
  for (const NormalizerStep& step : steps) {
    const size_t before = text.size();
    const size_t most = before + growth;
    switch (step.kind) {
      case Kind::kNfc:
        text = ToNormalForm(NormalForm::kNfc, text);
        break;
      case Kind::kNfd:
        text = ToNormalForm(NormalForm::kNfd, text);
        break;
      case Kind::kNfkc:
        text = ToNormalForm(NormalForm::kNfkc, text);
        break;
      case Kind::kNfkd:
        text = ToNormalForm(NormalForm::kNfkd, text);
        break;
      case Kind::kLowercase:
        Lowercase(text);
        break;
      case Kind::kStrip:
        Strip(text, step.strip_left, step.strip_right);
        break;
      case Kind::kStripAccents:
        StripAccents(text, IsMark);
        break;
      case Kind::kReplace:
        if (step.regex != nullptr) {
          text = step.regex->ReplaceAll(text, step.content, most);
        } else {
          ReplaceAll(text, step.pattern, step.content, most);
        }
        break;
      case Kind::kSingleSpaces:
        SingleSpaces(text);
        break;
      case Kind::kCharsmap: {
        std::string out;
        out.reserve(text.size());
        if (step.by_clusters) {
          step.charsmap->AppendByClusters(text, most, out);
        } else {
          step.charsmap->AppendLongest(text, most, out);
        }
        text = std::move(out);
        break;
      }
      case Kind::kPrepend:
      case Kind::kAppend:
        if (text.empty()) break;
        if (step.content.size() > growth) RefuseGrowth(growth);
        text.insert(step.kind == Kind::kPrepend ? 0 : text.size(), step.content);
        break;
      case Kind::kBert:
        Bert(text, step);
        break;
      case Kind::kByteLevel: {
        std::string out;
        AppendInByteAlphabet(text, out);
        text = std::move(out);
        break;
      }
    }
    if (text.size() > most) RefuseGrowth(growth);
    if (text.size() > before) growth -= text.size() - before;
  }
}

}  // namespace sluice::text
