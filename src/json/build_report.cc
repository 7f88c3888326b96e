#include "json/build_report.h"

#include <algorithm>
#include <string>

#include "json/writer.h"
#include "sluice/execution.hpp"
#include "sluice/version.hpp"
#include "support/build_facts.h"
#include "support/cuda_driver.h"
#include "support/registry.h"

namespace sluice {
namespace {

void WriteTextOrNull(JsonWriter& json, std::string_view text) {
  if (text.empty()) {
    json.Null();
  } else {
    json.Value(text);
  }
}

std::string_view AutomaticBackendName() {
  const Backend chosen = ResolveBackend(Backend::kAuto);
  return std::ranges::find(Backends(), chosen, &BackendInfo::backend)->name;
}

void WriteBackends(JsonWriter& json) {
  json.Key("backends").Array([&] {
    for (const BackendInfo& info : Backends()) {
      json.Object([&] {
        json.Key("name").Value(info.name);
        json.Key("available").Value(info.available);
        json.Key("reason").Value(info.reason);
      });
    }
  });
}

void WriteCuda(JsonWriter& json, std::string_view toolkit) {
  const CudaDriver driver = ReadCudaDriver();
  json.Key("cuda").Object([&] {
    WriteTextOrNull(json.Key("compiled"), toolkit);
    WriteTextOrNull(json.Key("driver"),
                    driver.version == 0 ? std::string() : CudaVersionText(driver.version));
    json.Key("devices").Array([&] {
      for (const CudaDevice& device : driver.devices) {
        json.Object([&] {
          json.Key("name").Value(device.name);
          json.Key("compute_capability")
              .Value(std::to_string(device.major) + "." + std::to_string(device.minor));
          json.Key("bytes").Value(device.bytes);
        });
      }
    });
    WriteTextOrNull(json.Key("problem"), CudaProblem(toolkit, driver));
  });
}

}  // namespace

void WriteBuildReport(std::ostream& out, int64_t model_bytes) {
  const BuildFacts build = ThisBuild();
  const MachineFacts machine = ThisMachine();
  JsonWriter json(out);
  json.Object([&] {
    json.Key("version").Value(kVersionString);
    WriteTextOrNull(json.Key("commit"), build.commit);
    json.Key("compiler").Value(build.compiler);
    json.Key("assertions").Value(build.has_assertions);
    json.Key("libraries").Raw(build.libraries);
    json.Key("system").Value(machine.system);
    WriteTextOrNull(json.Key("libc"), machine.libc);
    json.Key("cpu").Value(machine.cpu);
    json.Key("threads").Value(machine.threads);
    WriteBackends(json);
    json.Key("backend").Value(AutomaticBackendName());
    WriteCuda(json, build.cuda);
    json.Key("model");
    if (model_bytes == 0) {
      json.Null();
    } else {
      json.Object([&] {
        json.Key("name").Value("default");
        json.Key("bytes").Value(model_bytes);
      });
    }
  });
}

}  // namespace sluice
