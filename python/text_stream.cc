// Ids to text, step by step: Detokenizer, StopScanner, and TextStream, which is both.
#include "sluice/text_stream.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/errors.h"
#include "python/text.h"
#include "support/check.h"

namespace sluice::python {
namespace {

Utf8Errors ErrorsByName(std::string_view name) {
  if (name == "maximal") return Utf8Errors::kMaximal;
  if (name == "hf-run") return Utf8Errors::kHfRun;
  ThrowValue("utf8_errors", std::string("\"").append(name).append("\""), "maximal or hf-run");
}

Incomplete IncompleteByName(std::string_view name) {
  if (name == "replace") return Incomplete::kReplace;
  if (name == "drop") return Incomplete::kDrop;
  ThrowValue("incomplete", std::string("\"").append(name).append("\""), "replace or drop");
}

// One automaton serves all requests with the same stops. Never destroyed: objects may outlive the
// module.
std::shared_ptr<const StopList> CachedList(const std::vector<std::string>& stops) {
  static StopListCache* const cache = new StopListCache();
  return cache->Get(stops);
}

std::vector<int32_t> TokensOrNone(const char* name, nb::handle object) {
  return object.is_none() ? std::vector<int32_t>() : GetTokens(name, object);
}

// The lock is kept in steps: a token takes 5 ns, and two threads must not step one stream.
nb::tuple StepOf(Detokenizer& detokenizer, nb::handle object) {
  const std::vector<int32_t> ids = GetTokens("ids", object);
  std::string text;
  std::vector<TokenEnd> ends(ids.size());
  detokenizer.Step(ids, text, ends);
  nb::list sizes;
  nb::list open;
  for (const TokenEnd& end : ends) {
    sizes.append(end.text);
    open.append(end.open_tokens);
  }
  return nb::make_tuple(TextOf(text), sizes, open);
}

nb::object StopOf(const StopList& stops, int32_t stop) {
  return stop < 0 ? nb::none() : nb::cast(stops.stops()[static_cast<size_t>(stop)]);
}

// Python counts a text in characters, the scanner in bytes.
nb::tuple ResultOf(const StopResult& result, const StopScanner& scanner, const std::string& text) {
  return nb::make_tuple(TextOf(text), StopOf(scanner.stops(), result.stop), result.tokens,
                        result.released_tokens);
}

nb::tuple ScanOf(StopScanner& scanner, std::string_view text,
                 const std::optional<std::vector<size_t>>& ends,
                 const std::optional<std::vector<size_t>>& open_tokens) {
  std::vector<TokenEnd> tokens;
  if (ends.has_value()) {
    for (const size_t end : *ends) tokens.push_back({.text = end});
  } else {
    tokens.push_back({.text = text.size()});
  }
  if (open_tokens.has_value()) {
    CheckSize("open_tokens", open_tokens->size(), static_cast<int64_t>(tokens.size()));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i].open_tokens = (*open_tokens)[i];
  }
  std::string released;
  const StopResult& result = scanner.Step(text, tokens, released);
  return ResultOf(result, scanner, released);
}

struct TextDelta {
  nb::str text;
  Delta delta;
  nb::object stop;
};

TextDelta DeltaOf(const TextStream& stream, const std::string& text, const Delta& delta) {
  return {TextOf(text), delta,
          delta.stop_token < 0 ? StopOf(stream.stops(), delta.stop) : nb::cast(delta.stop_token)};
}

nb::object FinishName(const TextDelta& delta) {
  switch (delta.delta.finish) {
    case FinishReason::kNone:
      break;
    case FinishReason::kStopString:
      return nb::str("stop_string");
    case FinishReason::kStopToken:
      return nb::str("stop_token");
    case FinishReason::kEnd:
      return nb::str("end");
  }
  return nb::none();
}

constexpr const char* kDetokenizerDoc =
    R"(Ids to text, token by token, with a few bytes of state and no text kept.

``step`` takes one id or many and gives (text, ends, open_tokens): what they add; for each id how many
bytes of the text (as UTF-8) are there after it, and of how many tokens up to it some text is not out.
A character comes out when it is complete; ``finish`` gives the rest of one. Of ``prompt_ids`` only
the ends are read. ``utf8_errors="hf-run"`` replaces each byte of a bad run of byte tokens, as Hugging
Face's decoders do.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"decoder": {"type": "ByteLevel"},
    ...     "model": {"type": "BPE", "vocab": {"\\u00e4\\u00bd": 0, "\\u0142": 1, "!": 2}}}''')
    >>> detokenizer = sluice.Detokenizer(tokenizer)
    >>> [detokenizer.step(id) for id in [0, 1, 2]]
    [('', [0], [1]), ('你', [3], [0]), ('!', [1], [0])])";

constexpr const char* kStopScannerDoc =
    R"(Finds stop strings in a stream of text, and holds back only what may be the beginning of one.

``step(text, ends, open_tokens)`` takes the text of the next tokens and what Detokenizer says of them
(without it, it is one token), and gives (released, stop, tokens, released_tokens): text that is free of
stops, the stop that was found or None, and how many tokens there were and are out to their last byte.

    >>> scanner = sluice.StopScanner(["END"])
    >>> scanner.step("the E")
    ('the ', None, 1, 0)
    >>> scanner.step("ND. More")
    ('', 'END', 2, 2))";

constexpr const char* kTextStreamDoc =
    R"(One request's way from ids to the text that its client reads: a Detokenizer and a StopScanner.

A stream ends at a stop string, or at a token of ``stop_token_ids``, with its text shown with
``include_stop`` alone; neither counts among the first ``min_tokens``. A stop string that is the text of
an added token ends it by that token's id. ``finish`` ends it for another reason.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"decoder": {"type": "ByteLevel"},
    ...     "model": {"type": "BPE", "vocab": {"a": 0, "E": 1, "ND": 2}}}''')
    >>> stream = sluice.TextStream(tokenizer, stops=["END"])
    >>> [stream.step(ids).text for ids in ([0, 1], 1)]
    ['a', 'E']
    >>> delta = stream.step([2, 0, 0])
    >>> delta.text, delta.finish, delta.stop, delta.tokens
    ('', 'stop_string', 'END', 4))";

