#include <sstream>

#include "json/params_json.h"
#include "json/params_writer.h"

namespace sluice {

std::string WriteParams(const SamplingParams& params) {
  std::ostringstream out;
  JsonWriter json(out);
  json.Object([&] { ParamsWriter(json).WriteFields(params); });
  return out.str();
}

}  // namespace sluice
