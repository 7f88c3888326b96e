#include "link/vllm/handshake.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <msgpack.hpp>

#include "link/wire/frame_reader.h"

namespace sluice::link::vllm {
namespace {

constexpr size_t kMostEntries = 256;
constexpr size_t kMostVersionBytes = 64;
constexpr size_t kMostNameBytes = 64;
constexpr int32_t kOldestMinor = 31;
constexpr int32_t kNewestMinor = 33;

// Of an EngineCoreReadyResponse of 0.33; 0.32 has all but the last three.
using FactName = std::string_view;
constexpr FactName kFactNames[] = {"max_model_len",
                                   "num_gpu_blocks",
                                   "block_size",
                                   "dp_stats_address",
                                   "dtype",
                                   "vllm_version",
                                   "world_size",
                                   "data_parallel_size",
                                   "tensor_parallel_size",
                                   "pipeline_parallel_size",
                                   "decode_context_parallel_size",
                                   "data_parallel_rank",
                                   "max_num_seqs",
                                   "max_num_batched_tokens",
                                   "instance_id",
                                   "supports_lora",
                                   "max_loras",
                                   "mamba_block_size",
                                   "kv_cache_size_tokens",
                                   "kv_cache_max_concurrency",
                                   "kv_events_config",
                                   "weight_transfer_backend",
                                   "enable_sleep_mode",
                                   "supports_draft_weight_updates",
                                   "effective_attention_block_size",
                                   "coord_store_port",
                                   "coordinator_input_address",
                                   "coordinator_output_address"};

// It is said again in logs and answers.
bool IsWord(std::string_view text, size_t most) {
  return !text.empty() && text.size() <= most &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

void AddName(std::string_view name, std::string& names) {
  if (!IsWord(name, kMostNameBytes)) return;
  if (!names.empty()) names += ", ";
  names += name;
}

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
  std::array<bool, std::size(kFactNames)> has = {};
  ReadMap(reader, [&](std::string_view key) {
    const auto* const known = std::ranges::find(kFactNames, key);
    if (known != std::end(kFactNames)) {
      has[static_cast<size_t>(known - kFactNames)] = true;
    } else {
      AddName(key, facts.added);
    }
    if (key == "vllm_version") return facts.version = reader.String(), true;
    if (key == "max_model_len") {
      return facts.context = reader.Integer<int64_t>(2, INT32_MAX), true;
    }
    if (key == "max_num_seqs") {
      return facts.max_requests = reader.Integer<int32_t>(1), true;
    }
    if (key == "supports_lora") return facts.supports_lora = reader.Bool(), true;
    if (key == "data_parallel_size") {
      return facts.data_parallel_size = reader.Integer<int64_t>(1), true;
    }
    return false;
  });
  if (reader.failed()) return reader.Failure();
  if (!IsWord(facts.version, kMostVersionBytes)) return "a version that is none";
  for (size_t i = 0; i < has.size(); ++i) {
    if (!has[i]) AddName(kFactNames[i], facts.missing);
  }
  const bool is_whole = facts.context > 0 && facts.max_requests > 0;
  return is_whole ? std::string() : "a part of it is missing";
}

VersionFit FitOf(std::string_view version) {
  int32_t major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return VersionFit::kOther;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  const bool has_patch = second.ec == std::errc() && end - second.ptr > 1 && *second.ptr == '.';
  if (!has_patch || major < 0 || minor < 0) return VersionFit::kOther;
  if (major == 0 && minor < kOldestMinor) return VersionFit::kOther;
  return major == 0 && minor <= kNewestMinor ? VersionFit::kKnown : VersionFit::kNewer;
}

std::string NewerThanKnown(const EngineFacts& facts) {
  std::string text = "it is vLLM " + facts.version + ", newer than those that are known (" +
                     std::string(kKnownVersions) + ")";
  if (!facts.added.empty()) text += "; its greeting has in addition " + facts.added;
  if (!facts.missing.empty()) text += "; it lacks " + facts.missing;
  return text;
}

}  // namespace sluice::link::vllm
