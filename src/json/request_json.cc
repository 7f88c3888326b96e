#include "json/request_json.h"

#include <array>
#include <functional>
#include <set>
#include <sstream>

#include "json/params_json.h"
#include "json/params_writer.h"
#include "json/value_reader.h"

namespace sluice {
namespace {

using json::Json;
using json::Range;
using json::ValueReader;

constexpr Range kCounts{0, 2147483647, false};
constexpr Range kChoices{0, 4294967295.0, false};

// Names of enums that start at 0.
constexpr std::array<std::string_view, 2> kStopAt = {"engine", "frontend"};
constexpr std::array<std::string_view, 2> kUtf8Errors = {"maximal", "hf_run"};
constexpr std::array<std::string_view, 2> kIncomplete = {"replace", "drop"};
constexpr std::array<std::string_view, 6> kGrammarKinds = {
    "json_schema", "json_object", "regex", "grammar", "lark", "structural_tag"};
constexpr std::array<std::string_view, 5> kReasoningFormats = {"none", "deepseek", "mistral",
                                                               "seed", "harmony"};
constexpr Range kWhitespaces{0, 1024, false};

template <size_t kCount, typename T>
std::string_view NameIn(const std::array<std::string_view, kCount>& names, T value) {
  return names[static_cast<size_t>(value)];
}

template <size_t kCount, typename T>
void ReadName(const std::string& name, Json value,
              const std::array<std::string_view, kCount>& names, T& to) {
  const std::string text = ValueReader(name, value).Text();
  std::string allowed;
  for (size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) {
      to = static_cast<T>(i);
      return;
    }
    allowed.append(i == 0 ? "" : i + 1 == kCount ? " or " : ", ").append(names[i]);
  }
  ThrowInvalid(name, ToText(text), allowed);
}

// Calls Error's parameter by more of its name.
template <typename Body>
void Within(const std::string& prefix, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.code(), prefix + error.parameter(), error.value(), error.allowed());
  }
}

struct KnownField {
  std::string_view name;
  std::function<void(const std::string& name, Json value)> read;
};

// Reads an object of which these are the fields; each may be given once.
void ReadFields(const std::string& prefix, const std::vector<KnownField>& fields,
                const std::string& name, Json value, std::set<std::string>& seen) {
  const std::string whole = prefix + name;
  std::string known;
  for (const KnownField& field : fields) {
    if (field.name != name) {
      known.append(known.empty() ? "" : ", ").append(field.name);
      continue;
    }
    if (!seen.insert(name).second) ThrowInvalid(whole, "given twice", "each field once");
    field.read(whole, value);
    return;
  }
  ThrowInvalid(whole, "an unknown field", "the fields " + known);
}

void ReadObject(const std::string& name, Json value, const std::vector<KnownField>& fields) {
  std::set<std::string> seen;
  ValueReader(name, value).ForEachField([&](const std::string& field, Json of_field) {
    ReadFields(name + ".", fields, field, of_field, seen);
  });
}

void ReadParameters(const std::string& name, Json value, SamplingParams& params) {
  simdjson::ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) {
    ThrowInvalid(name, json::Shown(value), "an object");
  }
  const std::string_view text = json::Get(object.raw_json());
  Within(name + ".", [&] {
    const ParsedParams parsed = ParseParams(text);
    if (!parsed.unknown.empty()) {
      ThrowInvalid(parsed.unknown[0], "an unknown field", "those of sluice inspect params");
    }
    params = parsed.params;
  });
}

