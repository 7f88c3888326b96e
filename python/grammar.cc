// sluice.GrammarCompiler, Grammar and GrammarMatcher: masks for Sampler, DeviceSampler and any
// engine.
#include "sluice/grammar.hpp"

#include <nanobind/stl/string.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/engine/output_grammar.h"
#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/keywords.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "sluice/tokenizer.hpp"

namespace sluice::python {
namespace {

GrammarLibrary LibraryFrom(nb::handle folder) {
  if (std::optional<GrammarLibrary> library = GrammarLibraryFrom(folder)) return *library;
  return GrammarLibrary::Load();  // throws what is missing
}

// Bytes of each token, and None or b"" for one that is never allowed.
std::vector<std::string> TokenBytesFrom(nb::handle tokens) {
  constexpr const char* kAllowed = "a Tokenizer, or a list of bytes with one for each token";
  if (PyUnicode_Check(tokens.ptr()) || !PySequence_Check(tokens.ptr())) {
    ThrowType("tokens", Describe(tokens), kAllowed);
  }
  std::vector<std::string> texts;
  for (const nb::handle token : nb::borrow<nb::sequence>(tokens)) {
    if (token.is_none()) {
      texts.emplace_back();
    } else if (PyBytes_Check(token.ptr())) {
      const auto bytes = nb::borrow<nb::bytes>(token);
      texts.emplace_back(static_cast<const char*>(bytes.data()), bytes.size());
    } else {
      ThrowType("tokens", Describe(token), "bytes or None for each token");
    }
  }
  return texts;
}

GrammarCompiler CompilerFor(nb::handle tokens, nb::handle stop_tokens, nb::handle vocab,
                            nb::handle library_folder) {
  const GrammarLibrary library = LibraryFrom(library_folder);
  const std::vector<int32_t> stops = GetInts("stop_tokens", stop_tokens);
  const auto vocab_or = [&](size_t count) {
    return vocab.is_none() ? static_cast<int32_t>(count) : GetNumber<int32_t>("vocab", vocab);
  };
  if (const Tokenizer* const tokenizer = ObjectIn<Tokenizer>(tokens)) {
    const int32_t width = vocab_or(static_cast<size_t>(tokenizer->size()));
    const nb::gil_scoped_release release;
    return GrammarCompiler(library, *tokenizer, stops, width);
  }
  const std::vector<std::string> texts = TokenBytesFrom(tokens);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const int32_t width = vocab_or(views.size());
  const nb::gil_scoped_release release;
  return GrammarCompiler(library, views, stops, width);
}

Grammar Compile(GrammarCompiler& self, bool strict, nb::handle max_whitespace, nb::kwargs kwargs) {
  const std::optional<OutputGrammar> grammar =
      OutputGrammarFrom(Arguments(kGrammarKeywords, kwargs));
  if (!grammar.has_value()) {
    ThrowValue("grammar", "None", "one of json_schema, json_object, regex, grammar and choices");
  }
  const GrammarOptions options = {
      .strict = strict, .max_whitespace = GetNumber<int32_t>("max_whitespace", max_whitespace)};
  const nb::gil_scoped_release release;
  return self.Compile(grammar->kind, grammar->text, options);
}

std::string_view NameOf(MaskState state) {
  switch (state) {
    case MaskState::kNothing:
      return "nothing";
    case MaskState::kSome:
      return "some";
    case MaskState::kEverything:
      return "everything";
  }
  return "";
}

// A matcher that refuses a second thread: its calls run without the interpreter's lock.
class Matcher {
 public:
  explicit Matcher(const Grammar& grammar)
      : matcher_(grammar), words_((int64_t{grammar.vocab()} + 31) / 32) {}
  Matcher(GrammarMatcher matcher, int64_t words) : matcher_(std::move(matcher)), words_(words) {}

  template <typename F>
  auto Call(F&& f) {
    if (is_held_.exchange(true)) ThrowValue("matcher", "in another call", "one call at a time");
    const struct Hold {
      std::atomic<bool>& is_held;
      ~Hold() { is_held.store(false); }
    } hold{is_held_};
    const nb::gil_scoped_release release;
    return f(matcher_);
  }

