#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

#include "grammar/bounded_strings.h"
#include "grammar/compiled.h"
#include "grammar/compiled_cache.h"
#include "grammar/reason.h"
#include "grammar/rule_states.h"
#include "grammar/schema_check.h"
#include "grammar/surrogates.h"
#include "sluice/grammar.hpp"
#include "support/check.h"
#include "text/normalize/utf8.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice {
namespace grammar {
namespace {

constexpr std::string_view kRoot = "root";
constexpr std::string_view kAnyObject = R"({"type":"object","additionalProperties":true})";

abi::Any Bytes(const abi::ByteArray& bytes) {
  abi::Any any = {abi::kByteArrayPtr, 0, {}};
  any.pointer = const_cast<abi::ByteArray*>(&bytes);
  return any;
}

void CheckText(std::string_view parameter, std::string_view text, const GrammarLimits& limits) {
  const auto most = static_cast<int64_t>(limits.text_bytes);
  if (text.size() > limits.text_bytes) {
    ThrowInvalid(std::string(parameter) + ".size()", ToText(static_cast<int64_t>(text.size())),
                 RangeText(0, most));
  }
  if (!text::IsUtf8(text) || text.find('\0') != std::string_view::npos) {
    ThrowInvalid(parameter, "a text", "UTF-8 without a NUL");
  }
}

}  // namespace

class CompilerImpl {
 public:
  CompilerImpl(std::shared_ptr<const LibraryImpl> library, std::span<const std::string_view> tokens,
               std::span<const int32_t> stop_tokens, int32_t vocab, const GrammarLimits& limits)
      : library_(std::move(library)), limits_(limits), cache_(limits.cache_bytes) {
    CheckInRange("vocab", vocab, 1, kMaxVocab);
    CheckInRange("limits.nesting", limits.nesting, 1, 256);
    if (stop_tokens.empty()) ThrowInvalid("stop_tokens.size()", "0", "at least 1");
    for (const int32_t token : stop_tokens) CheckInRange("stop_tokens", token, 0, vocab - 1);
    tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(vocab)));
    TokenSet set = {std::vector<bool>(static_cast<size_t>(vocab)),
                    {stop_tokens.begin(), stop_tokens.end()}};
    for (size_t i = 0; i < tokens.size(); ++i) set.may_come[i] = !tokens[i].empty();
    for (const int32_t token : stop_tokens) set.may_come[static_cast<size_t>(token)] = true;
    tokens_ = std::make_shared<const TokenSet>(std::move(set));
    first_bytes_ = CountFirstBytes(tokens);
    MakeCompiler(tokens, stop_tokens, vocab);
  }

  std::shared_ptr<const Compiled> Compile(GrammarKind kind, std::string_view text,
                                          const GrammarOptions& options) {
    CheckInRange("max_whitespace", options.max_whitespace, 0, 1024);
    CheckText(Name(kind), text, limits_);
    const std::string key = Key(kind, text, options);
    if (auto found = cache_.Find(key)) return found;
    auto compiled = std::make_shared<const Compiled>(Make(kind, text, options));
    BoundRules();
    cache_.Add(key, compiled);
    return compiled;
  }

  std::shared_ptr<const Compiled> Find(GrammarKind kind, std::string_view text,
                                       const GrammarOptions& options) {
    if (text.size() > limits_.text_bytes) return nullptr;
    return cache_.Find(Key(kind, text, options));
  }
  bool IsCached(GrammarKind kind, std::string_view text, const GrammarOptions& options) const {
    return text.size() <= limits_.text_bytes && cache_.Has(Key(kind, text, options));
  }
  size_t cached_bytes() const { return cache_.bytes(); }
  size_t kept_rule_bytes() const {
    const std::shared_ptr<const Value> held = compiler();
    return static_cast<size_t>(
        library_->Call(library_->functions().compiler_bytes, {held->any()}).Integer());
  }

 private:
  static std::string Key(GrammarKind kind, std::string_view text, const GrammarOptions& options) {
    std::string key = std::to_string(static_cast<int>(kind));
    key.append(options.strict ? " strict " : " ");
    return key.append(std::to_string(options.max_whitespace)).append(" ").append(text);
  }

  void MakeCompiler(std::span<const std::string_view> tokens, std::span<const int32_t> stop_tokens,
                    int32_t vocab) {
    std::vector<abi::ByteArray> bytes;
    bytes.reserve(tokens.size());
    std::vector<abi::Any> args;
    args.reserve(tokens.size());
    for (const std::string_view token : tokens) {
      bytes.push_back({token.data(), token.size()});
      args.push_back(Bytes(bytes.back()));
    }
    const auto& f = library_->functions();
    try {
      const Value texts = library_->Call(f.array, args);
      args.clear();
      for (const int32_t token : stop_tokens) args.push_back(Int(token));
      const Value stops = library_->Call(f.array, args);
      vocabulary_ = library_->Call(f.new_vocabulary,
                                   {texts.any(), Int(0), Int(vocab), stops.any(), Bool(false)});
      compiler_ = NewCompiler();
    } catch (const CallError& error) {
      ThrowInvalid("tokenizer", "a vocabulary", CleanReason(error.what()));
    }
  }

  // One thread, which is the caller's. It keeps the masks of each rule, for grammars that have the
  // same one.
  std::shared_ptr<const Value> NewCompiler() const {
    return std::make_shared<const Value>(
        library_->Call(library_->functions().new_compiler,
                       {vocabulary_.any(), Int(1), Bool(limits_.cache_bytes > 0), Int(-1)}));
  }

  std::shared_ptr<const Value> compiler() const {
    const std::lock_guard lock(compiler_mutex_);
    return compiler_;
  }

  // What the engine drops from its cache leaves something in memory, and a compiler that goes
  // leaves nothing: it goes when it keeps too much.
  void BoundRules() {
    if (kept_rule_bytes() <= limits_.cache_bytes) return;
    std::shared_ptr<const Value> made = NewCompiler();
    const std::lock_guard lock(compiler_mutex_);
    compiler_.swap(made);
  }

  Compiled Make(GrammarKind kind, std::string_view text, const GrammarOptions& options) const {
    Check(kind, text);
    try {
      Value handle = Run(kind, text, options);
      const int64_t bytes =
          library_->Call(library_->functions().compiled_bytes, {handle.any()}).Integer();
      CheckBytes(kind, text, "it takes", static_cast<size_t>(bytes), limits_.compiled_bytes);
      return {library_, tokens_, std::move(handle), static_cast<size_t>(bytes)};
    } catch (const CallError& error) {
      ThrowInvalid(Name(kind), Excerpt(text), CleanReason(error.what()));
    }
  }

  // What the engine would ignore or print a warning for, and what grows without a bound.
  void Check(GrammarKind kind, std::string_view text) const {
    const std::string_view name = Name(kind);
    switch (kind) {
      case GrammarKind::kJsonSchema:
        return CheckSchema(name, text, limits_.nesting);
      case GrammarKind::kJsonObject:
        if (!text.empty()) ThrowInvalid(name, Excerpt(text), "no text");
        return;
      case GrammarKind::kRegex:
        return CheckRegex(name, "", text);
      case GrammarKind::kStructuralTag:
        return CheckTagSchemas(name, text, limits_.nesting);
      default:
        return;
    }
  }

  static void CheckBytes(GrammarKind kind, std::string_view text, std::string_view what,
                         size_t bytes, size_t most) {
    if (bytes <= most) return;
    ThrowInvalid(Name(kind), Excerpt(text),
                 "a smaller grammar: " + std::string(what) + " " +
                     ToText(static_cast<int64_t>(bytes)) + " bytes, at most " +
                     ToText(static_cast<int64_t>(most)) + " are allowed");
  }

  // The rules of a text, as the grammar engine writes them.
  std::string RulesOf(GrammarKind kind, std::string_view text,
                      const GrammarOptions& options) const {
    const auto& f = library_->functions();
    const Value string = library_->String(kind == GrammarKind::kJsonObject ? kAnyObject : text);
    const abi::Any source = string.any();
    const auto written = [&](const Value& rules) {
      return std::string(library_->Call(f.rules_text, {rules.any()}).String());
    };
    switch (kind) {
      case GrammarKind::kJsonSchema:
      case GrammarKind::kJsonObject: {
        const bool spaces = options.max_whitespace > 0;
        const Value comma = library_->String(",");
        const Value colon = library_->String(":");
        const Value separators = library_->Call(f.array, {comma.any(), colon.any()});
        return written(library_->Call(
            f.json_schema_rules,
            {source, Bool(spaces), None(), spaces ? None() : separators.any(), Bool(options.strict),
             spaces ? Int(options.max_whitespace) : None(), Bool(false), Bool(false)}));
      }
      case GrammarKind::kRegex:
        return written(library_->Call(f.regex_rules, {source, Bool(false)}));
      case GrammarKind::kEbnf: {
        const Value root = library_->String(kRoot);
        return written(library_->Call(f.ebnf_rules, {source, root.any()}));
      }
      case GrammarKind::kLark: {
        const Value none = library_->Call(f.array, std::span<abi::Any>());
        return written(
            library_->Call(f.lark_rules, {source, vocabulary_.any(), none.any(), none.any()}));
      }
      case GrammarKind::kStructuralTag:
        return written(library_->Call(f.tag_rules, {source}));
    }
    ThrowInvalid("kind", ToText(static_cast<int64_t>(kind)), "a kind of grammar");
  }

  bool RewriteStrings(GrammarKind kind, std::string_view text, std::string& rules) const {
    if (kind == GrammarKind::kJsonSchema || kind == GrammarKind::kJsonObject) {
      return RewriteBoundedStrings(AfterString::kJson, limits_.rules_bytes, rules);
    }
    // A rule of a grammar in a tag may have the name and the form of a schema's.
    return kind == GrammarKind::kStructuralTag && !HasGrammar(text) &&
           RewriteBoundedStrings(AfterString::kAnything, limits_.rules_bytes, rules);
  }

  // First the rules, which is quick: the masks take time for every one of them.
  Value Run(GrammarKind kind, std::string_view text, const GrammarOptions& options) const {
    std::string rules = RulesOf(kind, text, options);
    const auto check_size = [&] {
      CheckBytes(kind, text, "its rules take", rules.size(), limits_.rules_bytes);
    };
    check_size();
    const bool has_chains = RewriteStrings(kind, text, rules);
    if (has_chains) check_size();
    ExcludeSurrogates(rules);
    CheckBytes(kind, text, "its masks may take",
               static_cast<size_t>(EstimateMaskBytes(rules, has_chains, first_bytes_)),
               limits_.mask_bytes);
    const std::shared_ptr<const Value> held = compiler();
    const Value edited = library_->String(rules);
    const Value root = library_->String(kRoot);
    return library_->Call(library_->functions().compile_ebnf,
                          {held->any(), edited.any(), root.any()});
  }

  std::shared_ptr<const LibraryImpl> library_;
  std::shared_ptr<const TokenSet> tokens_;
  GrammarLimits limits_;
  FirstBytes first_bytes_ = {};
  Value vocabulary_;
  mutable std::mutex compiler_mutex_;
  std::shared_ptr<const Value> compiler_;  // under the mutex
  CompiledCache cache_;
};

}  // namespace grammar

