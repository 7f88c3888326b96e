#include "cli/engine/faults.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <thread>

#include "cli/text.h"
#include "link/wire/wire.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

struct Stall {
  int64_t step;
  std::chrono::milliseconds time;
};

Stall StallOf(const std::string& text) {
  int64_t step = -1;
  int64_t ms = -1;
  const char* const last = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), last, step);
  if (error == std::errc() && colon != last && *colon == ':') {
    const auto [end, time_error] = std::from_chars(colon + 1, last, ms);
    if (time_error == std::errc() && end == last && step >= 0 && ms >= 0) {
      return {step, std::chrono::milliseconds(ms)};
    }
  }
  throw Error(ErrorCode::kInvalidValue, "stall-at", Quoted(text),
              "STEP:MS, both whole numbers, none of them negative");
}

// splitmix64: of the seed, the kind of fault and the number of the frame.
uint64_t Mixed(uint64_t seed, uint64_t kind, uint64_t number) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + kind * 0xd1342543de82ef95 + number * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

class FrameSpoiler {
 public:
  explicit FrameSpoiler(const FaultOptions& options) : options_(options) {}

  // Sends what is to be sent for this frame.
  void Take(std::string& frame, const std::function<void(std::string_view)>& send) {
    if (!frame.empty() && static_cast<link::FrameType>(frame[0]) == link::FrameType::kOutput) {
      const uint64_t number = number_++;
      const auto is_hit = [&](uint64_t kind, int64_t one_of) {
        return one_of > 0 &&
               Mixed(options_.seed, kind, number) % static_cast<uint64_t>(one_of) == 0;
      };
      if (is_hit(0, options_.wrong_epoch)) SetEpoch(frame);
      if (is_hit(1, options_.truncate)) frame.resize(frame.size() / 2);
      if (is_hit(2, options_.duplicate)) send(frame);
      if (is_hit(3, options_.drop)) return;
      if (held_.empty() && is_hit(4, options_.late)) {
        held_ = frame;
        return;
      }
    }
    send(frame);
    if (held_.empty()) return;
    send(held_);
    held_.clear();
  }

 private:
  static void SetEpoch(std::string& frame) {
    link::EngineFrame parsed;
    if (!link::ReadEngineFrame(frame, parsed).empty()) return;
    ++parsed.head.epoch;
    link::WriteOutput(parsed.head, parsed.step, parsed.time_ns, parsed.rows, frame);
  }

  FaultOptions options_;
  uint64_t number_ = 0;
  std::string held_;
};

}  // namespace

void AddFaultFlags(CLI::App& command, FaultOptions& options) {
  const auto add = [&](const char* flag, int64_t& value, const char* type, const char* help) {
    return command.add_option(flag, value, help)->type_name(type)->group("Faults");
  };
  command
      .add_option("--stall-at", options.stalls,
                  "wait this many milliseconds before this step; may be given many times")
      ->type_name("STEP:MS")
      ->allow_extra_args(false)
      ->group("Faults");
  const CLI::Range steps(int64_t{0}, INT64_MAX);
  add("--kill-at", options.kill_at, "STEP", "kill this process before this step")->check(steps);
  add("--fail-at", options.fail_at, "STEP", "let the model fail in this step")->check(steps);
  const struct {
    const char* flag;
    int64_t& value;
    const char* help;
  } frames[] = {
      {"--late", options.late, "hold one of N frames back and send it after the next one"},
      {"--duplicate", options.duplicate, "send one of N frames twice"},
      {"--drop", options.drop, "do not send one of N frames"},
      {"--truncate", options.truncate, "send half of one of N frames"},
      {"--wrong-epoch", options.wrong_epoch, "send one of N frames as a frame of another engine"}};
  for (const auto& frame : frames) {
    add(frame.flag, frame.value, "N", frame.help)->check(CLI::Range(int64_t{0}, INT64_MAX));
  }
  command.add_option("--seed", options.seed, "the frames that faults hit depend on this seed")
      ->group("Faults")
      ->capture_default_str();
}

std::function<void(int64_t step)> StepFaults(const FaultOptions& options) {
  std::vector<Stall> stalls;
  for (const std::string& text : options.stalls) stalls.push_back(StallOf(text));
  return [options, stalls](int64_t step) {
    for (const Stall& stall : stalls) {
      if (stall.step == step) std::this_thread::sleep_for(stall.time);
    }
    if (step == options.kill_at) std::raise(SIGKILL);
    if (step == options.fail_at) {
      throw std::runtime_error("the model failed in step " + Number(step) + ", as --fail-at says");
    }
  };
}

FrameFault FrameFaults(const FaultOptions& options) {
  const bool hurts = options.late > 0 || options.duplicate > 0 || options.drop > 0 ||
                     options.truncate > 0 || options.wrong_epoch > 0;
  if (!hurts) return {};
  const auto spoiler = std::make_shared<FrameSpoiler>(options);
  return [spoiler](std::string& frame, const std::function<void(std::string_view)>& send) {
    spoiler->Take(frame, send);
  };
}

}  // namespace sluice::cli
