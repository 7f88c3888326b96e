#include "server/api/request/response_items.h"

#include <array>
#include <optional>

#include "server/api/request/read_fields.h"
#include "server/api/request/unsupported.h"

namespace sluice::server {
namespace {

using json::json_type;

constexpr auto kItemFields = std::to_array<std::string_view>(
    {"type", "role", "content", "id", "status", "phase", "call_id", "name", "arguments", "output",
     "summary", "encrypted_content"});
constexpr auto kPartFields =
    std::to_array<std::string_view>({"type", "text", "refusal", "annotations", "logprobs"});
constexpr auto kItemRoles =
    std::to_array<std::string_view>({"user", "assistant", "system", "developer"});
constexpr auto kTextParts = std::to_array<std::string_view>(
    {"text", "input_text", "output_text", "reasoning_text", "summary_text", "refusal"});
constexpr const char* kInput = "a text or a list of one item or more";
constexpr const char* kItemContent = "a text or a list of parts with text";
constexpr std::string_view kOnlyItems =
    "inputs are texts, reasoning, calls of functions and their outputs";

struct Item {
  std::string path = {};
  std::string type = {};
  std::string role = {};
  std::optional<std::string> content = {};
  std::string summary = {};
  std::optional<std::string> call_id = {};
  std::optional<std::string> name = {};
  std::optional<std::string> arguments = {};
  std::optional<std::string> output = {};
};

std::string ReadTextPart(const RequestValue& value, std::vector<std::string>& unknown) {
  std::string type;
  std::optional<std::string> text;
  ReadFields(value, kPartFields, "input[].content[]", unknown,
             [&](std::string_view field, const RequestValue& part) {
               if (field == "type") {
                 type = part.Text();
               } else if (field == "text" || field == "refusal") {
                 text = part.Text();
               } else {
                 part.Skip();
               }
             });
  const std::string field = FieldPath(value.name(), "type");
  if (type.empty()) ThrowInvalid(field, "", "the type of the part, such as \"input_text\"");
  if (std::ranges::find(kTextParts, type) == kTextParts.end()) {
    ThrowUnsupported(field, type, kOnlyItems);
  }
  if (!text.has_value()) {
    ThrowInvalid(FieldPath(value.name(), type == "refusal" ? "refusal" : "text"), "", "a text");
  }
  return *std::move(text);
}

std::string ReadParts(const RequestValue& value, std::vector<std::string>& unknown) {
  if (value.type() == json_type::string) return value.Text();
  std::string joined;
  size_t number = 0;
  ReadElements(value, kItemContent, [&](const RequestValue& part) {
    if (number++ > 0) joined.push_back('\n');
    joined.append(ReadTextPart(part, unknown));
  });
  return joined;
}

void ReadItemField(const RequestValue& value, std::string_view field, Item& to,
                   std::vector<std::string>& unknown) {
  if (field == "type") {
    to.type = value.Text();
  } else if (field == "role") {
    to.role = value.Text();
  } else if (field == "content") {
    to.content = ReadParts(value, unknown);
  } else if (field == "summary") {
    to.summary = ReadParts(value, unknown);
  } else if (field == "output") {
    to.output = ReadParts(value, unknown);
  } else if (field == "call_id") {
    to.call_id = value.Text();
  } else if (field == "name") {
    to.name = value.Text();
  } else if (field == "arguments") {
    to.arguments = value.Text();
  } else {
    value.Skip();
  }
}

const std::string& RequiredOf(const Item& item, const std::optional<std::string>& member,
                              std::string_view field, const char* allowed) {
  if (!member.has_value() || member->empty())
    ThrowInvalid(FieldPath(item.path, field), "", allowed);
  return *member;
}

void AddItem(const Item& item, Conversation& to) {
  const std::string content = FieldPath(item.path, "content");
  if (item.type == "message" || (item.type.empty() && !item.role.empty())) {
    const std::string role = FieldPath(item.path, "role");
    constexpr const char* kAllowed = "user, assistant, system or developer";
    if (item.role.empty()) ThrowInvalid(role, "", kAllowed);
    if (std::ranges::find(kItemRoles, item.role) == kItemRoles.end()) {
      ThrowInvalid(role, RequestValue::Quoted(item.role), kAllowed);
    }
    if (!item.content.has_value()) ThrowInvalid(content, "", kItemContent);
    to.Begin(item.role, item.role == "assistant");
    to.AddText(*item.content, content);
  } else if (item.type == "reasoning") {
    to.Begin("assistant", true);
    const bool is_whole = item.content.has_value() && !item.content->empty();
    to.AddReasoning(is_whole ? *item.content : item.summary, item.path);
  } else if (item.type == "function_call") {
    const std::string& id = RequiredOf(item, item.call_id, "call_id", "the id of the call");
    const std::string& name = RequiredOf(item, item.name, "name", "the name of a tool");
    const std::string field = FieldPath(item.path, "arguments");
    to.Begin("assistant", true);
    to.AddCall(id, name, ArgumentsOfText(item.arguments.value_or(""), field), item.path);
  } else if (item.type == "function_call_output") {
    const std::string& id =
        RequiredOf(item, item.call_id, "call_id", "the call_id of a call before it");
    const std::string output = FieldPath(item.path, "output");
    if (!item.output.has_value()) ThrowInvalid(output, "", kItemContent);
    to.Begin("user", false);
    to.AddResult(id, *item.output, FieldPath(item.path, "call_id"), output);
  } else if (item.type.empty()) {
    ThrowInvalid(FieldPath(item.path, "type"), "", "the type of the item, such as \"message\"");
  } else {
    ThrowUnsupported(FieldPath(item.path, "type"), item.type, kOnlyItems);
  }
}

}  // namespace

void ReadResponseInput(const RequestValue& input, Conversation& to,
                       std::vector<std::string>& unknown) {
  if (input.type() == json_type::string) {
    to.Begin("user", false);
    to.AddText(input.Text(), input.name());
    return to.End();
  }
  const size_t count = ReadElements(input, kInput, [&](const RequestValue& value) {
    Item item = {.path = std::string(value.name())};
    ReadFields(value, kItemFields, "input[]", unknown,
               [&](std::string_view field, const RequestValue& part) {
                 ReadItemField(part, field, item, unknown);
               });
    AddItem(item, to);
  });
  if (count == 0) input.Refuse("an empty list", kInput);
  to.End();
}

}  // namespace sluice::server
