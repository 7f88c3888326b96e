#include "server/api/response/chat_parts.h"

#include <cstdint>

#include "server/api/json_text.h"
#include "support/random_seed.h"

namespace sluice::server {
namespace {

bool Has(const OutputParts& parts, PartKind kind) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind) return true;
  }
  return false;
}

// A text, from all parts of that kind.
void AppendText(std::string& out, std::string_view name, PartKind kind, const OutputParts& parts) {
  out.append("\"").append(name).append("\":\"");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind) AppendEscaped(out, parts[i].text);
  }
  out.push_back('"');
}

// Parts of one call follow one another.
void AppendCalls(std::string& out, const ChoiceDelta& choice, bool is_delta) {
  const OutputParts& parts = *choice.parts;
  char separator = '[';
  int32_t open = -1;
  for (size_t i = 0; i < parts.size(); ++i) {
    const OutputPart part = parts[i];
    const bool begins = part.kind == PartKind::kCallBegin;
    if (!begins && part.kind != PartKind::kArguments) continue;
    if (open != part.call) {
      if (open >= 0) out.append("\"}}");
      open = part.call;
      out.push_back(separator);
      separator = ',';
      out.push_back('{');
      if (is_delta) {
        out.append("\"index\":");
        AppendNumber(out, part.call);
        out.push_back(',');
      }
      if (begins) {
        out.append(R"("id":")").append(RandomCallId());
        out.append(R"(","type":"function","function":{"name":")");
        AppendEscaped(out, part.text);
        out.append(R"(","arguments":")");
      } else {
        out.append(R"("function":{"arguments":")");
      }
    }
    if (!begins) AppendEscaped(out, part.text);
  }
  out.append("\"}}]");
}

bool HasCalls(const OutputParts& parts) {
  return Has(parts, PartKind::kCallBegin) || Has(parts, PartKind::kArguments);
}

}  // namespace

std::string RandomCallId() {
  constexpr std::string_view kSigns =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id;
  uint64_t random = RandomSeed();
  for (int i = 0; i < 9; ++i, random /= kSigns.size()) {
    id.push_back(kSigns[random % kSigns.size()]);
  }
  return id;
}

void AppendMessageParts(std::string& out, const ChoiceDelta& choice) {
  const OutputParts& parts = *choice.parts;
  const bool has_calls = HasCalls(parts);
  if (has_calls && !Has(parts, PartKind::kContent)) {
    out.append("\"content\":null");
  } else {
    AppendText(out, "content", PartKind::kContent, parts);
  }
  if (Has(parts, PartKind::kReasoning)) {
    out.push_back(',');
    AppendText(out, "reasoning_content", PartKind::kReasoning, parts);
  }
  if (!has_calls) return;
  out.append(",\"tool_calls\":");
  AppendCalls(out, choice, false);
}

void AppendDeltaParts(std::string& out, const ChoiceDelta& choice) {
  const OutputParts& parts = *choice.parts;
  bool is_first = true;
  const auto separate = [&] {
    if (!is_first) out.push_back(',');
    is_first = false;
  };
  if (Has(parts, PartKind::kReasoning)) {
    separate();
    AppendText(out, "reasoning_content", PartKind::kReasoning, parts);
  }
  if (Has(parts, PartKind::kContent)) {
    separate();
    AppendText(out, "content", PartKind::kContent, parts);
  }
  if (!HasCalls(parts)) return;
  separate();
  out.append("\"tool_calls\":");
  AppendCalls(out, choice, true);
}

}  // namespace sluice::server
