#include "link/vllm/engine_core_request.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <msgpack.hpp>

#include "support/number.h"

namespace sluice::link::vllm {
namespace {

constexpr uint32_t kRequestFields = 22;
constexpr int64_t kUsualMaxTokens = 16;
constexpr double kLeastTemperature = 0.01;
constexpr float kMostBias = 100.0f;
constexpr uint64_t kSeedBits = INT64_MAX;

struct Sink {
  void write(const char* data, size_t size) { frame.append(data, size); }
  std::string& frame;
};

class Writer {
 public:
  explicit Writer(std::string& frame) : sink_{frame}, packer_(sink_) { frame.clear(); }

  void Array(size_t size) { packer_.pack_array(static_cast<uint32_t>(size)); }
  void Nil() { packer_.pack_nil(); }
  void Put(int64_t value) { packer_.pack(value); }
  void Put(int32_t value) { packer_.pack(value); }
  void Put(bool value) { packer_.pack(value); }
  // Not pack_double, which makes whole numbers of some.
  void Put(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    char bytes[9] = {'\xcb'};
    for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i));
    sink_.write(bytes, sizeof bytes);
  }
  void Put(std::string_view text) {
    packer_.pack_str(static_cast<uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  }
  void Put(const TokenIds& ids) {
    Array(ids.size());
    for (const int32_t id : ids) Put(id);
  }
  // A map. Which of two entries an engine would take is not for it to say: CheckRequest.
  void Put(const BiasEntries& biases) {
    packer_.pack_map(static_cast<uint32_t>(biases.size()));
    for (const BiasEntry& entry : biases) {
      Put(entry.id);
      Put(double{std::clamp(entry.bias, -kMostBias, kMostBias)});
    }
  }
  void Put(const TokenSequences& sequences) {
    Array(sequences.size());
    for (const TokenIds& ids : sequences) Put(ids);
  }
  // StructuredOutputsParams with every field. vLLM's frontend names the grammar engine, and an
  // EngineCore fails at a request that names none.
  void Put(const OutputGrammar& grammar) {
    const auto put_text = [&](std::string_view name, bool is_it) {
      Put(name);
      is_it ? Put(std::string_view(grammar.text)) : Nil();
    };
    const auto put_nil = [&](std::string_view name) { put_text(name, false); };
    const GrammarKind kind = grammar.kind;
    packer_.pack_map(11);
    put_text("json", kind == GrammarKind::kJsonSchema);
    put_text("regex", kind == GrammarKind::kRegex);
    put_nil("choice");
    put_text("grammar", kind == GrammarKind::kEbnf || kind == GrammarKind::kLark);
    Put(std::string_view("json_object"));
    kind == GrammarKind::kJsonObject ? Put(true) : Nil();
    Put(std::string_view("disable_any_whitespace"));
    Put(grammar.options.max_whitespace == 0);
    Put(std::string_view("disable_additional_properties"));
    Put(false);
    put_nil("whitespace_pattern");
    put_text("structural_tag", kind == GrammarKind::kStructuralTag);
    Put(std::string_view("_backend"));
    Put(std::string_view("xgrammar"));
    Put(std::string_view("_backend_was_auto"));
    Put(false);
  }

 private:
  Sink sink_;
  msgpack::packer<Sink> packer_;
};

// A map of unknown size until its last entry has come.
class OpenMap {
 public:
  OpenMap(Writer& writer, std::string& frame) : writer_(writer), frame_(frame) {
    frame_.append(3, kMapOf16Bits);
    at_ = frame_.size() - 2;
  }
  ~OpenMap() {
    frame_[at_] = static_cast<char>(entries_ >> 8);
    frame_[at_ + 1] = static_cast<char>(entries_ & 0xff);
  }
  OpenMap(const OpenMap&) = delete;
  OpenMap& operator=(const OpenMap&) = delete;

  template <typename T>
  void Add(std::string_view name, const T& value) {
    ++entries_;
    writer_.Put(name);
    writer_.Put(value);
  }
  template <typename T>
  void AddUnless(const T& usual, std::string_view name, const T& value) {
    if (value != usual) Add(name, value);
  }

 private:
  static constexpr char kMapOf16Bits = '\xde';

