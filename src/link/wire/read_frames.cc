// write_frames.cc has the same fields in the same order.
#include <array>
#include <type_traits>

#include "json/profile_switches.h"
#include "link/wire/frame_fields.h"
#include "link/wire/frame_reader.h"
#include "link/wire/wire.h"

namespace sluice::link {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

void Read(FrameReader& reader, bool& to) { to = reader.Bool(); }
void Read(FrameReader& reader, int32_t& to) { to = reader.Integer<int32_t>(); }
void Read(FrameReader& reader, uint32_t& to) { to = reader.Integer<uint32_t>(); }
void Read(FrameReader& reader, int64_t& to) { to = reader.Integer<int64_t>(); }
void Read(FrameReader& reader, uint64_t& to) { to = reader.Integer<uint64_t>(); }
void Read(FrameReader& reader, float& to) { to = reader.Float(); }
void Read(FrameReader& reader, std::string& to) { to = reader.String(); }
void Read(FrameReader& reader, DrawMethod& to) { to = reader.Enum(DrawMethod::kCdf); }
void Read(FrameReader& reader, DraftMode& to) { to = reader.Enum(DraftMode::kReject); }
void Read(FrameReader& reader, LogprobMode& to) { to = reader.Enum(LogprobMode::kProcessedLogits); }
void Read(FrameReader& reader, StopAt& to) { to = reader.Enum(StopAt::kFrontend); }
void Read(FrameReader& reader, Utf8Errors& to) { to = reader.Enum(Utf8Errors::kHfRun); }
void Read(FrameReader& reader, Incomplete& to) { to = reader.Enum(Incomplete::kDrop); }
void Read(FrameReader& reader, GrammarKind& to) { to = reader.Enum(GrammarKind::kStructuralTag); }
void Read(FrameReader& reader, GenerationEnd& to) { to = reader.Enum(GenerationEnd::kEngineLost); }
void Read(FrameReader& reader, ErrorCode& to) { to = reader.Enum(ErrorCode::kExhausted); }
void Read(FrameReader& reader, RowStatus& to) {
  to = reader.Enum(RowStatus::kBadParam);
  if (Name(to) == "unknown") reader.Fail("an unknown status");
}

void Read(FrameReader& reader, RequestAddress& to) {
  Read(reader, to.slot);
  Read(reader, to.generation);
}
void Read(FrameReader& reader, BiasEntry& to) {
  reader.ArrayOf(2);
  Read(reader, to.id);
  Read(reader, to.bias);
}
void Read(FrameReader& reader, Profile& to) {
  reader.ArrayOf(std::size(kProfileSwitches));
  for (const ProfileSwitch& profile_switch : kProfileSwitches) {
    profile_switch.set(to, reader.Bool());
  }
}

void Read(FrameReader& reader, OutputGrammar& to);
void Read(FrameReader& reader, ThinkingBudget& to);
template <typename T>
void Read(FrameReader& reader, std::vector<T>& to);
template <typename T>
void Read(FrameReader& reader, std::optional<T>& to) {
  to.reset();
  if (!reader.TakeNil()) Read(reader, to.emplace());
}
// The list grows as elements are read. Elements that take much more memory than their bytes are
// limited to this many; no request may have more.
constexpr size_t kMostLargeElements = 1 << 15;
template <typename T>
void Read(FrameReader& reader, std::vector<T>& to) {
  const size_t size = reader.Array();
  if (sizeof(T) > 8 && size > kMostLargeElements) reader.Fail("a list that is too long");
  to.clear();
  if constexpr (std::is_arithmetic_v<T>) to.reserve(size);
  for (size_t i = 0; i < size && !reader.failed(); ++i) Read(reader, to.emplace_back());
}

void Read(FrameReader& reader, SamplingParams& to) {
  reader.ArrayOf(kParamsFields);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Read(reader, to.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Read(reader, to.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) Read(reader, to.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) Read(reader, to.name);
#define SLUICE_LIST_PARAM(type, name, json, help) Read(reader, to.name);
#include "sluice/params.def"
}

void Read(FrameReader& reader, TextOptions& to) {
  reader.ArrayOf(kTextFields);
  Read(reader, to.stops);
  Read(reader, to.include_stop);
  Read(reader, to.detokenizer.skip_special_tokens);
  Read(reader, to.detokenizer.spaces_between_special_tokens);
  Read(reader, to.detokenizer.utf8_errors);
  Read(reader, to.incomplete);
}

// Longer texts than an engine takes come as far as its frame allows, and it says how long they may
// be.
void Read(FrameReader& reader, OutputGrammar& to) {
  reader.ArrayOf(kGrammarFields);
  Read(reader, to.kind);
  Read(reader, to.text);
  Read(reader, to.options.strict);
  Read(reader, to.options.max_whitespace);
}

void Read(FrameReader& reader, ThinkingBudget& to) {
  reader.ArrayOf(kThinkingFields);
  to.format = reader.Enum(ReasoningFormat::kHarmony);
  Read(reader, to.tokens);
  Read(reader, to.is_open);
}

void Read(FrameReader& reader, EngineRequest& to) {
  Read(reader, to.address);
  Read(reader, to.params);
  Read(reader, to.prompt);
  Read(reader, to.choice);
  Read(reader, to.max_tokens);
  Read(reader, to.prompt_logprobs);
  Read(reader, to.stop_at);
  Read(reader, to.text);
  Read(reader, to.grammar);
  Read(reader, to.thinking);
  Read(reader, to.group);
  Read(reader, to.priority);
}

void Read(FrameReader& reader, EngineInfo& to) {
  reader.ArrayOf(kInfoFields);
  Read(reader, to.model);
  Read(reader, to.version);
  to.vocab = reader.Integer<int64_t>(0, kMost);
  to.context = reader.Integer<int64_t>(0, kMost);
  Read(reader, to.max_requests);
  Read(reader, to.max_client_requests);
  Read(reader, to.max_logprobs);
  Read(reader, to.steps_in_flight);
  Read(reader, to.tokenizer_hash);
  Read(reader, to.end_tokens);
  Read(reader, to.has_text);
  Read(reader, to.has_grammars);
  Read(reader, to.limits.max_temperature);
  to.max_frame_bytes = reader.Integer<int64_t>(0, kMost);
}

// The elements follow those of `all`, which never moves: at the first list it gets room for all
// that the rest of the frame can have.
template <typename T>
std::span<const T> ReadInto(FrameReader& reader, std::vector<T>& all) {
  constexpr size_t kLeastBytes = std::is_same_v<T, float> ? 5 : 1;
  all.reserve(all.size() + reader.rest() / kLeastBytes);
  const size_t size = reader.Array(kLeastBytes);
  const size_t begin = all.size();
  all.resize(begin + size);
  for (size_t i = begin; i < begin + size; ++i) Read(reader, all[i]);
  return std::span<const T>(all).subspan(begin);
}
std::string_view ReadInto(FrameReader& reader, std::string& all) {
  all.reserve(all.size() + reader.rest());
  const size_t begin = all.size();
  all += reader.String();
  return std::string_view(all).substr(begin);
}

struct RowKinds {
  bool is_known = false;
  bool has_logprobs = false;
  bool has_prompt = false;
  bool ends = false;
};

// By the number of fields.
constexpr auto kRowKinds = [] {
  std::array<RowKinds, 1 + kRowFields + kLogprobFields + kPromptFields + kEndFields> rows = {};
  for (unsigned kinds = 0; kinds < 8; ++kinds) {
    const RowKinds row{true, (kinds & 1) != 0, (kinds & 2) != 0, (kinds & 4) != 0};
    rows[kRowFields + (row.has_logprobs ? kLogprobFields : 0) +
         (row.has_prompt ? kPromptFields : 0) + (row.ends ? kEndFields : 0)] = row;
  }
  return rows;
}();

// Lists of that width, one a token. A width times a number of tokens may need more than 64 bits; a
// quotient does not.
bool IsTable(size_t tokens, int32_t width, std::span<const int32_t> ids,
             std::span<const float> values) {
  if (ids.size() != values.size()) return false;
  if (tokens == 0) return ids.empty();
  return ids.size() % tokens == 0 && ids.size() / tokens == static_cast<size_t>(width);
}

void ReadPrompt(FrameReader& reader, PromptLogprobs& prompt, EngineFrame& frame) {
  prompt.first_token = reader.Integer<int64_t>(1, std::numeric_limits<int32_t>::max());
  prompt.logprobs = ReadInto(reader, frame.prompt.logprobs);
  prompt.ranks = ReadInto(reader, frame.prompt.ranks);
  prompt.width = reader.Integer<int32_t>(1, std::numeric_limits<int32_t>::max());
  prompt.ids = ReadInto(reader, frame.prompt.ids);
  prompt.values = ReadInto(reader, frame.prompt.values);
  const size_t tokens = prompt.logprobs.size();
  if (tokens == 0 || prompt.ranks.size() != tokens ||
      !IsTable(tokens, prompt.width, prompt.ids, prompt.values)) {
    reader.Fail("log-probabilities of a prompt that are not one a token");
  }
}

void ReadRow(FrameReader& reader, OutputRow& row, EngineFrame& frame) {
  const size_t fields = reader.Array();
  const RowKinds kinds = fields < kRowKinds.size() ? kRowKinds[fields] : RowKinds{};
  if (!kinds.is_known) reader.Fail("a row of another size");
  Read(reader, row.address);
  row.first_token = reader.Integer<int64_t>(0, kMost);
  row.ids = ReadInto(reader, frame.columns.ids);
  if (kinds.has_logprobs) {
    row.logprobs = ReadInto(reader, frame.columns.scores.logprobs);
    row.ranks = ReadInto(reader, frame.columns.scores.ranks);
    row.logprob_width = reader.Integer<int32_t>(0, std::numeric_limits<int32_t>::max());
    row.logprob_ids = ReadInto(reader, frame.columns.scores.ids);
    row.logprob_values = ReadInto(reader, frame.columns.scores.values);
    const size_t tokens = row.ids.size();
    if (row.logprobs.size() != tokens || row.ranks.size() != tokens ||
        !IsTable(tokens, row.logprob_width, row.logprob_ids, row.logprob_values)) {
      reader.Fail("log-probabilities that are not one a token");
    }
  }
  if (kinds.has_prompt) ReadPrompt(reader, row.prompt, frame);
  if (kinds.ends) {
    Read(reader, row.end);
    if (row.end == GenerationEnd::kNone) reader.Fail("an end that is none");
    Read(reader, row.status);
    row.message = ReadInto(reader, frame.messages);
    reader.ArrayOf(kReasonFields);
    Read(reader, row.code);
    row.parameter = ReadInto(reader, frame.messages);
    row.cached_tokens = reader.Integer<int64_t>(0, kMost) - 1;
  }
}

void ReadOutput(FrameReader& reader, EngineFrame& frame) {
  frame.rows.clear();
  frame.columns.Clear();
  frame.prompt.Clear();
  frame.messages.clear();
  frame.step = reader.Integer<int64_t>(0, kMost);
  frame.time_ns = reader.Integer<int64_t>(0, kMost);
  const size_t rows = reader.Array(1 + kRowFields);
  frame.rows.reserve(rows);
  for (size_t i = 0; i < rows && !reader.failed(); ++i) {
    ReadRow(reader, frame.rows.emplace_back(), frame);
  }
}

size_t ReadHead(FrameReader& reader, FrameHead& head) {
  head.type = static_cast<FrameType>(reader.Byte());
  const size_t fields = reader.Array();
  Read(reader, head.epoch);
  Read(reader, head.number);
  return fields;
}

void ReadHello(FrameReader& reader, Hello& hello) {
  hello = {};
  Read(reader, hello.protocol);
  if (hello.protocol != kProtocol) return;
  Read(reader, hello.name);
  if (hello.name.size() > kLongestName) reader.Fail("a name that is too long");
  hello.pid = reader.Integer<int64_t>(0, kMost);
  hello.credits = reader.Integer<int64_t>(0, kMostCredits);
}

void ReadReady(FrameReader& reader, Ready& ready) {
  ready = {};
  Read(reader, ready.protocol);
  if (ready.protocol == kProtocol) Read(reader, ready.info);
}

void ReadAbort(FrameReader& reader, std::vector<RequestAddress>& aborted) {
  const size_t numbers = reader.Array();
  if (numbers % 2 != 0) reader.Fail("half an address");
  aborted.clear();
  aborted.resize(numbers / 2);
  for (RequestAddress& address : aborted) Read(reader, address);
}

void ReadPong(FrameReader& reader, GrammarCounters& grammars) {
  for (int64_t* const count : {&grammars.compiling, &grammars.compiled, &grammars.cached,
                               &grammars.masks, &grammars.mask_waits, &grammars.mask_wait_ns}) {
    *count = reader.Integer<int64_t>(0, kMost);
  }
}

std::string Result(const FrameReader& reader, const FrameHead& head) {
  if (!reader.failed()) return {};
  return std::string(Name(head.type)).append(": ").append(reader.Failure());
}

}  // namespace

std::string ReadFrontendFrame(std::string_view bytes, FrontendFrame& frame) {
  FrameReader reader(bytes);
  const size_t fields = ReadHead(reader, frame.head);
  const auto expect = [&](size_t expected) {
    if (fields != kHeadFields + expected) reader.Fail("an array of another size");
  };
  switch (frame.head.type) {
    case FrameType::kHello:
      ReadHello(reader, frame.hello);
      // The fields of another protocol after its number are unknown.
      if (frame.hello.protocol != kProtocol) return Result(reader, frame.head);
      expect(kHelloFields);
      break;
    case FrameType::kAdd:
      expect(kAddFields);
      Read(reader, frame.request);
      break;
    case FrameType::kAbort:
      expect(1);
      ReadAbort(reader, frame.aborted);
      break;
    case FrameType::kCredit:
      expect(1);
      frame.credits = reader.Integer<int64_t>(0, kMostCredits);
      break;
    case FrameType::kPing:
    case FrameType::kBye:
      expect(0);
      break;
    default:
      reader.Fail("no frame of a frontend");
  }
  reader.End();
  return Result(reader, frame.head);
}

std::string ReadEngineFrame(std::string_view bytes, EngineFrame& frame) {
  FrameReader reader(bytes);
  const size_t fields = ReadHead(reader, frame.head);
  const auto expect = [&](size_t expected) {
    if (fields != kHeadFields + expected) reader.Fail("an array of another size");
  };
  switch (frame.head.type) {
    case FrameType::kReady:
      ReadReady(reader, frame.ready);
      if (frame.ready.protocol != kProtocol) return Result(reader, frame.head);
      expect(kReadyFields);
      break;
    case FrameType::kOutput:
      expect(kOutputFields);
      ReadOutput(reader, frame);
      break;
    case FrameType::kDead:
    case FrameType::kReset:
      expect(1);
      Read(reader, frame.reason);
      break;
    case FrameType::kPong:
      expect(kPongFields);
      ReadPong(reader, frame.grammars);
      break;
    default:
      reader.Fail("no frame of an engine");
  }
  reader.End();
  return Result(reader, frame.head);
}

std::string_view Name(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "HELLO";
    case FrameType::kAdd:
      return "ADD";
    case FrameType::kAbort:
      return "ABORT";
    case FrameType::kCredit:
      return "CREDIT";
    case FrameType::kPing:
      return "PING";
    case FrameType::kBye:
      return "BYE";
    case FrameType::kReady:
      return "READY";
    case FrameType::kOutput:
      return "OUTPUT";
    case FrameType::kPong:
      return "PONG";
    case FrameType::kDead:
      return "DEAD";
    case FrameType::kReset:
      return "RESET";
  }
  return "unknown";
}

}  // namespace sluice::link