namespace {

// The bytes of tokens with a text that does not depend on their place.
std::vector<std::string_view> Pieces(const text::Vocabulary& vocabulary) {
  std::vector<std::string_view> pieces(static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.IsKnown(id) || (vocabulary.Flags(id) & text::kSpecialToken)) continue;
    const text::TokenEntry& piece = vocabulary.Piece(id);
    if (piece.flags & text::kWordEnd) {
      ThrowInvalid("tokenizer", "one with tokens that have another text at the end",
                   "one with a single text for each token");
    }
    pieces[static_cast<size_t>(id)] = vocabulary.Bytes(piece);
  }
  return pieces;
}

}  // namespace

std::string_view Name(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "json_schema";
    case GrammarKind::kJsonObject:
      return "json_object";
    case GrammarKind::kRegex:
      return "regex";
    case GrammarKind::kEbnf:
      return "grammar";
    case GrammarKind::kLark:
      return "lark";
    case GrammarKind::kStructuralTag:
      return "structural_tag";
  }
  return "grammar";
}

std::string ChoiceGrammar(std::span<const std::string> choices) {
  if (choices.empty()) ThrowInvalid("choice.size()", "0", "at least 1");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string rules = "root ::= ";
  for (const std::string& choice : choices) {
    rules.append(&choice == choices.data() ? "\"" : " | \"");
    for (const char c : choice) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < ' ') {
        rules.append("\\u00").append(1, kDigits[byte / 16]).append(1, kDigits[byte % 16]);
        continue;
      }
      if (c == '"' || c == '\\') rules.append("\\");
      rules.append(1, c);
    }
    rules.append("\"");
  }
  return rules;
}

