// Messages as vLLM's own encoder made them: tests/fixtures/make_vllm_messages.py.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine_messages.hpp"

namespace sluice::test {

using Frames = std::vector<std::string>;

inline std::string FromHex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

inline std::map<std::string, Frames> ReadVllmMessages(const std::string& path) {
  std::map<std::string, Frames> read;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != "#") {
      for (std::string digits; words >> digits;) read[name].push_back(FromHex(digits));
    }
  }
  return read;
}
inline const std::map<std::string, Frames>& VllmMessages() {
  static const auto messages = ReadVllmMessages(SLUICE_FIXTURES "/vllm_messages.txt");
  return messages;
}
// "VERSION/NAME": those that 0.33 has otherwise.
inline const std::map<std::string, Frames>& OlderVllmMessages() {
  static const auto messages = ReadVllmMessages(SLUICE_FIXTURES "/vllm_messages_older.txt");
  return messages;
}
inline const Frames& VllmMessage(const std::string& name) {
  const auto found = VllmMessages().find(name);
  static const Frames none;
  EXPECT_NE(found, VllmMessages().end()) << name;
  return found == VllmMessages().end() ? none : found->second;
}
// With another name for a request, wherever the message has it as text.
inline std::string Renamed(std::string bytes, const std::string& from, const std::string& to) {
  const auto text = [](const std::string& name) {
    return name.size() < 32 ? static_cast<char>(0xa0 | name.size()) + name
                            : '\xd9' + std::string(1, static_cast<char>(name.size())) + name;
  };
  const std::string old = text(from), its = text(to);
  for (size_t at = 0; (at = bytes.find(old, at)) != std::string::npos; at += its.size()) {
    bytes.replace(at, old.size(), its);
  }
  return bytes;
}
inline std::vector<std::string_view> Views(const Frames& frames) {
  return {frames.begin(), frames.end()};
}

inline constexpr uint64_t kVllmLife = 77;

// As the fixture has it.
inline EngineRequest PlainVllmRequest() {
  EngineRequest request;
  request.address = {1, 2};
  request.prompt = {1, 2, 300, 70000};
  request.params.seed = 5;
  request.max_tokens = 16;
  request.stop_at = StopAt::kFrontend;
  return request;
}

}  // namespace sluice::test
