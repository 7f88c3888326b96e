#include "cli/vllm/find_vllm.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "link/child_process.h"
#include "link/vllm/handshake.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

constexpr std::chrono::seconds kPatience{60};  // a file system of another machine is slow
constexpr const char* kVersionScript =
    "import importlib.metadata as m\n"
    "try: print(m.version('vllm'))\n"
    "except m.PackageNotFoundError: print('none')\n";

std::string OnPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path file = std::filesystem::path(folder) / program;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file.string();
  }
  return {};
}

// The interpreter in the first line of a script: "#!/venv/bin/python", "#!/usr/bin/env python3".
std::string InterpreterOf(const std::string& script) {
  std::ifstream file(script);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return {};
  std::istringstream words(line.substr(2));
  std::string program, argument;
  words >> program >> argument;
  if (std::filesystem::path(program).filename() == "env") program = OnPath(argument);
  const bool is_python =
      std::filesystem::path(program).filename().string().find("python") != std::string::npos;
  return is_python ? program : std::string();
}

std::string PythonOf(const std::string& given) {
  if (!given.empty()) {
    const std::string found = given.find('/') == std::string::npos ? OnPath(given) : given;
    if (!found.empty() && ::access(found.c_str(), X_OK) == 0) return found;
    throw std::runtime_error("--python " + given + " is no program that can be run");
  }
  const std::string vllm = OnPath("vllm");
  if (!vllm.empty()) {
    if (std::string python = InterpreterOf(vllm); !python.empty()) return python;
  }
  const std::string python = OnPath("python3");
  if (!python.empty()) return python;
  throw std::runtime_error(
      "neither vllm nor python3 is on PATH: --python names the interpreter that has vLLM");
}

// What it writes on standard output within the time.
std::string OutputOf(const std::vector<std::string>& command) {
  link::ChildProcess child = link::StartChild(command);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::string text;
  while (std::chrono::steady_clock::now() < end) {
    pollfd file{child.output.get(), POLLIN, 0};
    if (::poll(&file, 1, 100) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t size = ::read(child.output.get(), buffer.data(), buffer.size());
    if (size > 0) text.append(buffer.data(), static_cast<size_t>(size));
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
  link::KillGroup(child);
  return text;
}

}  // namespace

FoundVllm FindVllm(const std::string& python) {
  FoundVllm found{.python = PythonOf(python), .version = ""};
  std::string text;
  try {
    text = OutputOf({found.python, "-c", kVersionScript});
  } catch (const Error& error) {
    throw std::runtime_error(found.python + " cannot be run: " + error.value());
  }
  std::istringstream(text) >> found.version;
  const std::string known(link::vllm::kKnownVersions);
  if (found.version.empty() || found.version == "none") {
    throw std::runtime_error(found.python +
                             " has no vLLM: --python names an interpreter with vLLM " + known);
  }
  if (!link::vllm::IsKnownVersion(found.version)) {
    throw std::runtime_error("vLLM " + found.version + " of " + found.python +
                             " speaks other messages: Sluice takes " + known +
                             ", and --python names another interpreter");
  }
  return found;
}

}  // namespace sluice::cli
