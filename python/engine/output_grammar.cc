#include "python/engine/output_grammar.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "grammar/language.h"
#include "python/engine/engine_parts.h"
#include "python/errors.h"
#include "python/values/objects.h"

namespace sluice::python {
namespace {

constexpr const char* kVariable = "SLUICE_GRAMMAR_LIBRARY";

std::string TextFrom(Keyword keyword, nb::handle value, const char* allowed) {
  if (!PyUnicode_Check(value.ptr())) ThrowType(NameOf(keyword), Describe(value), allowed);
  return nb::cast<std::string>(value);
}

// A dict, JSON, or a class of pydantic.
std::string SchemaFrom(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  nb::object schema = nb::borrow(value);
  if (nb::hasattr(value, "model_json_schema")) schema = value.attr("model_json_schema")();
  if (!PyDict_Check(schema.ptr())) {
    ThrowType("json_schema", Describe(value), "a dict, JSON as a str, or a model of pydantic");
  }
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(schema));
}

std::string ChoicesFrom(nb::handle value) {
  constexpr const char* kAllowed = "a list of one str or more";
  if (PyUnicode_Check(value.ptr())) ThrowType("choices", Describe(value), kAllowed);
  const std::vector<std::string> choices = TextsFrom("choices", value);
  if (choices.empty()) ThrowValue("choices", "an empty list", kAllowed);
  return ChoiceGrammar(choices);
}

OutputGrammar GrammarOf(Keyword keyword, nb::handle value) {
  switch (keyword) {
    case Keyword::json_schema:
      return {.kind = GrammarKind::kJsonSchema, .text = SchemaFrom(value)};
    case Keyword::regex:
      return {.kind = GrammarKind::kRegex, .text = TextFrom(keyword, value, "a str")};
    case Keyword::choices:
      return {.kind = GrammarKind::kEbnf, .text = ChoicesFrom(value)};
    case Keyword::grammar: {
      std::string text = TextFrom(keyword, value, "GBNF or Lark as a str");
      const GrammarKind kind = grammar::LanguageOf(text);
      return {.kind = kind, .text = std::move(text)};
    }
    default:
      return {};  // json_object
  }
}

// The site-packages folder of this Python with the package, which is not imported: it needs torch.
std::string InstalledFolder() {
  const nb::object spec = nb::module_::import_("importlib.util").attr("find_spec")("xgrammar");
  if (spec.is_none() || spec.attr("origin").is_none()) return "";
  const nb::object path = nb::module_::import_("os").attr("path");
  return PathFrom(path.attr("dirname")(path.attr("dirname")(spec.attr("origin"))));
}

}  // namespace

std::optional<OutputGrammar> OutputGrammarFrom(const Arguments& arguments) {
  std::optional<Keyword> given;
  for (const Keyword keyword : {Keyword::json_schema, Keyword::json_object, Keyword::regex,
                                Keyword::grammar, Keyword::choices}) {
    const bool is_given =
        keyword == Keyword::json_object ? arguments.Flag(keyword) : arguments.Has(keyword);
    if (!is_given) continue;
    if (given.has_value()) {
      ThrowValue(
          NameOf(keyword), Describe(arguments[keyword]),
          "None together with " + std::string(NameOf(*given)) + ": an output has one grammar");
    }
    given = keyword;
  }
  if (!given.has_value()) return std::nullopt;
  return GrammarOf(*given, arguments[*given]);
}

std::optional<GrammarLibrary> GrammarLibraryFrom(nb::handle folder) {
  if (!folder.is_none()) return GrammarLibrary::Load(PathFrom(folder));
  if (const char* const variable = std::getenv(kVariable);
      variable != nullptr && *variable != '\0') {
    try {
      return GrammarLibrary::Load(variable);
    } catch (const Error& error) {
      throw Error(error.code(), kVariable, error.value(), error.allowed());
    }
  }
  try {
    return GrammarLibrary::Load(InstalledFolder());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) throw;
    return std::nullopt;
  }
}

}  // namespace sluice::python