OutputGrammar ReadGrammar(const std::string& name, Json value) {
  OutputGrammar grammar;
  std::set<std::string> seen;
  const std::vector<KnownField> fields = {
      {"kind", [&](const std::string& f, Json v) { ReadName(f, v, kGrammarKinds, grammar.kind); }},
      {"text", [&](const std::string& f, Json v) { grammar.text = ValueReader(f, v).Text(); }},
      {"strict",
       [&](const std::string& f, Json v) { grammar.options.strict = ValueReader(f, v).Boolean(); }},
      {"max_whitespace", [&](const std::string& f, Json v) {
         grammar.options.max_whitespace = ValueReader(f, v).Integer<int32_t>(kWhitespaces);
       }}};
  ValueReader(name, value).ForEachField([&](const std::string& field, Json of_field) {
    ReadFields(name + ".", fields, field, of_field, seen);
  });
  if (!seen.contains("kind")) ThrowInvalid(name + ".kind", "", "the kind of the grammar");
  return grammar;
}

ThinkingBudget ReadThinking(const std::string& name, Json value) {
  ThinkingBudget budget;
  ReadObject(
      name, value,
      {{"format",
        [&](const std::string& f, Json v) { ReadName(f, v, kReasoningFormats, budget.format); }},
       {"tokens", [&](const std::string& f,
                      Json v) { budget.tokens = ValueReader(f, v).Integer<int64_t>(kCounts); }},
       {"is_open",
        [&](const std::string& f, Json v) { budget.is_open = ValueReader(f, v).Boolean(); }}});
  return budget;
}

EngineRequest ReadRequest(const std::string& name, Json value) {
  EngineRequest request;
  TextOptions& text = request.text;
  const auto boolean = [](bool& to) {
    return [&to](const std::string& field, Json v) { to = ValueReader(field, v).Boolean(); };
  };
  ReadObject(
      name, value,
      {{"prompt", [&](const std::string& f, Json v) { request.prompt = ValueReader(f, v).Ids(); }},
       {"choice", [&](const std::string& f,
                      Json v) { request.choice = ValueReader(f, v).Integer<uint32_t>(kChoices); }},
       {"max_tokens",
        [&](const std::string& f, Json v) {
          request.max_tokens = ValueReader(f, v).Integer<int64_t>(kCounts);
        }},
       {"prompt_logprobs",
        [&](const std::string& f, Json v) {
          request.prompt_logprobs = ValueReader(f, v).Integer<int32_t>(kCounts);
        }},
       {"stop_at", [&](const std::string& f, Json v) { ReadName(f, v, kStopAt, request.stop_at); }},
       {"stops", [&](const std::string& f, Json v) { text.stops = ValueReader(f, v).Texts(); }},
       {"include_stop", boolean(text.include_stop)},
       {"skip_special_tokens", boolean(text.detokenizer.skip_special_tokens)},
       {"spaces_between_special_tokens", boolean(text.detokenizer.spaces_between_special_tokens)},
       {"utf8_errors", [&](const std::string& f,
                           Json v) { ReadName(f, v, kUtf8Errors, text.detokenizer.utf8_errors); }},
       {"incomplete",
        [&](const std::string& f, Json v) { ReadName(f, v, kIncomplete, text.incomplete); }},
       {"parameters", [&](const std::string& f, Json v) { ReadParameters(f, v, request.params); }},
       {"grammar", [&](const std::string& f, Json v) { request.grammar = ReadGrammar(f, v); }},
       {"thinking", [&](const std::string& f, Json v) { request.thinking = ReadThinking(f, v); }}});
  if (request.prompt.empty()) ThrowInvalid(name + ".prompt", "", "one token id or more");
  if (!request.params.seed.has_value()) {
    ThrowInvalid(name + ".parameters.seed", "", "a whole number, which every request has");
  }
  return request;
}

RequestResult ReadResult(const std::string& name, Json value) {
  RequestResult result;
  ReadObject(
      name, value,
      {{"text", [&](const std::string& f, Json v) { result.text = ValueReader(f, v).Text(); }},
       {"token_ids", [&](const std::string& f, Json v) { result.ids = ValueReader(f, v).Ids(); }},
       {"end", [&](const std::string& f, Json v) { result.end = ValueReader(f, v).Text(); }},
       {"prompt_tokens",
        [&](const std::string& f, Json v) {
          result.prompt_tokens = ValueReader(f, v).Integer<int64_t>(kCounts);
        }},
       {"output_tokens", [&](const std::string& f, Json v) {
          result.output_tokens = ValueReader(f, v).Integer<int64_t>(kCounts);
        }}});
  return result;
}