  Writer& writer_;
  std::string& frame_;
  size_t at_;
  size_t entries_ = 0;
};

// As vLLM numbers the completions of one request.
int64_t SeedOf(const EngineRequest& request) {
  return static_cast<int64_t>((*request.params.seed + request.choice) & kSeedBits);
}

// In the order of its fields, as what vLLM's own constructor makes of them.
void AddParams(const EngineRequest& request, OpenMap& map) {
  const SamplingParams& params = request.params;
  const int64_t max_tokens = std::max<int64_t>(request.max_tokens, 1);
  const int64_t min_tokens = std::min<int64_t>(params.min_tokens, max_tokens);
  const bool is_greedy = params.temperature == 0;
  const double temperature = std::max<double>(params.temperature, kLeastTemperature);
  map.AddUnless(0.0, "presence_penalty", double{params.presence_penalty});
  map.AddUnless(0.0, "frequency_penalty", double{params.frequency_penalty});
  map.AddUnless(1.0, "repetition_penalty", double{params.repetition_penalty});
  map.AddUnless(1.0, "temperature", is_greedy ? 0.0 : temperature);
  if (!is_greedy) {
    map.AddUnless(1.0, "top_p", double{params.top_p});
    map.AddUnless(0, "top_k", std::max(params.top_k, 0));
    map.AddUnless(0.0, "min_p", double{params.min_p});
  }
  map.Add("seed", SeedOf(request));
  map.Add("stop", TokenIds());
  map.Add("stop_token_ids", params.stop_token_ids);
  map.AddUnless(kUsualMaxTokens, "max_tokens", max_tokens);
  map.AddUnless(int64_t{0}, "min_tokens", min_tokens);
  if (params.logprobs.has_value()) map.Add("logprobs", *params.logprobs);
  if (request.prompt_logprobs.has_value()) map.Add("prompt_logprobs", *request.prompt_logprobs);
  map.Add("detokenize", false);
  if (!params.stop_token_ids.empty()) map.Add("_all_stop_token_ids", params.stop_token_ids);
  if (request.grammar.has_value()) map.Add("structured_outputs", *request.grammar);
  if (!params.logit_bias.empty()) map.Add("logit_bias", params.logit_bias);
  if (params.allowed_token_ids.has_value()) map.Add("allowed_token_ids", *params.allowed_token_ids);
  map.Add("bad_words", TokenIds());
  if (!params.bad_words.empty()) map.Add("_bad_words_token_ids", params.bad_words);
  // Tokens in the cache of prefixes are not computed, and so not scored.
  map.Add("skip_reading_prefix_cache", request.prompt_logprobs.has_value());
  // The engine has the markers, from its own --reasoning-parser.
  if (request.thinking.has_value()) {
    map.Add("thinking_token_budget", request.thinking->tokens);
  }
}

// What follows these has its default.
void PutAdapter(const WrittenAdapter& adapter, Writer& writer) {
  if (adapter.name.empty()) return writer.Nil();
  writer.Array(3);
  writer.Put(adapter.name);
  writer.Put(adapter.number);
  writer.Put(adapter.path);
}

// From where the engine's grammar counts: the first token, or the end of the reasoning. Where the
// prompt has not begun any, it looks for an end there.
void PutReasoningEnded(const EngineRequest& request, Writer& writer) {
  if (!request.grammar.has_value()) return writer.Nil();
  if (!request.thinking.has_value()) return writer.Put(true);
  request.thinking->is_open ? writer.Put(false) : writer.Nil();
}

}  // namespace

std::string RequestIdOf(uint64_t life, const RequestAddress& address) {
  return std::string(kIdPrefix)
      .append(Number(life))
      .append("-")
      .append(Number(address.slot))
      .append("-")
      .append(Number(address.generation));
}

RequestAddress AddressOf(uint64_t life, std::string_view request_id) {
  constexpr RequestAddress kNone;
  if (!request_id.starts_with(kIdPrefix)) return kNone;
  const char* const end = request_id.data() + request_id.size();
  uint64_t its_life = 0;
  RequestAddress address;
  const auto first = std::from_chars(request_id.data() + kIdPrefix.size(), end, its_life);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return kNone;
  const auto slot = std::from_chars(first.ptr + 1, end, address.slot);
  if (slot.ec != std::errc() || slot.ptr == end || *slot.ptr != '-') return kNone;
  const auto generation = std::from_chars(slot.ptr + 1, end, address.generation);
  if (generation.ec != std::errc() || generation.ptr != end || its_life != life) return kNone;
  return address;
}

void WriteAdd(const EngineRequest& request, uint64_t life, int32_t client,
              const WrittenAdapter& adapter, double arrival, std::string& frame) {
  Writer writer(frame);
  writer.Array(kRequestFields);
  writer.Put(std::string_view(RequestIdOf(life, request.address)));
  writer.Put(request.prompt);
  writer.Nil();  // mm_features
  {
    OpenMap map(writer, frame);
    AddParams(request, map);
  }
  writer.Nil();  // pooling_params
  writer.Put(arrival);
  PutAdapter(adapter, writer);
  const std::string_view salt = request.extras.cache_salt;
  salt.empty() ? writer.Nil() : writer.Put(salt);
  for (int i = 0; i < 3; ++i) writer.Nil();  // data_parallel_rank to prompt_is_token_ids
  writer.Put(client);
  writer.Put(0);  // current_wave
  // vLLM orders all requests by it, so that of one group would come before those of another.
  writer.Put(request.group == 0 ? request.priority : 0);
  writer.Nil();       // trace_headers
  writer.Put(false);  // resumable
  writer.Nil();       // external_req_id
  PutReasoningEnded(request, writer);
  writer.Nil();                              // reasoning_parser_kwargs
  writer.Put(false);                         // abort_immediately
  for (int i = 0; i < 2; ++i) writer.Nil();  // session_id, kv_hints
}

void WriteAbort(std::span<const RequestAddress> addresses, uint64_t life, std::string& frame) {
  Writer writer(frame);
  writer.Array(addresses.size());
  for (const RequestAddress& address : addresses) {
    writer.Put(std::string_view(RequestIdOf(life, address)));
  }
}

void WriteAbort(std::span<const std::string> request_ids, std::string& frame) {
  Writer writer(frame);
  writer.Array(request_ids.size());
  for (const std::string& id : request_ids) writer.Put(std::string_view(id));
}

void WritePing(int32_t client, int64_t call, std::string& frame) {
  Writer writer(frame);
  writer.Array(4);
  writer.Put(client);
  writer.Put(call);
  writer.Put(std::string_view("is_scheduler_paused"));
  writer.Array(0);
}

}  // namespace sluice::link::vllm
