#include "python/values/signature.h"

#include <deque>
#include <string>
#include <utility>

#include "python/values/params.h"

namespace sluice::python {
namespace {

// nanobind and the stub keep pointers.
const char* Keep(std::string text) {
  static std::deque<std::string> kept;
  return kept.emplace_back(std::move(text)).c_str();
}

}  // namespace

const char* RowSignature(std::string_view name, std::string_view first, std::string_view own,
                         std::string_view result) {
  constexpr std::string_view kParams =
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  ", " #name ": numpy.typing.ArrayLike | None = None"
#include "sluice/params.def"
      ", profile: str | collections.abc.Sequence[str] | None = None"
      ", seed: numpy.typing.ArrayLike | None = None"
      ", position: numpy.typing.ArrayLike | None = None"
      ", choice: numpy.typing.ArrayLike | None = None"
      ", stream: str | None = None, max_temperature: float | None = None";
  constexpr std::string_view kExecution =
      ", backend: str | None = None, algorithm: str | None = None"
      ", threads: Threads | None = None";

  std::string text = "def ";
  text.append(name).append("(").append(first);
  text.append(
      ", params: SamplingParams | collections.abc.Sequence[SamplingParams] | None = None, *");
  text.append(own.empty() ? "" : ", ").append(own);
  text.append(kParams).append(kExecution);
  text.append(") -> ").append(result);
  return Keep(std::move(text));
}

const char* RequestSignature(std::string_view head, std::string_view result) {
  constexpr std::string_view kParams =
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  ", " #name ": " SLUICE_PYTHON_TYPE_##type " = ..."
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  ", " #name ": " SLUICE_PYTHON_TYPE_##type " = ..."
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  ", " #name ": " SLUICE_PYTHON_TYPE_##type " | None = ..."
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  ", " #name ": " SLUICE_PYTHON_TYPE_##type " = ..."
#define SLUICE_LIST_PARAM(type, name, json, help) ", " #name ": " SLUICE_PYTHON_TYPE_##type " = ..."
#include "sluice/params.def"
      ;
  std::string text(head);
  text.append(kParams).append(") -> ").append(result);
  return Keep(std::move(text));
}

}  // namespace sluice::python
