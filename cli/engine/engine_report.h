// What an engine has done, in words and as JSON.
#pragma once

#include <ostream>
#include <string>

#include "json/writer.h"
#include "sluice/engine_server.hpp"

namespace sluice::cli {

struct EngineReport {
  std::string model;
  std::string endpoint;
  EngineCounters engine;
  LinkCounters link;
};

void PrintReport(const EngineReport& report, std::ostream& out);
void WriteReport(const EngineReport& report, std::ostream& out);  // one object

// The fields, in an object.
void WriteCounters(JsonWriter& json, const EngineCounters& counters);
void WriteCounters(JsonWriter& json, const LinkCounters& counters);

}  // namespace sluice::cli
