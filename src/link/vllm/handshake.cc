#include "link/vllm/handshake.h"

#include <algorithm>
#include <limits>
#include <msgpack.hpp>

#include "link/wire/frame_reader.h"

namespace sluice::link::vllm {
namespace {

constexpr size_t kMostEntries = 256;
constexpr size_t kMostVersionBytes = 64;

// Calls take(key) for each entry, which reads the value or returns false.
template <typename TakeValue>
void ReadMap(FrameReader& reader, TakeValue take) {
  const size_t size = reader.Map();
  if (size > kMostEntries) reader.Fail("a map that is too long");
  for (size_t i = 0; i < size && !reader.failed(); ++i) {
    if (!take(reader.String())) reader.Skip();
  }
  reader.End();
}

}  // namespace

std::string ReadGreeting(std::string_view bytes, Greeting& greeting) {
  FrameReader reader(bytes);
  std::string_view status;
  greeting = {};
  ReadMap(reader, [&](std::string_view key) {
    if (key == "status") return status = reader.String(), true;
    if (key == "headless") return greeting.is_headless = reader.Bool(), true;
    return false;
  });
  if (reader.failed()) return reader.Failure();
  greeting.is_hello = status == "HELLO";
  return greeting.is_hello || status == "READY" ? std::string() : "an unknown status";
}

std::string IdentityOf(int32_t rank) {
  return {static_cast<char>(rank & 0xff), static_cast<char>(rank >> 8)};
}

int32_t RankOf(std::string_view identity) {
  if (identity.size() != 2) return -1;
  return static_cast<uint8_t>(identity[0]) + 256 * static_cast<uint8_t>(identity[1]);
}

void WriteAddresses(std::span<const std::string> inputs, std::span<const std::string> outputs,
                    std::string& frame) {
  struct Sink {
    void write(const char* data, size_t size) { frame.append(data, size); }
    std::string& frame;
  };
  frame.clear();
  Sink sink{frame};
  msgpack::packer<Sink> packer(sink);
  const auto put = [&](std::string_view text) {
    packer.pack_str(static_cast<uint32_t>(text.size()));
    packer.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  };
  const auto put_list = [&](std::string_view key, std::span<const std::string> addresses) {
    put(key);
    packer.pack_array(static_cast<uint32_t>(addresses.size()));
    for (const std::string& address : addresses) put(address);
  };
  const auto put_none = [&](std::string_view key) {
    put(key);
    packer.pack_nil();
  };
  packer.pack_map(2);
  put("addresses");
  packer.pack_map(5);
  put_list("inputs", inputs);
  put_list("outputs", outputs);
  // Ranks that compute together have a coordinator; each of these computes alone.
  put_none("coordinator_input");
  put_none("coordinator_output");
  put_none("frontend_stats_publish_address");
  put("parallel_config");
  packer.pack_map(0);
}

std::string ReadEngineFacts(std::string_view bytes, EngineFacts& facts) {
  FrameReader reader(bytes);
  facts = {};
  ReadMap(reader, [&](std::string_view key) {
    if (key == "vllm_version") return facts.version = reader.String(), true;
    if (key == "max_model_len") {
      return facts.context = reader.Integer<int64_t>(2, INT32_MAX), true;
    }
    if (key == "max_num_seqs") {
      return facts.max_requests = reader.Integer<int32_t>(1), true;
    }
    if (key == "data_parallel_size") {
      return facts.data_parallel_size = reader.Integer<int64_t>(1), true;
    }
    return false;
  });
  if (reader.failed()) return reader.Failure();
  // It is said again in logs and answers.
  const bool is_text =
      facts.version.size() <= kMostVersionBytes &&
      std::ranges::all_of(facts.version, [](char c) { return c > ' ' && c <= '~'; });
  if (!is_text) return "a version that is none";
  const bool is_whole = !facts.version.empty() && facts.context > 0 && facts.max_requests > 0;
  return is_whole ? std::string() : "a part of it is missing";
}

bool IsKnownVersion(std::string_view version) {
  constexpr std::string_view kKnown[] = {"0.32.", "0.33."};
  return std::ranges::any_of(kKnown, [version](std::string_view its) {
    return version.starts_with(its) && version.size() > its.size();
  });
}

}  // namespace sluice::link::vllm
