#include "python/signature.h"

#include <deque>
#include <string>

namespace sluice::python {

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

  static std::deque<std::string> kept;
  std::string& text = kept.emplace_back("def ");
  text.append(name).append("(").append(first);
  text.append(
      ", params: SamplingParams | collections.abc.Sequence[SamplingParams] | None = None, *");
  text.append(own.empty() ? "" : ", ").append(own);
  text.append(kParams).append(kExecution);
  text.append(") -> ").append(result);
  return text.c_str();
}

}  // namespace sluice::python
