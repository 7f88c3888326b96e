#include "server/api/request/message_blocks.h"

#include <array>
#include <optional>

#include "server/api/request/read_fields.h"
#include "server/api/request/unsupported.h"
#include "support/number.h"

namespace sluice::server {
namespace {

using json::json_type;

constexpr auto kTurnFields = std::to_array<std::string_view>({"role", "content"});
constexpr auto kBlockFields = std::to_array<std::string_view>(
    {"type", "text", "thinking", "signature", "data", "id", "name", "input", "caller",
     "tool_use_id", "content", "is_error", "cache_control", "citations"});
constexpr std::string_view kBlocks = "messages[].content[]";
constexpr const char* kBlockContent = "a text or a list of blocks";
constexpr const char* kTurns = "a list of one message or more";
constexpr std::string_view kOnlyTexts = "messages are texts, calls of tools and their results";

// A block with all that one may have; `path` is its own.
struct Block {
  std::string path = {};
  std::string type = {};
  std::optional<std::string> text = {};
  std::optional<std::string> thinking = {};
  std::optional<std::string> id = {};
  std::optional<std::string> name = {};
  std::optional<std::string> input = {};  // JSON
  std::optional<std::string> tool_use_id = {};
  std::string content = {};
  bool is_error = false;

  const std::string& Required(const std::optional<std::string>& member, std::string_view field,
                              const char* allowed) const {
    if (!member.has_value()) ThrowInvalid(FieldPath(path, field), "", allowed);
    return *member;
  }
};

void ReadContentOfResult(const RequestValue& value, Block& to, std::vector<std::string>& unknown) {
  to.content = ReadTextBlocks(value, unknown);
}

void ReadBlockField(const RequestValue& value, std::string_view field, Block& to,
                    std::vector<std::string>& unknown) {
  if (field == "type") {
    to.type = value.Text();
  } else if (field == "text") {
    to.text = value.Text();
  } else if (field == "thinking") {
    to.thinking = value.Text();
  } else if (field == "id") {
    to.id = value.Text();
  } else if (field == "name") {
    to.name = value.Text();
  } else if (field == "tool_use_id") {
    to.tool_use_id = value.Text();
  } else if (field == "is_error") {
    to.is_error = value.Boolean();
  } else if (field == "input") {
    if (value.type() != json_type::object) value.Refuse(value.Shown(), "an object");
    AppendJson(value, to.input.emplace());
  } else if (field == "content" && to.type == "tool_result") {
    ReadContentOfResult(value, to, unknown);
  } else {
    value.Skip();
  }
}

// Which role a block is of; none: it is no block that is supported.
std::string_view RoleOf(std::string_view type) {
  if (type == "thinking" || type == "redacted_thinking" || type == "tool_use") return "assistant";
  return type == "tool_result" ? "user" : "";
}

void CheckBlockType(const Block& block, std::string_view role) {
  const std::string field = FieldPath(block.path, "type");
  if (block.type.empty()) ThrowInvalid(field, "", "the type of the block, such as \"text\"");
  if (block.type == "text") return;
  const std::string_view its = RoleOf(block.type);
  if (its.empty()) ThrowUnsupported(field, block.type, kOnlyTexts);
  if (its != role) {
    ThrowInvalid(field, RequestValue::Quoted(block.type),
                 "a block of the role " + std::string(role));
  }
}

// Templates have no field for an error: the text says that it is one.
std::string TextOfError(const std::string& content) {
  constexpr std::string_view kError = "Error";
  if (content.empty()) return std::string(kError);
  return content.starts_with(kError) ? content : std::string(kError).append(": ").append(content);
}

void AddBlock(const Block& block, std::string_view role, Conversation& to) {
  CheckBlockType(block, role);
  if (block.type == "text") {
    to.AddText(block.Required(block.text, "text", "a text"), FieldPath(block.path, "text"));
  } else if (block.type == "thinking") {
    to.AddReasoning(block.Required(block.thinking, "thinking", "a text"),
                    FieldPath(block.path, "thinking"));
  } else if (block.type == "tool_use") {
    const std::string& id = block.Required(block.id, "id", "the id of the call");
    const std::string& name = block.Required(block.name, "name", "the name of a tool");
    if (id.empty()) ThrowInvalid(FieldPath(block.path, "id"), "", "the id of the call");
    if (name.empty()) ThrowInvalid(FieldPath(block.path, "name"), "", "the name of a tool");
    to.AddCall(id, name, block.Required(block.input, "input", "an object"), block.path);
  } else if (block.type == "tool_result") {
    to.AddResult(block.Required(block.tool_use_id, "tool_use_id", "the id of a call before it"),
                 block.is_error ? TextOfError(block.content) : block.content,
                 FieldPath(block.path, "tool_use_id"), FieldPath(block.path, "content"));
  }
}

// is_inner: it is in the content of another one, and has none.
Block ReadBlock(const RequestValue& value, std::vector<std::string>& unknown, bool is_inner) {
  Block block = {.path = std::string(value.name())};
  // A type that comes after the content would be known too late to read that.
  std::string content;
  ReadFields(
      value, kBlockFields, kBlocks, unknown, [&](std::string_view field, const RequestValue& part) {
        if (field == "content" && is_inner) {
          part.Skip();
        } else if (field == "content" && block.type.empty() && part.type() == json_type::array) {
          AppendJson(part, content);
        } else if (field == "content" && block.type.empty()) {
          ReadContentOfResult(part, block, unknown);
        } else {
          ReadBlockField(part, field, block, unknown);
        }
      });
  if (content.empty() || block.type != "tool_result") return block;
  ReadAgain(FieldPath(block.path, "content"), content,
            [&](const RequestValue& part) { ReadBlockField(part, "content", block, unknown); });
  return block;
}

struct Turn {
  std::string role = {};
  bool has_content = false;
  std::optional<std::string> text = {};
  std::vector<Block> blocks = {};
};

// They are kept until the role is known, some 400 bytes for each, which may be `{}` in the body.
void CheckCount(size_t blocks, const RequestValue& message) {
  constexpr size_t kMostBlocks = 4096;
  if (blocks < kMostBlocks) return;
  ThrowInvalid(FieldPath(message.name(), "content"),
               "a list of more than " + Number(kMostBlocks) + " blocks",
               "at most " + Number(kMostBlocks) + " blocks");
}

void ReadTurn(const RequestValue& value, Conversation& to, std::vector<std::string>& unknown) {
  Turn message;
  ReadFields(value, kTurnFields, "messages[]", unknown,
             [&](std::string_view field, const RequestValue& part) {
               if (field == "role") {
                 message.role = part.Text();
                 if (message.role != "user" && message.role != "assistant") {
                   part.Refuse(RequestValue::Quoted(message.role),
                               "user or assistant; the field system has the system's text");
                 }
               } else if (part.type() == json_type::string) {
                 message.text = part.Text();
               } else {
                 message.has_content = true;
                 ReadElements(part, kBlockContent, [&](const RequestValue& block) {
                   CheckCount(message.blocks.size(), value);
                   message.blocks.push_back(ReadBlock(block, unknown, false));
                 });
               }
             });
  if (message.role.empty()) {
    ThrowInvalid(FieldPath(value.name(), "role"), "", "user or assistant");
  }
  const std::string content = FieldPath(value.name(), "content");
  if (!message.has_content && !message.text.has_value()) ThrowInvalid(content, "", kBlockContent);
  to.Begin(message.role, true);
  if (message.text.has_value()) to.AddText(*message.text, content);
  for (const Block& block : message.blocks) AddBlock(block, message.role, to);
}

}  // namespace

void ReadMessageBlocks(const RequestValue& messages, Conversation& to,
                       std::vector<std::string>& unknown) {
  const size_t count = ReadElements(
      messages, kTurns, [&](const RequestValue& message) { ReadTurn(message, to, unknown); });
  if (count == 0) messages.Refuse("an empty list", kTurns);
  if (to.ends_in_reasoning()) {
    messages.Refuse("a last message that ends in thinking",
                    "one that ends in text, with which the model goes on, or a user's");
  }
  to.EndWithoutEmptyAnswer();
}

std::string ReadTextBlocks(const RequestValue& value, std::vector<std::string>& unknown) {
  if (value.type() == json_type::string) return value.Text();
  std::string joined;
  size_t number = 0;
  ReadElements(value, "a text or a list of blocks of type \"text\"",
               [&](const RequestValue& element) {
                 const Block block = ReadBlock(element, unknown, true);
                 const std::string field = FieldPath(block.path, "type");
                 if (block.type.empty()) ThrowInvalid(field, "", "\"text\"");
                 if (block.type != "text") ThrowUnsupported(field, block.type, kOnlyTexts);
                 if (number++ > 0) joined.push_back('\n');
                 joined.append(block.Required(block.text, "text", "a text"));
               });
  return joined;
}

}  // namespace sluice::server