size_t Grammar::bytes() const { return compiled_->bytes; }
int32_t Grammar::vocab() const { return compiled_->vocab(); }

GrammarCompiler::GrammarCompiler(const GrammarLibrary& library, const Tokenizer& tokenizer,
                                 std::span<const int32_t> stop_tokens, int32_t vocab,
                                 const GrammarLimits& limits)
    : GrammarCompiler(library, Pieces(tokenizer.impl().vocabulary()), stop_tokens, vocab, limits) {}

GrammarCompiler::GrammarCompiler(const GrammarLibrary& library,
                                 std::span<const std::string_view> tokens,
                                 std::span<const int32_t> stop_tokens, int32_t vocab,
                                 const GrammarLimits& limits)
    : impl_(std::make_unique<grammar::CompilerImpl>(library.impl_, tokens, stop_tokens, vocab,
                                                    limits)) {}

GrammarCompiler::~GrammarCompiler() = default;
GrammarCompiler::GrammarCompiler(GrammarCompiler&&) noexcept = default;
GrammarCompiler& GrammarCompiler::operator=(GrammarCompiler&&) noexcept = default;

Grammar GrammarCompiler::Compile(GrammarKind kind, std::string_view text,
                                 const GrammarOptions& options) {
  return Grammar(impl_->Compile(kind, text, options));
}

std::optional<Grammar> GrammarCompiler::Find(GrammarKind kind, std::string_view text,
                                             const GrammarOptions& options) const {
  auto compiled = impl_->Find(kind, text, options);
  if (compiled == nullptr) return std::nullopt;
  return Grammar(std::move(compiled));
}
bool GrammarCompiler::IsCached(GrammarKind kind, std::string_view text,
                               const GrammarOptions& options) const {
  return impl_->IsCached(kind, text, options);
}

size_t GrammarCompiler::cached_bytes() const { return impl_->cached_bytes(); }
size_t GrammarCompiler::kept_rule_bytes() const { return impl_->kept_rule_bytes(); }

}  // namespace sluice