void BindParts(nb::module_& module) {
  nb::class_<Detokenizer>(module, "Detokenizer", kDetokenizerDoc)
      .def(
          "__init__",
          [](Detokenizer* self, const Tokenizer& tokenizer, nb::handle prompt, bool skip,
             bool spaces, std::string_view errors) {
            new (self) Detokenizer(tokenizer,
                                   {.skip_special_tokens = skip,
                                    .spaces_between_special_tokens = spaces,
                                    .utf8_errors = ErrorsByName(errors)},
                                   TokensOrNone("prompt_ids", prompt));
          },
          nb::arg("tokenizer"), nb::kw_only(), nb::arg("prompt_ids") = nb::none(),
          nb::arg("skip_special_tokens") = true, nb::arg("spaces_between_special_tokens") = true,
          nb::arg("utf8_errors") = "maximal")
      .def("step", StepOf, nb::arg("ids"), R"(The text that ids add, and where each of them ends.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> sluice.Detokenizer(tokenizer).step([0, 0])
    ('a a', [1, 3], [0, 0]))")
      .def(
          "finish",
          [](Detokenizer& detokenizer, std::string_view incomplete) {
            std::string text;
            detokenizer.Finish(text, IncompleteByName(incomplete));
            return TextOf(text);
          },
          nb::kw_only(), nb::arg("incomplete") = "replace",
          R"(What was held back; ``incomplete`` is ``"replace"`` or ``"drop"``.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> sluice.Detokenizer(tokenizer).finish()
    '')")
      .def_prop_ro("unknown_ids", &Detokenizer::unknown_ids, "How many ids had no token.");

  nb::class_<StopScanner>(module, "StopScanner", kStopScannerDoc)
      .def(
          "__init__",
          [](StopScanner* self, const std::vector<std::string>& stops, bool include,
             int64_t min_tokens) {
            new (self) StopScanner(CachedList(stops), {include, min_tokens});
          },
          nb::arg("stops"), nb::kw_only(), nb::arg("include") = false, nb::arg("min_tokens") = 0)
      .def("step", ScanOf, nb::arg("text"), nb::arg("ends") = nb::none(),
           nb::arg("open_tokens") = nb::none(),
           R"(Takes text; gives (released, stop, tokens, released_tokens).

    >>> sluice.StopScanner(["b"]).step("ab")
    ('a', 'b', 1, 1))")
      .def(
          "finish",
          [](StopScanner& scanner, std::string_view rest) {
            std::string released;
            const StopResult& result = scanner.Finish(rest, released);
            return ResultOf(result, scanner, released);
          },
          nb::arg("rest") = "", R"(For an end without a stop: what was held back, as ``step``.

    >>> sluice.StopScanner(["b"]).finish()
    ('', None, 0, 0))")
      .def_prop_ro("held_bytes", &StopScanner::held_bytes, "Bytes held back now.");
}

}  // namespace

