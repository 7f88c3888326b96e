// Text: Tokenizer and ChatTemplate; text_stream.cc has the others.
#include "python/text.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/errors.h"
#include "python/values/calls.h"
#include "python/values/objects.h"
#include "sluice/chat_template.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::python {
namespace {

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

std::optional<int64_t> SecondsOf(nb::handle seconds) {
  if (seconds.is_none()) return std::nullopt;
  return GetNumber<int64_t>("seconds", seconds);
}

constexpr const char* kTokenizerDoc =
    R"(A vocabulary with what turns text into ids and ids into text.

``from_file`` reads tokenizer.json, SentencePiece's tokenizer.model and \*.tiktoken; ids are those of
Hugging Face tokenizers for the same file. ``decoder`` is ``"auto"``, or ``"bytelevel"`` or ``"spm"``
for a file with one that contradicts its vocabulary.

    >>> tokenizer = sluice.Tokenizer.from_json('''{"decoder": {"type": "ByteLevel"},
    ...     "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    ...     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}''')
    >>> tokenizer.encode("abba")
    [2, 1, 0]
    >>> tokenizer.decode([2, 1, 0])
    'abba')";

constexpr const char* kEncodeDoc =
    R"(The ids of a text.

``add_special_tokens`` puts the model's tokens around it; with ``parse_special_tokens``, a
special token that is spelled out in the text is that token, which text from a user must not be.

    >>> tokenizer = sluice.Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    >>> tokenizer.encode("aa")
    [0, 0])";

constexpr const char* kChatTemplateDoc =
    R"(A chat template: conversations to text, byte for byte as transformers renders it.

``render`` takes the variables as one JSON object; ``seconds`` since 1970, in UTC, are what
strftime_now returns: those of the clock unless they are given.

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
            const std::string file = PathFrom(path);
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
            // A token takes 4 ns: to wait for the lock again may take longer than a short text.
            constexpr size_t kLong = 4096;
            const std::vector<int32_t> tokens = GetTokens("ids", ids);
            std::string text;
            {
              std::optional<nb::gil_scoped_release> release;
              if (tokens.size() >= kLong) release.emplace();
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

  BindTextStream(module);

  nb::class_<ChatTemplate>(module, "ChatTemplate", kChatTemplateDoc)
      .def(
          "__init__",
          [](ChatTemplate* self, std::string_view source) { new (self) ChatTemplate(source); },
          nb::arg("source"))
      .def(
          "render",
          [](const ChatTemplate& chat, std::string_view variables, nb::handle seconds) {
            const std::optional<int64_t> time = SecondsOf(seconds);
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