void WriteIds(JsonWriter& json, const std::vector<int32_t>& ids) {
  json.Array([&] {
    for (const int32_t id : ids) json.Value(id);
  });
}

void WriteRequest(JsonWriter& json, const EngineRequest& request) {
  json.Key("prompt");
  WriteIds(json, request.prompt);
  json.Key("choice").Value(request.choice);
  json.Key("max_tokens").Value(request.max_tokens);
  if (request.prompt_logprobs.has_value()) {
    json.Key("prompt_logprobs").Value(*request.prompt_logprobs);
  }
  json.Key("stop_at").Value(NameIn(kStopAt, request.stop_at));
  const TextOptions& text = request.text;
  json.Key("stops").Array([&] {
    for (const std::string& stop : text.stops) json.Value(stop);
  });
  json.Key("include_stop").Value(text.include_stop);
  json.Key("skip_special_tokens").Value(text.detokenizer.skip_special_tokens);
  json.Key("spaces_between_special_tokens").Value(text.detokenizer.spaces_between_special_tokens);
  json.Key("utf8_errors").Value(NameIn(kUtf8Errors, text.detokenizer.utf8_errors));
  json.Key("incomplete").Value(NameIn(kIncomplete, text.incomplete));
  json.Key("parameters").Object([&] { ParamsWriter(json).WriteFields(request.params); });
  if (request.grammar.has_value()) {
    json.Key("grammar").Object([&] {
      json.Key("kind").Value(NameIn(kGrammarKinds, request.grammar->kind));
      json.Key("text").Value(request.grammar->text);
      json.Key("strict").Value(request.grammar->options.strict);
      json.Key("max_whitespace").Value(request.grammar->options.max_whitespace);
    });
  }
  if (request.thinking.has_value()) {
    json.Key("thinking").Object([&] {
      json.Key("format").Value(NameIn(kReasoningFormats, request.thinking->format));
      json.Key("tokens").Value(request.thinking->tokens);
      json.Key("is_open").Value(request.thinking->is_open);
    });
  }
}

}  // namespace

std::string WriteRecord(const RequestRecord& record) {
  std::ostringstream out;
  JsonWriter json(out);
  json.Object([&] {
    json.Key("request").Object([&] { WriteRequest(json, record.request); });
    if (!record.result.has_value()) return;
    json.Key("result").Object([&] {
      json.Key("text").Value(record.result->text);
      json.Key("token_ids");
      WriteIds(json, record.result->ids);
      json.Key("end").Value(record.result->end);
      json.Key("prompt_tokens").Value(record.result->prompt_tokens);
      json.Key("output_tokens").Value(record.result->output_tokens);
    });
  });
  return out.str();
}

RequestRecord ReadRecord(std::string_view text) {
  RequestRecord record;
  std::set<std::string> seen;
  const std::vector<KnownField> fields = {
      {"request", [&](const std::string& f, Json v) { record.request = ReadRequest(f, v); }},
      {"result", [&](const std::string& f, Json v) { record.result = ReadResult(f, v); }}};
  json::ForEachFieldOf(text, [&](const std::string& name, Json value) {
    ReadFields("", fields, name, value, seen);
  });
  if (!seen.contains("request")) ThrowInvalid("request", "", "an object");
  return record;
}

std::vector<RequestRecord> ReadRecords(std::string_view lines) {
  std::vector<RequestRecord> records;
  int64_t number = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Within("line " + Number(number) + ": ", [&] { records.push_back(ReadRecord(line)); });
  }
  return records;
}

}  // namespace sluice
