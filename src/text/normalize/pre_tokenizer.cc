#include "text/normalize/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

using Kind = PreTokenizerStep::Kind;

// Receives the matches of one span in their order and appends the pieces that these make.
class Splitter {
 public:
  Splitter(Span span, SplitBehavior behavior, bool is_inverted, std::vector<Span>& out)
      : span_(span),
        behavior_(behavior),
        is_inverted_(is_inverted),
        out_(out),
        first_(out.size()),
        done_(span.begin) {}

  void Match(Span match) {
    if (match.begin > done_) Add({done_, match.begin}, is_inverted_);
    Add(match, !is_inverted_);
    done_ = match.end;
  }
  void End() {
    if (done_ < span_.end) Add({done_, span_.end}, is_inverted_);
    // Empty matches are pieces until here: what is merged is merged with them.
    const auto first = out_.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto is_empty = [](const Span& piece) { return piece.begin == piece.end; };
    out_.erase(std::remove_if(first, out_.end(), is_empty), out_.end());
  }

 private:
  void Add(Span piece, bool is_match) {
    const bool before = std::exchange(was_match_, is_match);
    const bool has_last = out_.size() > first_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (is_match) return;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (is_match && !before && has_last) {
          out_.back().end = piece.end;
          return;
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!is_match && before && has_last) {
          out_.back().end = piece.end;
          return;
        }
        break;
      case SplitBehavior::kContiguous:
        if (is_match == before && has_last) {
          out_.back().end = piece.end;
          return;
        }
        break;
    }
    out_.push_back(piece);
  }

  Span span_;
  SplitBehavior behavior_;
  bool is_inverted_;
  std::vector<Span>& out_;
  size_t first_;
  size_t done_;
  bool was_match_ = false;
};

template <typename Predicate>
void MatchCharacters(std::string_view text, Span span, Splitter& splitter, Predicate is_match) {
  size_t at = span.begin;
  ForEachCharacter(text.substr(span.begin, span.end - span.begin),
                   [&](uint32_t c, std::string_view bytes) {
                     if (is_match(c)) splitter.Match({at, at + bytes.size()});
                     at += bytes.size();
                   });
}

void FindMatches(const PreTokenizerStep& step, std::string_view text, Span span,
                 Splitter& splitter) {
  switch (step.kind) {
    case Kind::kRegex: {
      Regex::Matches matches(*step.regex, text.substr(span.begin, span.end - span.begin));
      for (Span match; matches.Next(&match);) {
        splitter.Match({span.begin + match.begin, span.begin + match.end});
      }
      break;
    }
    case Kind::kText:
    case Kind::kMetaspace: {
      const std::string_view inside = text.substr(0, span.end);
      for (size_t at = inside.find(step.pattern, span.begin); at != std::string_view::npos;) {
        splitter.Match({at, at + step.pattern.size()});
        at = inside.find(step.pattern, at + step.pattern.size());
      }
      break;
    }
    case Kind::kDigits:
      MatchCharacters(text, span, splitter, IsNumber);
      break;
    case Kind::kPunctuation:
      MatchCharacters(text, span, splitter, IsPunctuation);
      break;
    case Kind::kSpaces:
      MatchCharacters(text, span, splitter, IsSpace);
      break;
    case Kind::kByteLevel:
      break;
  }
}

// Puts `mark` before the pieces that the scheme names and that do not begin with it, and in the
// place of every space when it stands for one.
void Prepend(const PreTokenizerStep& step, Pieces& pieces) {
  const bool replaces = step.kind == Kind::kMetaspace;
  const std::string_view mark = replaces ? std::string_view(step.pattern) : " ";
  Pieces out;
  out.text.reserve(pieces.text.size() + pieces.text.size() / 2);
  out.spans.reserve(pieces.spans.size());
  bool is_start = pieces.begins_at_the_start;
  for (const Span span : pieces.spans) {
    const std::string_view piece =
        std::string_view(pieces.text).substr(span.begin, span.end - span.begin);
    const size_t begin = out.text.size();
    const bool has_mark = piece.starts_with(mark) || (replaces && piece.starts_with(' '));
    const bool needs_mark = step.prepend == PrependScheme::kAlways ||
                            (step.prepend == PrependScheme::kFirst && is_start);
    if (needs_mark && !has_mark) out.text.append(mark);
    is_start = false;
    size_t done = 0;
    for (size_t at = piece.find(' '); replaces && at != std::string_view::npos;) {
      out.text.append(piece, done, at - done).append(mark);
      done = at + 1;
      at = piece.find(' ', done);
    }
    out.text.append(piece, done);
    out.spans.push_back({begin, out.text.size()});
  }
  out.begins_at_the_start = pieces.begins_at_the_start;
  pieces = std::move(out);
}

// What comes after ByteLevel sees one character of GPT-2's alphabet for each byte.
void MapBytes(Pieces& pieces) {
  Pieces out;
  out.text.reserve(pieces.text.size() * 2);
  out.spans.reserve(pieces.spans.size());
  for (const Span span : pieces.spans) {
    const size_t begin = out.text.size();
    AppendInByteAlphabet(std::string_view(pieces.text).substr(span.begin, span.end - span.begin),
                         out.text);
    out.spans.push_back({begin, out.text.size()});
  }
  out.begins_at_the_start = pieces.begins_at_the_start;
  pieces = std::move(out);
}

// Cuts every piece at what the step matches.
void Cut(const PreTokenizerStep& step, Pieces& pieces, std::vector<Span>& cut) {
  cut.clear();
  bool begins_at_the_start = pieces.begins_at_the_start;
  for (const Span& span : pieces.spans) {
    Splitter splitter(span, step.behavior, step.is_inverted, cut);
    FindMatches(step, pieces.text, span, splitter);
    splitter.End();
    if (&span == &pieces.spans.front() && (cut.empty() || cut[0].begin != span.begin)) {
      begins_at_the_start = false;
    }
  }
  pieces.begins_at_the_start = begins_at_the_start;
  pieces.spans.swap(cut);
}

}  // namespace

void PreTokenize(const std::vector<PreTokenizerStep>& steps, Pieces& pieces) {
  std::vector<Span> cut;
  for (const PreTokenizerStep& step : steps) {
    const bool replaces = step.kind == Kind::kMetaspace;
    if (replaces || step.prepend != PrependScheme::kNever) Prepend(step, pieces);
    if (step.kind != Kind::kByteLevel && step.splits) Cut(step, pieces, cut);
    if (step.maps_bytes) MapBytes(pieces);
  }
}

}  // namespace sluice::text