  std::string_view FillMask(nb::handle out) {
    const auto mask = GetElements<int32_t>("out", out, Access::kWrite, {words_});
    return NameOf(Call([&](GrammarMatcher& matcher) { return matcher.FillMask(mask.values); }));
  }

  Matcher* Fork() {
    return new Matcher(Call([](GrammarMatcher& matcher) { return matcher.Fork(); }), words_);
  }

 private:
  GrammarMatcher matcher_;
  int64_t words_;
  std::atomic<bool> is_held_ = false;
};

constexpr const char* kCompilerDoc =
    R"(Compiles JSON schemas and other grammars for a vocabulary. Many threads may call one.

``tokens``: a Tokenizer, or the bytes of each token. ``stop_tokens`` may end a text that is complete.
``vocab``: how many logits a row has, where there are more than tokens. ``library``: the folder of the
grammar engine, unless it is the installed package xgrammar or SLUICE_GRAMMAR_LIBRARY names it.

    >>> compiler = sluice.GrammarCompiler([b"yes", b"no", b"maybe", b""], stop_tokens=[3])
    >>> compiler.compile(choices=["yes", "no"]).vocab
    4)";

constexpr const char* kCompileDoc = R"(A Grammar, from the cache or compiled.

One of ``json_schema`` (a dict, JSON or a class of pydantic), ``json_object=True``, ``regex``,
``grammar`` (GBNF or Lark) and ``choices`` (a list of str). Of a JSON schema, ``strict=False`` allows
properties that it does not list. ``max_whitespace``: characters of white space in a row, of JSON.

    >>> compiler = sluice.GrammarCompiler([b"1", b"2", b"a", b""], stop_tokens=[3])
    >>> compiler.compile(regex="[0-9]+").mask_words
    1)";

constexpr const char* kMatcherDoc = R"(What one request may say next.

One thread at a time may call a matcher.

    >>> compiler = sluice.GrammarCompiler([b"yes", b"no", b"maybe", b""], stop_tokens=[3])
    >>> matcher = sluice.GrammarMatcher(compiler.compile(choices=["yes", "no"]))
    >>> mask = np.zeros(1, np.int32)
    >>> matcher.fill_mask(mask), int(mask[0] & 7)
    ('some', 3)
    >>> matcher.accept(2), matcher.accept(1), matcher.is_complete
    (False, True, True))";

constexpr const char* kFillDoc =
    R"(Fills ``out``, int32, with a bit for each token that may come next.

Returns "some", "everything" (a step may go without the mask) or "nothing" (no text of the grammar begins
so). Not after a stop token.

    >>> compiler = sluice.GrammarCompiler([b"a", b"b", b""], stop_tokens=[2])
    >>> mask = np.zeros(1, np.int32)
    >>> sluice.GrammarMatcher(compiler.compile(regex="b*")).fill_mask(mask), int(mask[0] & 7)
    ('some', 6))";

}  // namespace

