// Text: Tokenizer, Detokenizer, StopScanner and ChatTemplate.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <ctime>
#include <memory>
#include <utility>

#include "python/calls.h"
#include "python/errors.h"
#include "python/numbers.h"
#include "sluice/chat_template.hpp"
#include "sluice/detokenizer.hpp"
#include "sluice/stop.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::python {
namespace {

// One id, or any number of them. An id that no int32 holds is one that no vocabulary has.
std::vector<int32_t> GetTokens(const char* name, nb::handle object) {
  const auto id_of = [](uint64_t bits) {
    const auto id = static_cast<int64_t>(bits);
    return id < 0 || id > INT32_MAX ? -1 : static_cast<int32_t>(id);
  };
  constexpr IntRange kAny{INT64_MIN, INT64_MAX};
  if (IsNumber(object)) return {id_of(GetInteger(name, object, kAny))};
  std::vector<int32_t> ids;
  for (const uint64_t bits : GetIntegers(name, object, kAny)) ids.push_back(id_of(bits));
  return ids;
}

TokenizerOptions OptionsFor(std::string_view decoder) { return {TokenDecoderByName(decoder)}; }

// What tiktoken's files do not hold.
class TiktokenParts {
 public:
  TiktokenParts(std::string_view pattern, const nb::dict& special_tokens) : pattern_(pattern) {
    for (const auto& [text, id] : special_tokens) {
      texts_.push_back(nb::cast<std::string>(text));
      ids_.push_back(GetNumber<int32_t>("special_tokens", id));
    }
    for (size_t i = 0; i < texts_.size(); ++i) tokens_.push_back({texts_[i], ids_[i]});
  }
  TiktokenParts(const TiktokenParts&) = delete;
  TiktokenParts& operator=(const TiktokenParts&) = delete;

  TiktokenOptions Options() const { return {.pattern = pattern_, .special_tokens = tokens_}; }

 private:
  std::string pattern_;
  std::vector<std::string> texts_;
  std::vector<int32_t> ids_;
  std::vector<SpecialToken> tokens_;
};

std::string_view BytesOf(const nb::bytes& bytes) {
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

// str, bytes or pathlib.Path.
std::string PathOf(nb::handle path) {
  const nb::object made = nb::module_::import_("os").attr("fsencode")(path);
  return std::string(BytesOf(nb::cast<nb::bytes>(made)));
}

// The clock, for those who give no time.
int64_t SecondsOf(nb::handle seconds) {
  if (seconds.is_none()) return static_cast<int64_t>(std::time(nullptr));
  return GetNumber<int64_t>("seconds", seconds);
}

nb::str TextOf(const std::string& text) { return nb::str(text.data(), text.size()); }

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

nb::tuple StepOf(Detokenizer& detokenizer, nb::handle object) {
  const std::vector<int32_t> ids = GetTokens("ids", object);
  std::string text;
  std::vector<size_t> ends(ids.size());
  detokenizer.Step(ids, text, ends);
  return nb::make_tuple(TextOf(text), ends);
}

// Python counts a text in characters, the scanner in bytes.
nb::tuple ResultOf(const StopResult& result, const StopScanner& scanner, const std::string& text) {
  nb::object stop = nb::none();
  if (result.stop >= 0) {
    stop = nb::cast(scanner.stops().stops()[static_cast<size_t>(result.stop)]);
  }
  return nb::make_tuple(TextOf(text), stop, result.tokens, result.released_tokens);
}

nb::tuple ScanOf(StopScanner& scanner, std::string_view text,
                 const std::optional<std::vector<size_t>>& ends) {
  const std::vector<size_t> one = {text.size()};
  std::string released;
  const StopResult result = scanner.Step(text, ends.has_value() ? *ends : one, released);
  return ResultOf(result, scanner, released);
}

constexpr const char* kTokenizerDoc =
    R"(A vocabulary with what turns text into ids and ids into text.

``from_file`` reads tokenizer.json, SentencePiece's tokenizer.model and \*.tiktoken; ids are those of
Hugging Face tokenizers for the same file. ``decoder`` is ``"auto"``, or ``"bytelevel"`` or ``"spm"``
for a file whose own contradicts its vocabulary.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"decoder": {"type": "ByteLevel"},
    ...     "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    ...     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}''')
    >>> tokenizer.encode("abba")
    [2, 1, 0]
    >>> tokenizer.decode([2, 1, 0])
    'abba')";

constexpr const char* kEncodeDoc =
    R"(The ids of a text.

``add_special_tokens`` puts around it what the model wants there; with ``parse_special_tokens``, a
special token that is spelled out in the text is that token, which text from a user must not be.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.encode("aa")
    [0, 0])";

constexpr const char* kDetokenizerDoc =
    R"(Ids to text, token by token, with a few bytes of state and no text kept.

