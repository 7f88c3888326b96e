// The fields of frames; read_frames.cc has the same fields in the same order.
#include <bit>
#include <concepts>
#include <cstring>
#include <msgpack.hpp>
#include <utility>

#include "json/profile_switches.h"
#include "link/wire/frame_fields.h"
#include "link/wire/step_batch.h"
#include "link/wire/wire.h"

namespace sluice::link {
namespace {

// msgpack's packer writes here, a few bytes at a time: into a block, because a string tests its
// capacity and its end for each of them. It is appended to the frame when full, and at the end.
class Block {
 public:
  explicit Block(std::string& frame) : frame_(frame) {}
  ~Block() { frame_.append(bytes_, used_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void write(const char* data, size_t size) {
    if (size == 0) return;  // a list that is empty may have no address
    if (size > sizeof bytes_) {
      Flush();
      frame_.append(data, size);
    } else {
      std::memcpy(Room(size), data, size);
      used_ += size;
    }
  }
  // Room for this many bytes, of which those before `end` are then kept.
  char* Room(size_t size) {
    if (size > sizeof bytes_ - used_) Flush();
    return bytes_ + used_;
  }
  void KeepTo(const char* end) { used_ = static_cast<size_t>(end - bytes_); }

 private:
  void Flush() { frame_.append(bytes_, std::exchange(used_, 0)); }

  std::string& frame_;
  size_t used_ = 0;
  char bytes_[1024];
};

template <typename T>
char* PutBytes(char code, T value, char* at) {  // the byte of the highest value first
  *at++ = code;
  for (size_t i = sizeof(T); i > 0; --i) *at++ = static_cast<char>(value >> (8 * (i - 1)));
  return at;
}

// At most 9 bytes, equal to the packer's, which checks for room at each number: a row of five takes
// 5 to 9 ns with these, and 18 with that.
char* PutNatural(uint64_t value, char* at) {
  if (value < 0x80) {
    *at++ = static_cast<char>(value);
    return at;
  }
  if (value <= 0xff) return PutBytes('\xcc', static_cast<uint8_t>(value), at);
  if (value <= 0xffff) return PutBytes('\xcd', static_cast<uint16_t>(value), at);
  if (value <= 0xffffffff) return PutBytes('\xce', static_cast<uint32_t>(value), at);
  return PutBytes('\xcf', value, at);
}

class FrameWriter {
 public:
  // `fields`: those after the head.
  FrameWriter(const FrameHead& head, uint32_t fields, std::string& frame)
      : block_(frame), packer_(block_) {
    frame.clear();
    const char type = static_cast<char>(head.type);
    block_.write(&type, 1);
    Array(kHeadFields + fields);
    Put(head.epoch);
    Put(head.number);
  }

  void Array(size_t size) { packer_.pack_array(static_cast<uint32_t>(size)); }
  void Nil() { packer_.pack_nil(); }

  template <std::integral T>
  void Put(T value) {
    packer_.pack(value);
  }
  template <typename T>
    requires std::is_enum_v<T>
  void Put(T value) {
    packer_.pack(static_cast<uint8_t>(value));
  }
  // Not pack_float, which makes whole numbers of some, and 0 of -0.
  void Put(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const char bytes[] = {'\xca', static_cast<char>(bits >> 24), static_cast<char>(bits >> 16),
                          static_cast<char>(bits >> 8), static_cast<char>(bits)};
    block_.write(bytes, sizeof bytes);
  }
  void Put(std::string_view text) {
    packer_.pack_str(static_cast<uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  }
  void Put(const std::string& text) { Put(std::string_view(text)); }
  template <typename T>
  void Put(std::span<const T> list) {
    Array(list.size());
    for (const T& element : list) Put(element);
  }
  template <typename T>
  void Put(const std::vector<T>& list) {
    Put(std::span<const T>(list));
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    value.has_value() ? Put(*value) : Nil();
  }
  void Put(const BiasEntry& entry) {
    Array(2);
    Put(entry.id);
    Put(entry.bias);
  }
  void Put(const Profile& profile) {
    Array(std::size(kProfileSwitches));
    for (const ProfileSwitch& profile_switch : kProfileSwitches) Put(profile_switch.get(profile));
  }
  void Put(const SamplingParams& params) {
    Array(kParamsFields);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Put(params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Put(params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) Put(params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) Put(params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) Put(params.name);
#include "sluice/params.def"
  }
  void Put(const TextOptions& text) {
    Array(kTextFields);
    Put(text.stops);
    Put(text.include_stop);
    Put(text.detokenizer.skip_special_tokens);
    Put(text.detokenizer.spaces_between_special_tokens);
    Put(text.detokenizer.utf8_errors);
    Put(text.incomplete);
  }
  void Put(const OutputGrammar& grammar) {
    Array(kGrammarFields);
    Put(grammar.kind);
    Put(grammar.text);
    Put(grammar.options.strict);
    Put(grammar.options.max_whitespace);
  }
  void Put(const ThinkingBudget& thinking) {
    Array(kThinkingFields);
    Put(thinking.format);
    Put(thinking.tokens);
    Put(thinking.is_open);
  }
  void Put(const RequestAddress& address) {
    Put(address.slot);
    Put(address.generation);
  }
  // A row without anything else.
  void PutPlain(const RequestAddress& address, int64_t first_token, std::span<const int32_t> ids) {
    // Nothing that an engine gives is negative; a writer must not care.
    const bool is_usual = ids.size() == 1 && (address.slot | ids[0]) >= 0 && first_token >= 0;
    if (!is_usual) {
      Array(kRowFields);
      Put(address);
      Put(first_token);
      Put(ids);
      return;
    }
    constexpr char kSmallArray = '\x90';
    char* at = block_.Room(2 + 5 + 5 + 9 + 5);
    *at++ = kSmallArray | static_cast<char>(kRowFields);
    at = PutNatural(static_cast<uint64_t>(address.slot), at);
    at = PutNatural(address.generation, at);
    at = PutNatural(static_cast<uint64_t>(first_token), at);
    *at++ = kSmallArray | 1;
    at = PutNatural(static_cast<uint64_t>(ids[0]), at);
    block_.KeepTo(at);
  }
  void Put(const OutputRow& row) {
    const bool has_logprobs = row.logprob_width != 0 || !row.logprobs.empty();
    const bool has_prompt = !row.prompt.IsEmpty();
    const bool ends = row.end != GenerationEnd::kNone;
    if (!has_logprobs && !has_prompt && !ends) {
      return PutPlain(row.address, row.first_token, row.ids);
    }
    Array(kRowFields + (has_logprobs ? kLogprobFields : 0) + (has_prompt ? kPromptFields : 0) +
          (ends ? kEndFields : 0));
    Put(row.address);
    Put(row.first_token);
    Put(row.ids);
    if (has_logprobs) {
      Put(row.logprobs);
      Put(row.ranks);
      Put(row.logprob_width);
      Put(row.logprob_ids);
      Put(row.logprob_values);
    }
    if (has_prompt) {
      Put(row.prompt.first_token);
      Put(row.prompt.logprobs);
      Put(row.prompt.ranks);
      Put(row.prompt.width);
      Put(row.prompt.ids);
      Put(row.prompt.values);
    }
    if (ends) {
      Put(row.end);
      Put(row.status);
      Put(row.message);
      Array(kReasonFields);
      Put(row.code);
      Put(row.parameter);
      Put(row.cached_tokens + 1);
    }
  }
  void Put(const EngineInfo& info) {
    Array(kInfoFields);
    Put(info.model);
    Put(info.version);
    Put(info.vocab);
    Put(info.context);
    Put(info.max_requests);
    Put(info.max_client_requests);
    Put(info.max_logprobs);
    Put(info.steps_in_flight);
    Put(info.tokenizer_hash);
    Put(info.end_tokens);
    Put(info.has_text);
    Put(info.has_grammars);
    Put(info.limits.max_temperature);
    Put(info.max_frame_bytes);
  }

 private:
  Block block_;
  msgpack::packer<Block> packer_;
};

}  // namespace

void WriteHello(const FrameHead& head, const Hello& hello, std::string& frame) {
  FrameWriter writer(head, kHelloFields, frame);
  writer.Put(hello.protocol);
  writer.Put(hello.name);
  writer.Put(hello.pid);
  writer.Put(hello.credits);
}

void WriteAdd(const FrameHead& head, const EngineRequest& request, std::string& frame) {
  FrameWriter writer(head, kAddFields, frame);
  writer.Put(request.address);
  writer.Put(request.params);
  writer.Put(request.prompt);
  writer.Put(request.choice);
  writer.Put(request.max_tokens);
  writer.Put(request.prompt_logprobs);
  writer.Put(request.stop_at);
  writer.Put(request.text);
  writer.Put(request.grammar);
  writer.Put(request.thinking);
  writer.Put(request.group);
  writer.Put(request.priority);
}

void WriteAbort(const FrameHead& head, std::span<const RequestAddress> addresses,
                std::string& frame) {
  FrameWriter writer(head, 1, frame);
  writer.Array(2 * addresses.size());
  for (const RequestAddress& address : addresses) writer.Put(address);
}

void WriteCredit(const FrameHead& head, int64_t messages, std::string& frame) {
  FrameWriter(head, 1, frame).Put(messages);
}

void WriteReady(const FrameHead& head, const Ready& ready, std::string& frame) {
  FrameWriter writer(head, kReadyFields, frame);
  writer.Put(ready.protocol);
  writer.Put(ready.info);
}

void WriteOutput(const FrameHead& head, int64_t step, int64_t time_ns,
                 std::span<const OutputRow> rows, std::string& frame) {
  FrameWriter writer(head, kOutputFields, frame);
  writer.Put(step);
  writer.Put(time_ns);
  writer.Put(rows);
}

void WriteOutput(const FrameHead& head, const StepBatch& batch, std::span<const uint32_t> rows,
                 std::string& frame) {
  FrameWriter writer(head, kOutputFields, frame);
  writer.Put(batch.step);
  writer.Put(batch.time_ns);
  writer.Array(rows.size());
  for (const uint32_t number : rows) {
    const StepBatch::Row& row = batch.rows()[number];
    if (row.full >= 0) {
      writer.Put(batch.full(row));
    } else {
      writer.PutPlain(row.address, row.first_token, batch.ids(row));
    }
  }
}

void WriteReason(const FrameHead& head, std::string_view reason, std::string& frame) {
  FrameWriter(head, 1, frame).Put(reason);
}

void WritePong(const FrameHead& head, const GrammarCounters& grammars, std::string& frame) {
  FrameWriter writer(head, kPongFields, frame);
  writer.Put(grammars.compiling);
  writer.Put(grammars.compiled);
  writer.Put(grammars.cached);
  writer.Put(grammars.masks);
  writer.Put(grammars.mask_waits);
  writer.Put(grammars.mask_wait_ns);
}

void WriteEmpty(const FrameHead& head, std::string& frame) { FrameWriter(head, 0, frame); }

}  // namespace sluice::link