void BindTextStream(nb::module_& module) {
  BindParts(module);
  nb::class_<TextDelta>(module, "TextDelta", R"(What a step of a TextStream adds.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> delta = sluice.TextStream(tokenizer).step([0, 0])
    >>> delta.text, delta.first_token, delta.last_token, delta.finish
    ('a a', 0, 2, None))")
      .def_ro("text", &TextDelta::text, "What the client reads next.")
      .def_prop_ro(
          "first_token", [](const TextDelta& d) { return d.delta.first_token; },
          "The first token, counted from 0, that has all of its text out with this delta.")
      .def_prop_ro(
          "last_token", [](const TextDelta& d) { return d.delta.last_token; },
          "One past the last of these.")
      .def_prop_ro(
          "tokens", [](const TextDelta& d) { return d.delta.tokens; },
          "How many there were so far, up to and with the one that ended the stream.")
      .def_prop_ro("finish", FinishName,
                   "None, or why it ended: ``\"stop_string\"``, ``\"stop_token\"`` or ``\"end\"``.")
      .def_ro("stop", &TextDelta::stop, "The stop string, or the id of the stop token, or None.");

  nb::class_<TextStream>(module, "TextStream", kTextStreamDoc)
      .def(
          "__init__",
          [](TextStream* self, const Tokenizer& tokenizer, const std::vector<std::string>& stops,
             nb::handle stop_token_ids, bool include, int64_t min_tokens, nb::handle prompt,
             bool skip, bool spaces, std::string_view errors, std::string_view incomplete) {
            new (self) TextStream(tokenizer,
                                  {.detokenizer = {.skip_special_tokens = skip,
                                                   .spaces_between_special_tokens = spaces,
                                                   .utf8_errors = ErrorsByName(errors)},
                                   .stops = CachedList(stops),
                                   .stop = {include, min_tokens},
                                   .stop_token_ids = TokensOrNone("stop_token_ids", stop_token_ids),
                                   .incomplete = IncompleteByName(incomplete)},
                                  TokensOrNone("prompt_ids", prompt));
          },
          nb::arg("tokenizer"), nb::kw_only(), nb::arg("stops") = std::vector<std::string>(),
          nb::arg("stop_token_ids") = nb::none(), nb::arg("include_stop") = false,
          nb::arg("min_tokens") = 0, nb::arg("prompt_ids") = nb::none(),
          nb::arg("skip_special_tokens") = true, nb::arg("spaces_between_special_tokens") = true,
          nb::arg("utf8_errors") = "maximal", nb::arg("incomplete") = "replace")
      .def(
          "step",
          [](TextStream& stream, nb::handle ids) {
            std::string text;
            const Delta& delta = stream.Step(GetTokens("ids", ids), text);
            return DeltaOf(stream, text, delta);
          },
          nb::arg("ids"), R"(Takes one id or many; gives a TextDelta.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> sluice.TextStream(tokenizer, stop_token_ids=[0]).step([7, 0]).stop
    0)")
      .def(
          "finish",
          [](TextStream& stream) {
            std::string text;
            const Delta& delta = stream.Finish(text);
            return DeltaOf(stream, text, delta);
          },
          R"(For a stream that ends for another reason: what was held back, as ``step``.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> sluice.TextStream(tokenizer).finish().finish
    'end')")
      .def_prop_ro("held_bytes", &TextStream::held_bytes, "Bytes that stops hold back now.")
      .def_prop_ro("unknown_ids", &TextStream::unknown_ids, "How many ids had no token.");
}

}  // namespace sluice::python