``step`` takes one id or many and gives (text, ends): what they add, and for each id how many bytes of
the text (as UTF-8) are there behind it. A character comes out when it is complete; ``finish`` gives
what is left of one. Of ``prompt_ids`` only the ends are read. ``utf8_errors="hf-run"`` replaces each
byte of a bad run of byte tokens, as Hugging Face's decoders do.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"decoder": {"type": "ByteLevel"},
    ...     "model": {"type": "BPE", "vocab": {"\\u00e4\\u00bd": 0, "\\u0142": 1, "!": 2}}}''')
    >>> detokenizer = sluice.Detokenizer(tokenizer)
    >>> [detokenizer.step(id) for id in [0, 1, 2]]
    [('', [0]), ('你', [3]), ('!', [1])])";

constexpr const char* kStopScannerDoc =
    R"(Finds stop strings in a stream of text, and holds back only what may be the beginning of one.

``step(text, ends)`` takes the text of the next tokens and the ``ends`` that Detokenizer gives (without
them it is one token), and gives (released, stop, tokens, released_tokens): text that is free of stops,
the stop that was found or None, and how many tokens there were and are out to their last byte.

    >>> scanner = sluice.StopScanner(["END"])
    >>> scanner.step("the E")
    ('the ', None, 1, 0)
    >>> scanner.step("ND. More")
    ('', 'END', 2, 2))";

constexpr const char* kChatTemplateDoc =
    R"(A chat template: conversations to text, byte for byte as transformers renders it.

``render`` takes the variables as one JSON object; ``seconds`` since 1970, in UTC, are what
strftime_now tells: those of the clock unless they are given.

    >>> template = sluice.ChatTemplate("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
    >>> template.render('{"messages": [{"role": "user", "content": "Hi"}]}')
    '[user] Hi')";

}  // namespace

void BindText(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", kTokenizerDoc)
      .def_static(
          "from_file",
          [](nb::handle path, std::string_view decoder, std::string_view pattern,
             const nb::dict& special_tokens) {
            const std::string file = PathOf(path);
            const TiktokenParts parts(pattern, special_tokens);
            TokenizerOptions options = OptionsFor(decoder);
            options.tiktoken = parts.Options();
            const nb::gil_scoped_release release;
            return Tokenizer::FromFile(file, options);
          },
          nb::arg("path"), nb::kw_only(), nb::arg("decoder") = "auto", nb::arg("pattern") = "",
          nb::arg("special_tokens") = nb::dict(),
          R"(The tokenizer that a file describes, by its content; ``path`` is a str, bytes or a pathlib.Path.

``pattern`` and ``special_tokens`` (a dict of texts and ids) are for \*.tiktoken, as ``from_tiktoken``
takes them.

    >>> sluice.Tokenizer.from_file("/nowhere")
    Traceback (most recent call last):
    ...
    sluice.errors.Error: path = "/nowhere" (No such file or directory) is not allowed: a file of at most 256 MiB that can be read)")
      .def_static(
          "from_json",
          [](std::string_view json, std::string_view decoder) {
            const nb::gil_scoped_release release;
            return Tokenizer::FromJson(json, OptionsFor(decoder));
          },
          nb::arg("json"), nb::kw_only(), nb::arg("decoder") = "auto",
          R"(The tokenizer of the text of a tokenizer.json.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> len(tokenizer)
    1)")
      .def_static(
          "from_sentencepiece",
          [](const nb::bytes& model, std::string_view decoder) {
            const nb::gil_scoped_release release;
            return Tokenizer::FromSentencePiece(BytesOf(model), OptionsFor(decoder));
          },
          nb::arg("model"), nb::kw_only(), nb::arg("decoder") = "auto",
          R"(The tokenizer of the bytes of a tokenizer.model.

    >>> len(sluice.Tokenizer.from_sentencepiece(b"\n\x03\n\x01a"))
    1)")
      .def_static(
          "from_tiktoken",
          [](const nb::bytes& ranks, std::string_view pattern, const nb::dict& special_tokens) {
            const TiktokenParts parts(pattern, special_tokens);
            const nb::gil_scoped_release release;
            return Tokenizer::FromTiktoken(BytesOf(ranks), parts.Options());
          },
          nb::arg("ranks"), nb::kw_only(), nb::arg("pattern") = "",
          nb::arg("special_tokens") = nb::dict(),
          R"(The tokenizer of the bytes of a \*.tiktoken file.

``pattern`` cuts text into words, and is that of the model (without it ids can be decoded only);
``special_tokens`` is a dict of texts and ids.

    >>> tokenizer = sluice.Tokenizer.from_tiktoken(b"YQ== 0\nYg== 1\nYWI= 2\n", pattern=r"\w+|\W+",
    ...     special_tokens={"<end>": 3})
    >>> tokenizer.encode("abba<end>", parse_special_tokens=True)
    [2, 1, 0, 3])")
      .def(
          "encode",
          [](const Tokenizer& tokenizer, std::string_view text, bool add, bool parse) {
            const nb::gil_scoped_release release;
            return tokenizer.Encode(text,
                                    {.add_special_tokens = add, .parse_special_tokens = parse});
          },
          nb::arg("text"), nb::kw_only(), nb::arg("add_special_tokens") = true,
          nb::arg("parse_special_tokens") = false, kEncodeDoc)
      .def(
          "decode",
          [](const Tokenizer& tokenizer, nb::handle ids, bool skip) {
            const std::vector<int32_t> tokens = GetTokens("ids", ids);
            std::string text;
            {
              const nb::gil_scoped_release release;
              text = tokenizer.Decode(tokens, skip);
            }
            return TextOf(text);
          },
          nb::arg("ids"), nb::kw_only(), nb::arg("skip_special_tokens") = true,
          R"(The text of ids, all at once.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.decode([0, 7])
    'a')")
      .def(
          "token",
          [](const Tokenizer& tokenizer, int32_t id) -> nb::object {
            const auto token = tokenizer.Token(id);
            return token ? nb::cast(nb::bytes(token->data(), token->size())) : nb::none();
          },
          nb::arg("id"), R"(The bytes that the file spells a token with, or None.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.token(0)
    b'a')")
      .def("id", &Tokenizer::Id, nb::arg("token"),
           R"(The id of a token as the file spells it, or None.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.id("a")
    0)")
      .def("is_special", &Tokenizer::IsSpecial, nb::arg("id"),
           R"(Whether a token is left out with skip_special_tokens.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.is_special(0)
    False)")
      .def(
          "stop_token_ids",
          [](const Tokenizer& tokenizer, const std::vector<std::string>& stops) {
            return tokenizer.StopTokenIds(stops);
          },
          nb::arg("stops"), R"(Of stop strings, those that are the text of an added token, as ids.

A generation ends at such a token as well: its text may be skipped, and then no scanner sees it.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"model": {"type": "BPE", "vocab": {"a": 0}},
    ...     "added_tokens": [{"id": 1, "content": "<end>", "special": true}]}''')
    >>> tokenizer.stop_token_ids(["a", "<end>"])
    [1])")
      .def("__len__", &Tokenizer::size);

  nb::class_<Detokenizer>(module, "Detokenizer", kDetokenizerDoc)
      .def(
          "__init__",
          [](Detokenizer* self, const Tokenizer& tokenizer, nb::handle prompt, bool skip,
             bool spaces, std::string_view errors) {
            std::vector<int32_t> ids;
            if (!prompt.is_none()) ids = GetTokens("prompt_ids", prompt);
            new (self) Detokenizer(tokenizer,
                                   {.skip_special_tokens = skip,
                                    .spaces_between_special_tokens = spaces,
                                    .utf8_errors = ErrorsByName(errors)},
                                   ids);
          },
          nb::arg("tokenizer"), nb::kw_only(), nb::arg("prompt_ids") = nb::none(),
          nb::arg("skip_special_tokens") = true, nb::arg("spaces_between_special_tokens") = true,
          nb::arg("utf8_errors") = "maximal")
      .def("step", StepOf, nb::arg("ids"), R"(The text that ids add, and where each of them ends.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> sluice.Detokenizer(tokenizer).step([0, 0])
    ('a a', [1, 3]))")
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
            new (self) StopScanner(std::make_shared<const StopList>(stops), {include, min_tokens});
          },
          nb::arg("stops"), nb::kw_only(), nb::arg("include") = false, nb::arg("min_tokens") = 0)
      .def("step", ScanOf, nb::arg("text"), nb::arg("ends") = nb::none(),
           R"(Takes text; gives (released, stop, tokens, released_tokens).

    >>> sluice.StopScanner(["b"]).step("ab")
    ('a', 'b', 1, 1))")
      .def(
          "finish",
          [](StopScanner& scanner, std::string_view rest) {
            std::string released;
            const StopResult result = scanner.Finish(rest, released);
            return ResultOf(result, scanner, released);
          },
          nb::arg("rest") = "", R"(For an end without a stop: what was held back, as ``step``.

    >>> sluice.StopScanner(["b"]).finish()
    ('', None, 0, 0))")
      .def_prop_ro("held_bytes", &StopScanner::held_bytes, "Bytes held back now.");

  nb::class_<ChatTemplate>(module, "ChatTemplate", kChatTemplateDoc)
      .def(
          "__init__",
          [](ChatTemplate* self, std::string_view source) { new (self) ChatTemplate(source); },
          nb::arg("source"))
      .def(
          "render",
          [](const ChatTemplate& chat, std::string_view variables, nb::handle seconds) {
            const int64_t time = SecondsOf(seconds);
            std::string text;
            {
              const nb::gil_scoped_release release;
              text = chat.Render(variables, time);
            }
            return TextOf(text);
          },
          nb::arg("variables"), nb::kw_only(), nb::arg("seconds") = nb::none(),
          R"(The text of a conversation.

    >>> sluice.ChatTemplate("{{ a + 1 }}").render('{"a": 1}')
    '2')");
}

}  // namespace sluice::python
