// How an EngineCore and its frontend find each other.
//
//   engine                                          frontend
//   HELLO, its identity: to the handshake address ->
//                                                 <-  addresses of two more sockets
//   READY of its input: what the engine is        ->     (when the model is loaded)
//   READY: to the handshake address               ->
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice::link::vllm {

// The identity of the engine with this rank; and the rank of one, -1 where it is of none.
std::string IdentityOf(int32_t rank);
int32_t RankOf(std::string_view identity);
// Whole, in place of outputs.
inline constexpr std::string_view kDead = "ENGINE_CORE_DEAD";

struct Greeting {
  bool is_hello = false;  // else it is ready
  bool is_headless = false;
};
// Empty, or why the bytes are not one.
std::string ReadGreeting(std::string_view bytes, Greeting& greeting);

// EngineHandshakeMetadata: where requests are sent from, and outputs go, of each client.
void WriteAddresses(std::span<const std::string> inputs, std::span<const std::string> outputs,
                    std::string& frame);

// The used fields of an EngineCoreReadyResponse.
struct EngineFacts {
  std::string version = {};
  int64_t context = 0;
  int32_t max_requests = 0;
  int64_t data_parallel_size = 1;
  bool supports_lora = false;
  // Its fields that 0.33 has not, and those of 0.33 that it has not: names, with ", " between them.
  std::string added = {};
  std::string missing = {};
};
// Empty, or why the bytes are none.
std::string ReadEngineFacts(std::string_view bytes, EngineFacts& facts);

// Messages have the layout of these files in 0.31 to 0.33, which differ in fields at their ends.
enum class VersionFit : uint8_t {
  kKnown,
  kNewer,  // most often with more such fields
  kOther,  // an older one, or none
};
VersionFit FitOf(std::string_view version);
inline constexpr std::string_view kKnownVersions = "0.31, 0.32 or 0.33";
// Of a newer one: that it is, and how its facts differ.
std::string NewerThanKnown(const EngineFacts& facts);

}  // namespace sluice::link::vllm
