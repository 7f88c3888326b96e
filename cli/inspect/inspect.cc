#include "cli/inspect/inspect.h"

#include <string>

#include "cli/table.h"
#include "json/writer.h"
#include "sluice/execution.hpp"

namespace sluice::cli {

void PrintBackends(std::ostream& out, const Terminal& terminal) {
  Table table("lll");
  table.Add({"backend", "available", "reason"}, Style::kHeading);
  for (const BackendInfo& info : Backends()) {
    table.Add({std::string(info.name), info.available ? "yes" : "no", std::string(info.reason)},
              info.available ? Style::kGood : Style::kFaint);
  }
  table.Print(out, terminal);
}

void PrintBackendsJson(std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("backends").Array([&] {
      for (const BackendInfo& info : Backends()) {
        json.Object([&] {
          json.Key("name").Value(info.name);
          json.Key("available").Value(info.available);
          json.Key("reason").Value(info.reason);
        });
      }
    });
  });
  out << '\n';
}

}  // namespace sluice::cli
