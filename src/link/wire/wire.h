// The frames between a frontend and an engine: one byte of type, then one MessagePack array.
//
//   frontend                                    engine
//   HELLO protocol, name, pid, credits     ->
//                                          <-   READY protocol, info            (a new epoch)
//   ADD request                            ->
//   ABORT addresses                        ->
//                                          <-   OUTPUT step, time, rows         (costs a credit)
//   CREDIT messages                        ->
//   PING                                   ->
//                                          <-   PONG counters     from the step loop
//   BYE                                    ->
//                                          <-   DEAD reason     the engine ends
//                                          <-   RESET reason    this link ends: say hello again
//
// The link begins with READY, number 0. Frames between a RESET and the next HELLO are dropped; a
// HELLO on a link that stands ends it, with its requests, and begins another. A slot is taken from
// its ADD until the row that ends it has been sent. Without credits rows are held back and merged,
// and go out in OUTPUTs of 1 MiB; rows that are held when the engine ends go out before DEAD with
// or without credits.
//
// Every array begins with the epoch, a random number of the engine's life (0 in HELLO), and the
// number of the frame on its way, from 0: so a reader detects what belongs to another life, comes
// twice or is missing. A reader believes nothing: every length is compared with the bytes of the
// frame before memory is taken, every number with its range, and a frame is taken whole or not at
// all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_columns.h"
#include "sluice/engine_messages.hpp"

namespace sluice::link {

class StepBatch;

inline constexpr uint32_t kProtocol = 7;
inline constexpr size_t kLongestName = 255;       // of a frontend
inline constexpr int64_t kMostCredits = 1 << 17;  // OUTPUTs that an engine may send ahead

enum class FrameType : uint8_t {
  kHello = 1,
  kAdd = 2,
  kAbort = 3,
  kCredit = 4,
  kPing = 5,
  kBye = 6,
  kReady = 17,
  kOutput = 18,
  kPong = 19,
  kDead = 20,
  kReset = 21,
};
std::string_view Name(FrameType type);  // "HELLO", ...

struct FrameHead {
  FrameType type = FrameType::kHello;
  uint64_t epoch = 0;
  uint64_t number = 0;
};

struct Hello {
  uint32_t protocol = kProtocol;
  std::string name = {};  // for logs
  int64_t pid = 0;
  int64_t credits = 0;
};

struct Ready {
  uint32_t protocol = kProtocol;
  EngineInfo info = {};
};

// Each replaces what `frame` had, and takes no memory once it is large enough.
void WriteHello(const FrameHead& head, const Hello& hello, std::string& frame);
void WriteAdd(const FrameHead& head, const EngineRequest& request, std::string& frame);
void WriteAbort(const FrameHead& head, std::span<const RequestAddress> addresses,
                std::string& frame);
void WriteCredit(const FrameHead& head, int64_t messages, std::string& frame);
void WriteReady(const FrameHead& head, const Ready& ready, std::string& frame);
void WriteOutput(const FrameHead& head, int64_t step, int64_t time_ns,
                 std::span<const OutputRow> rows, std::string& frame);
// The rows of the batch that have these numbers.
void WriteOutput(const FrameHead& head, const StepBatch& batch, std::span<const uint32_t> rows,
                 std::string& frame);
// DEAD and RESET.
void WriteReason(const FrameHead& head, std::string_view reason, std::string& frame);
void WritePong(const FrameHead& head, const GrammarCounters& grammars, std::string& frame);
// PING and BYE.
void WriteEmpty(const FrameHead& head, std::string& frame);

// What an engine reads. Only those members after `head` that belong to its type are set.
struct FrontendFrame {
  FrameHead head = {};
  Hello hello = {};
  EngineRequest request = {};
  std::vector<RequestAddress> aborted = {};
  int64_t credits = 0;
};

// What a frontend reads. The rows point into the frame's other members.
struct EngineFrame {
  FrameHead head = {};
  Ready ready = {};
  int64_t step = 0;
  int64_t time_ns = 0;
  std::vector<OutputRow> rows = {};
  std::string reason = {};
  GrammarCounters grammars = {};  // of PONG

  // The columns of all rows, one after the other.
  engine::TokenColumns columns = {};
  engine::LogprobColumns prompt = {};
  std::string messages = {};  // and parameters
};

// Empty, or why the bytes are not such a frame; then `frame` means nothing. Memory is taken for at
// most a small multiple of the bytes, and for an OUTPUT only where `frame` has too little. Only
// head and protocol are read of a HELLO or READY with another protocol.
std::string ReadFrontendFrame(std::string_view bytes, FrontendFrame& frame);
std::string ReadEngineFrame(std::string_view bytes, EngineFrame& frame);

}  // namespace sluice::link
