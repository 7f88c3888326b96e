#include "cli/vllm/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path Cache() {
  if (const std::string hub = Variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string cache = Variable("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(Variable("HOME")) / ".cache" : fs::path(cache)) /
         "huggingface/hub";
}

// "ORG/NAME" of characters that such names have.
bool IsName(const std::string& model) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  return std::ranges::count(model, '/') == 1 && !model.starts_with('/') && !model.ends_with('/') &&
         !model.starts_with('.') &&
         std::ranges::all_of(model, [&](char c) { return c == '/' || is_part(c); });
}

}  // namespace

std::string ModelFolder(const std::string& model, const std::string& revision) {
  std::error_code error;
  if (fs::is_directory(model, error)) return model;
  if (!IsName(model)) {
    throw std::runtime_error(model + " is neither a folder nor the name of a model, ORG/NAME");
  }
  std::string folder = "models--" + model;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path cached = Cache() / folder;
  const std::string wanted = revision.empty() ? "main" : revision;
  std::string commit;
  std::ifstream(cached / "refs" / wanted) >> commit;
  for (const std::string& name : {commit, wanted}) {
    const fs::path snapshot = cached / "snapshots" / name;
    if (!name.empty() && fs::is_directory(snapshot, error)) return snapshot.string();
  }
  throw std::runtime_error(model + " is no folder, and " + cached.string() +
                           " has no snapshot of " + wanted + ": \"hf download " + model +
                           (revision.empty() ? "" : " --revision " + revision) + "\" fetches it");
}

bool HasExperts(const std::string& folder) {
  std::ifstream file(fs::path(folder) / "config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // As vLLM 0.33 knows them.
  for (const char* const name : {"num_experts", "moe_num_experts", "num_local_experts",
                                 "n_routed_experts", "num_moe_experts"}) {
    const std::string key = '"' + std::string(name) + '"';
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const size_t value = text.find_first_not_of(" \t\r\n:[", at + key.size());
      if (value != std::string::npos && text[value] >= '1' && text[value] <= '9') return true;
    }
  }
  return false;
}

}  // namespace sluice::cli
