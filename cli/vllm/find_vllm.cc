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
#include <string_view>
#include <vector>

#include "cli/text.h"
#include "link/child_process.h"
#include "link/vllm/handshake.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

constexpr std::chrono::seconds kPatience{60};  // a file system of another machine is slow
constexpr size_t kMostText = size_t{64} << 10;
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

// What is in the pipe. Of a text without end the last part is kept. False at its end.
bool Drain(int file, std::string& text) {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t size = ::read(file, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 && errno == EAGAIN;
    text.append(buffer.data(), static_cast<size_t>(size));
    if (text.size() > 2 * kMostText) text.erase(0, text.size() - kMostText);
  }
}

struct Run {
  std::string output;
  std::string errors;
  std::string end;  // as EndOfChild has it; empty: it was not over in time
};

Run RunOf(const std::vector<std::string>& command) {
  link::ChildProcess child = link::StartChild(command);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  Run run;
  std::array<pollfd, 3> files = {{{child.output.get(), POLLIN, 0},
                                  {child.errors.get(), POLLIN, 0},
                                  {child.pidfd.get(), POLLIN, 0}}};
  while (run.end.empty() && std::chrono::steady_clock::now() < until) {
    if (::poll(files.data(), files.size(), 100) <= 0) continue;
    run.end = link::EndOfChild(child.pidfd);  // before its last words are read
    if (!Drain(child.output.get(), run.output)) files[0].fd = -1;
    if (!Drain(child.errors.get(), run.errors)) files[1].fd = -1;
  }
  link::KillGroup(child);
  return run;
}

std::string LastLineOf(std::string_view text) {
  const size_t last = text.find_last_not_of(" \r\n");
  if (last == std::string_view::npos) return {};
  text = text.substr(0, last + 1);
  return std::string(text.substr(text.find_last_of("\r\n") + 1));
}

// Why an interpreter has not said which version it has.
std::string WhyNoVersion(const Run& run) {
  if (run.end.empty()) return "it has not answered for " + Number(kPatience.count()) + " s";
  const std::string said = LastLineOf(run.errors);
  return run.end + (said.empty() ? "" : ": " + said);
}

}  // namespace

FoundVllm FindVllm(const std::string& python) {
  FoundVllm found{.python = PythonOf(python), .version = ""};
  Run run;
  try {
    run = RunOf({found.python, "-c", kVersionScript});
  } catch (const Error& error) {
    throw std::runtime_error(found.python + " cannot be run: " + error.value());
  }
  std::istringstream(run.output) >> found.version;
  const std::string known(link::vllm::kKnownVersions);
  if (run.end != "exit status 0" || found.version.empty()) {
    throw std::runtime_error(found.python +
                             " does not say which vLLM it has: " + WhyNoVersion(run));
  }
  if (found.version == "none") {
    throw std::runtime_error(found.python +
                             " has no vLLM: --python names an interpreter with vLLM " + known);
  }
  if (link::vllm::FitOf(found.version) == link::vllm::VersionFit::kOther) {
    throw std::runtime_error("vLLM " + found.version + " of " + found.python +
                             " speaks other messages: Sluice takes " + known +
                             ", and --python names another interpreter");
  }
  return found;
}

}  // namespace sluice::cli