void BindGrammar(nb::module_& module) {
  nb::class_<Grammar>(module, "Grammar",
                      R"(Compiled for one vocabulary; it may outlive its compiler.

    >>> compiler = sluice.GrammarCompiler([b"yes", b"no", b""], stop_tokens=[2])
    >>> grammar = compiler.compile(choices=["yes"])
    >>> grammar.vocab, grammar.mask_words
    (3, 1))")
      .def_prop_ro("nbytes", &Grammar::bytes, "About how much memory it takes.")
      .def_prop_ro("vocab", &Grammar::vocab, "Tokens of a mask.")
      .def_prop_ro(
          "mask_words", [](const Grammar& self) { return (int64_t{self.vocab()} + 31) / 32; },
          "int32 words of a mask.");
  nb::class_<GrammarCompiler>(module, "GrammarCompiler", kCompilerDoc)
      .def(
          "__init__",
          [](GrammarCompiler* self, nb::handle tokens, nb::handle stop_tokens, nb::handle vocab,
             nb::handle library) {
            new (self) GrammarCompiler(CompilerFor(tokens, stop_tokens, vocab, library));
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("stop_tokens"),
          nb::arg("vocab").none() = nb::none(), nb::arg("library").none() = nb::none(),
          nb::sig(
              "def __init__(self, tokens: Tokenizer | collections.abc.Sequence[bytes | None], *, "
              "stop_tokens: collections.abc.Sequence[int], vocab: int | None = None, "
              "library: str | bytes | os.PathLike | None = None) -> None"))
      .def(
          "compile", &Compile, nb::kw_only(), nb::arg("strict") = true,
          nb::arg("max_whitespace") = 1, nb::arg("kwargs"),
          nb::sig("def compile(self, *, json_schema: typing.Any = None, json_object: bool = False, "
                  "regex: str | None = None, grammar: str | None = None, "
                  "choices: collections.abc.Sequence[str] | None = None, strict: bool = True, "
                  "max_whitespace: int = 1) -> Grammar"),
          kCompileDoc)
      .def_prop_ro("cached_bytes", &GrammarCompiler::cached_bytes,
                   "What the grammars that it keeps take.");
  nb::class_<Matcher>(module, "GrammarMatcher", kMatcherDoc)
      .def(nb::init<const Grammar&>(), nb::arg("grammar"))
      .def("fill_mask", &Matcher::FillMask, nb::arg("out"),
           nb::sig("def fill_mask(self, out: typing.Any) -> str"), kFillDoc)
      .def(
          "accept",
          [](Matcher& self, nb::handle token) {
            const auto id = GetNumber<int32_t>("token", token);
            return self.Call([&](GrammarMatcher& matcher) { return matcher.Accept(id); });
          },
          nb::arg("token"), nb::sig("def accept(self, token: int) -> bool"),
          R"(Whether the token may come next; if not, nothing has changed.

    >>> compiler = sluice.GrammarCompiler([b"a", b"b", b""], stop_tokens=[2])
    >>> matcher = sluice.GrammarMatcher(compiler.compile(regex="ab*"))
    >>> matcher.accept(1), matcher.accept(0)
    (False, True))")
      .def(
          "rollback",
          [](Matcher& self, nb::handle tokens) {
            const auto count = GetNumber<int64_t>("tokens", tokens);
            self.Call([&](GrammarMatcher& matcher) { matcher.Rollback(count); });
          },
          nb::arg("tokens"), nb::sig("def rollback(self, tokens: int) -> None"),
          R"(Takes back the last tokens, a stop token among them.

    >>> compiler = sluice.GrammarCompiler([b"a", b"b", b""], stop_tokens=[2])
    >>> matcher = sluice.GrammarMatcher(compiler.compile(regex="ab*"))
    >>> matcher.accept(0), matcher.accept(2), matcher.is_terminated
    (True, True, True)
    >>> matcher.rollback(1)
    >>> matcher.accepted
    1)")
      .def("fork", &Matcher::Fork, nb::rv_policy::take_ownership,
           R"(Another matcher at the same place.

    >>> compiler = sluice.GrammarCompiler([b"a", b"b", b""], stop_tokens=[2])
    >>> matcher = sluice.GrammarMatcher(compiler.compile(regex="ab*"))
    >>> other = matcher.fork()
    >>> other.accept(0), other.accepted, matcher.accepted
    (True, 1, 0))")
      .def(
          "jump_forward",
          [](Matcher& self) {
            const std::string text =
                self.Call([](GrammarMatcher& matcher) { return matcher.JumpForward(); });
            return nb::bytes(text.data(), text.size());
          },
          R"(The bytes that every continuation begins with; often none.

    >>> compiler = sluice.GrammarCompiler([b"a", b"b", b""], stop_tokens=[2])
    >>> matcher = sluice.GrammarMatcher(compiler.compile(regex="ab*"))
    >>> matcher.jump_forward()
    b'a')")
      .def_prop_ro(
          "accepted",
          [](Matcher& self) {
            return self.Call([](GrammarMatcher& matcher) { return matcher.accepted(); });
          },
          "Tokens that are not taken back.")
      .def_prop_ro(
          "is_terminated",
          [](Matcher& self) {
            return self.Call([](GrammarMatcher& matcher) { return matcher.IsTerminated(); });
          },
          "A stop token was accepted.")
      .def_prop_ro(
          "is_complete",
          [](Matcher& self) {
            return self.Call([](GrammarMatcher& matcher) { return matcher.IsComplete(); });
          },
          "The text may end here.");
}

}  // namespace sluice::python
