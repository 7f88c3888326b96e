// What goes to vLLM's EngineCore: requests and aborts, as MessagePack in the layout of the version
// that docs/plugins/vllm-engine.md names.
//
//   ADD      an EngineCoreRequest: an array of its fields; the SamplingParams in it are a map, from
//            which what has its default is left out
//   ABORT    the ids of requests
//   UTILITY  client, number of the call, a method, its arguments
//
// A request's id is its address as text, so that what comes back needs no table of names. It starts
// with a number that is drawn for each life of an engine, so that no other peer can guess it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/engine_messages.hpp"

namespace sluice::link::vllm {

// The frame before each.
inline constexpr std::string_view kAddFrame("\x00", 1);
inline constexpr std::string_view kAbortFrame("\x01", 1);
inline constexpr std::string_view kUtilityFrame("\x03", 1);

inline constexpr std::string_view kIdPrefix = "sluice-";
inline constexpr size_t kMostIdBytes = 64;

std::string RequestIdOf(uint64_t life,
                        const RequestAddress& address);  // sluice-LIFE-SLOT-GENERATION
// An address with slot -1 for everything else.
RequestAddress AddressOf(uint64_t life, std::string_view request_id);

// Throws Error naming the first parameter that the engine has not, or means otherwise, or would
// fail by itself. Call it before WriteAdd: an EngineCore takes what it reads for checked, and a
// request that it cannot read ends its process.
void CheckRequest(const EngineRequest& request);

// A LoRARequest: of the engine's disk, and a number that is its own among all.
struct WrittenAdapter {
  std::string_view name = {};  // empty: none
  std::string_view path = {};
  int32_t number = 0;
};

// Each replaces what `frame` had. Outputs go to the client with this number. `arrival` is in
// seconds since 1970.
void WriteAdd(const EngineRequest& request, uint64_t life, int32_t client,
              const WrittenAdapter& adapter, double arrival, std::string& frame);
void WriteAbort(std::span<const RequestAddress> addresses, uint64_t life, std::string& frame);
void WriteAbort(std::span<const std::string> request_ids, std::string& frame);
// A question that the step loop answers between two steps, and that changes nothing.
void WritePing(int32_t client, int64_t call, std::string& frame);

}  // namespace sluice::link::vllm
