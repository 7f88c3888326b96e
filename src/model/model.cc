// Opening a model: which files there are, what they say, and the weights checked against it.
#include "sluice/model.hpp"

#include <simdjson.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "model/layer_backend.h"
#include "model/model_impl.h"
#include "model/safetensors.h"
#include "semantics/host_device.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr int64_t kCappedAtOnce = 4096;         // logits of a task
constexpr int64_t kLargestIndex = 100'000'000;  // bytes, as of a file's own header

std::string NameInDirectory(const std::string& directory, std::string_view name) {
  return std::string(directory).append(directory.ends_with('/') ? "" : "/").append(name);
}

// The shards that model.safetensors.index.json names. They lie in its directory: a name with a path
// could reach any file of the machine.
std::set<std::string> ShardsOf(const std::string& path) {
  const MappedFile file(path, "model", "model.safetensors or model.safetensors.index.json");
  CheckInRange(path + ": bytes", std::ssize(file.bytes()), 0, kLargestIndex);
  simdjson::dom::parser parser;
  simdjson::dom::object index, map;
  if (parser.parse(simdjson::padded_string(file.text())).get(index) ||
      index["weight_map"].get(map)) {
    ThrowInvalid(path, "malformed", "one JSON object with a weight_map");
  }
  std::set<std::string> names;
  for (const simdjson::dom::key_value_pair field : map) {
    std::string_view name;
    if (field.value.get(name) || name.empty() || name.find_first_of("/\\") != name.npos) {
      ThrowInvalid(path + ": " + std::string(field.key), simdjson::minify(field.value),
                   "the name of a file in the directory of the index");
    }
    names.emplace(name);
  }
  return names;
}

std::shared_ptr<Model::Impl> MakeImpl(std::string_view config, const model::StoredTensors& tensors,
                                      const ModelOptions& options, const ParallelFor& parallel) {
  const FloatEnvironment environment;
  auto impl = std::make_shared<Model::Impl>();
  impl->config = model::ParseConfig(config);
  impl->weights = model::ReadWeights(impl->config, tensors, options, parallel);
  impl->config.info.parameters = impl->weights.parameters;
  impl->config.info.weight_bytes = impl->weights.bytes;
  return impl;
}

}  // namespace

Model Model::Open(const std::string& directory, const ModelOptions& options,
                  const ParallelFor& parallel) {
  const MappedFile config(NameInDirectory(directory, "config.json"), "model",
                          "a model's config.json");
  std::set<std::string> names = {"model.safetensors"};
  if (!std::filesystem::exists(NameInDirectory(directory, "model.safetensors"))) {
    names = ShardsOf(NameInDirectory(directory, "model.safetensors.index.json"));
  }
  std::vector<MappedFile> files;
  model::StoredTensors tensors;
  for (const std::string& name : names) {
    files.emplace_back(NameInDirectory(directory, name), "model", "a file of weights");
    model::AddTensors(name, files.back().bytes(), tensors);
  }
  auto impl = MakeImpl(config.text(), tensors, options, parallel);
  impl->files = std::move(files);
  return Model(std::move(impl));
}

Model Model::FromFiles(const ModelFiles& files, const ModelOptions& options,
                       const ParallelFor& parallel) {
  model::StoredTensors tensors;
  for (size_t i = 0; i < files.safetensors.size(); ++i) {
    model::AddTensors("safetensors[" + ToText(static_cast<int64_t>(i)) + "]", files.safetensors[i],
                      tensors);
  }
  return Model(MakeImpl(files.config, tensors, options, parallel));
}

const ModelInfo& Model::info() const { return impl_->config.info; }

DenseHead Model::head() const { return {impl_->weights.head, {}}; }

void CapLogits(float cap, const MutableLogitsView& logits, const Execution& execution) {
  if (!(cap >= 0.0f && cap < semantics::Infinity())) {
    ThrowInvalid("cap", ToText(cap), "[0, +inf)");
  }
  CheckLogits("logits", logits);
  CheckDType("logits", logits.dtype, DType::kF32);
  CheckExecution(execution, 0);
  if (cap == 0.0f) return;
  const model::LayerTable& table = model::LayerTableFor(execution.backend);
  const int64_t pieces = (logits.vocab + kCappedAtOnce - 1) / kCappedAtOnce;
  ForEachRow(execution.parallel, logits.rows * pieces, [&](int64_t task, int) {
    const int64_t begin = task % pieces * kCappedAtOnce;
    const int64_t end = std::min(begin + kCappedAtOnce, logits.vocab);
    float* const row = static_cast<float*>(logits.Row(task / pieces));
    table.soft_cap(cap, row + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace sluice
