// Structured output: which tokens may come next in a text that has to match a grammar.
//
// A JSON schema, a regular expression or another grammar is compiled once for a vocabulary. A
// matcher follows one request and fills masks in the layout that Sampler and DeviceSampler read.
// The grammar engine is xgrammar. Its two libraries are opened at run time, so a program that never
// calls GrammarLibrary::Load needs neither; docs/structured-output.md says how to get them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sluice/tokenizer.hpp"

namespace sluice {

namespace grammar {
class LibraryImpl;
class CompilerImpl;
struct Compiled;
class MatcherImpl;
}  // namespace grammar

enum class GrammarKind : uint8_t {
  kJsonSchema,     // JSON that matches the schema
  kJsonObject,     // any JSON object; it has no text
  kRegex,          // the whole text matches
  kEbnf,           // llama.cpp's GBNF, from the rule `root`
  kLark,           // Lark, from the rule `start`
  kStructuralTag,  // free text with constrained parts, as JSON describes them
};
std::string_view Name(GrammarKind kind);  // "json_schema", "regex": the parameter of its errors

// The text of a kEbnf grammar that matches one of these strings. Throws Error for an empty list.
std::string ChoiceGrammar(std::span<const std::string> choices);

// The grammar engine's libraries. Cheap to copy; they stay open for as long as the program runs.
class GrammarLibrary {
 public:
  // `folder` has both libraries, or is a site-packages folder or a virtual environment with the
  // packages. Empty: searched in the folders of the program and of this library, in a
  // site-packages folder around them, then where the dynamic linker looks. Throws Error with
  // kUnavailable, which says what is missing and how to get it.
  static GrammarLibrary Load(const std::string& folder = {});

  const std::string& path() const;  // the file with the grammar engine

 private:
  friend class GrammarCompiler;
  explicit GrammarLibrary(std::shared_ptr<const grammar::LibraryImpl> impl)
      : impl_(std::move(impl)) {}

  std::shared_ptr<const grammar::LibraryImpl> impl_;
};

struct GrammarLimits {
  size_t text_bytes = size_t{256} << 10;   // of a grammar's text
  size_t rules_bytes = size_t{256} << 10;  // of the rules that the text becomes, before its masks
  size_t mask_bytes =
      size_t{2} << 30;  // of its masks, by an estimate from above before any is made
  size_t compiled_bytes = size_t{256} << 20;  // of one compiled grammar
  size_t cache_bytes = size_t{64} << 20;      // of all that are kept, and of kept rules; 0: none is
  int32_t nesting = 64;                       // of JSON
};

struct GrammarOptions {
  // Of a JSON schema: objects have the listed properties alone unless additionalProperties allows
  // others.
  bool strict = true;
  // Of JSON: white space where JSON allows it, at most so many characters in a row. 0: none. Where
  // many may come, a model may go on with them until its output is cut.
  int32_t max_whitespace = 1;

  friend bool operator==(const GrammarOptions&, const GrammarOptions&) = default;
};

// Compiled for one vocabulary. Immutable and cheap to copy; it may outlive its compiler.
class Grammar {
 public:
  size_t bytes() const;   // about how much memory it takes
  int32_t vocab() const;  // tokens of a mask
  // Whether they share the memory: copies do.
  bool Is(const Grammar& other) const { return compiled_ == other.compiled_; }

 private:
  friend class GrammarCompiler;
  friend class GrammarMatcher;
  explicit Grammar(std::shared_ptr<const grammar::Compiled> compiled)
      : compiled_(std::move(compiled)) {}

  std::shared_ptr<const grammar::Compiled> compiled_;
};

// Any number of threads may call one compiler. It has no threads of its own: Compile takes its time
// on the caller's, which is a worker's where other requests must not wait.
class GrammarCompiler {
 public:
  // The text of each token is what a detokeniser appends after other tokens; special tokens and ids
  // without a token have none and are never allowed. `stop_tokens` may end a text that is complete.
  // `vocab` is the width of the logits, which may be more than the tokenizer has tokens.
  GrammarCompiler(const GrammarLibrary& library, const Tokenizer& tokenizer,
                  std::span<const int32_t> stop_tokens, int32_t vocab,
                  const GrammarLimits& limits = {});
  // For tokens as bytes; an empty one is never allowed.
  GrammarCompiler(const GrammarLibrary& library, std::span<const std::string_view> tokens,
                  std::span<const int32_t> stop_tokens, int32_t vocab,
                  const GrammarLimits& limits = {});
  ~GrammarCompiler();
  GrammarCompiler(GrammarCompiler&&) noexcept;
  GrammarCompiler& operator=(GrammarCompiler&&) noexcept;

  // From the cache, or compiled. Throws Error, which says what is wrong and, where it is known, at
  // which place.
  Grammar Compile(GrammarKind kind, std::string_view text, const GrammarOptions& options = {});

  // What Compile finds in the cache.
  std::optional<Grammar> Find(GrammarKind kind, std::string_view text,
                              const GrammarOptions& options = {}) const;
  bool IsCached(GrammarKind kind, std::string_view text, const GrammarOptions& options = {}) const;
  size_t cached_bytes() const;
  // The masks of rules, which are kept for other grammars with the same ones.
  size_t kept_rule_bytes() const;

 private:
  std::unique_ptr<grammar::CompilerImpl> impl_;
};

enum class MaskState : uint8_t {
  kNothing,     // no token is allowed: no text of this grammar begins so
  kSome,        // the mask's tokens
  kEverything,  // all tokens; a step may go without the mask
};

// What one request may say next. One thread at a time may call a matcher.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(const Grammar& grammar);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // ceil(vocab / 32) words; bit t % 32 of word t / 32 says whether token t may come next. Throws
  // Error after a stop token.
  MaskState FillMask(std::span<int32_t> words);

  // Whether the token may come next; if not, nothing has changed.
  bool Accept(int32_t token);
  // Takes back the last tokens, a stop token among them.
  void Rollback(int64_t tokens);
  int64_t accepted() const;  // tokens that are not taken back

  // Another matcher at the same place.
  GrammarMatcher Fork() const;

  bool IsTerminated() const;  // a stop token was accepted
  bool IsComplete() const;    // the text may end here

  // The bytes that every continuation begins with; often none.
  std::string JumpForward();

 private:
  explicit GrammarMatcher(std::unique_ptr<grammar::MatcherImpl> impl);
  grammar::MatcherImpl& Get() const;
  std::unique_ptr<grammar::MatcherImpl> impl_;
};

}  // namespace sluice
