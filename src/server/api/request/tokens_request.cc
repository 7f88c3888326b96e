#include "server/api/request/tokens_request.h"

#include "server/api/json_text.h"
#include "server/api/request/chat_input.h"
#include "server/api/request/field_names.h"
#include "server/api/request/field_schemas.h"
#include "server/api/request/request_fields.h"
#include "server/api/request/unsupported.h"
#include "server/api/response/logprobs_json.h"

namespace sluice::server {
namespace {

struct TokenizeDraft {
  TokenizeRequest request = {};
  std::optional<std::string> prompt = {};
  std::optional<bool> adds_special_tokens = {};
  std::optional<bool> parses_special_tokens = {};
  ChatInput chat = {};
};

constexpr void (*kReadTokenizeChat)(TokenizeDraft&, const RequestValue&) =
    [](TokenizeDraft& to, const RequestValue& v) { ReadChatField(to.chat, v); };
constexpr RequestField<TokenizeDraft> kTokenizeFields[] = {
    {"model", R"({"type":"string"})",
     [](TokenizeDraft& to, const RequestValue& v) { to.request.model = v.Text(); }},
    {"prompt", R"({"type":"string"})",
     [](TokenizeDraft& to, const RequestValue& v) { to.prompt = v.Text(); }},
    {"add_special_tokens", R"({"type":"boolean"})",
     [](TokenizeDraft& to, const RequestValue& v) { to.adds_special_tokens = v.Boolean(); }},
    {"parse_special_tokens", R"({"type":"boolean"})",
     [](TokenizeDraft& to, const RequestValue& v) { to.parses_special_tokens = v.Boolean(); }},
    {"return_token_strs", R"({"type":"boolean"})",
     [](TokenizeDraft& to, const RequestValue& v) { to.request.returns_token_strs = v.Boolean(); }},
    {"messages",
     R"({"type":"array","minItems":1,"items":{"type":"object","properties":{"role":{"type":"string"}},"required":["role"]}})",
     kReadTokenizeChat},
    {"add_generation_prompt", R"({"type":"boolean"})", kReadTokenizeChat},
    {"continue_final_message", R"({"type":"boolean"})", kReadTokenizeChat},
    {"chat_template_kwargs", R"({"type":"object"})", kReadTokenizeChat},
    {"tools", R"()",
     [](TokenizeDraft&, const RequestValue& v) { RefuseUnsupported(Api::kCompletions, v); }},
    {"chat_template", R"()",
     [](TokenizeDraft&, const RequestValue& v) { RefuseUnsupported(Api::kCompletions, v); }},
};

struct DetokenizeDraft {
  DetokenizeRequest request = {};
  bool has_tokens = false;
};

constexpr RequestField<DetokenizeDraft> kDetokenizeFields[] = {
    {"model", R"({"type":"string"})",
     [](DetokenizeDraft& to, const RequestValue& v) { to.request.model = v.Text(); }},
    {"tokens", R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}})",
     [](DetokenizeDraft& to, const RequestValue& v) {
       to.request.tokens = v.Ids();
       to.has_tokens = true;
     }},
};

template <typename Draft>
void Read(std::string_view body, std::span<const RequestField<Draft>> fields, Draft& draft) {
  draft.request.unknown = ReadBody(
      body, [&](std::string_view name) { return FieldOf(fields, name) != nullptr; },
      [&](const RequestValue& value) { FieldOf(fields, value.name())->read(draft, value); });
}

template <typename Draft>
void RefuseUnknown(const std::vector<std::string>& unknown,
                   std::span<const RequestField<Draft>> fields) {
  if (unknown.empty()) return;
  std::vector<std::string_view> known;
  for (const RequestField<Draft>& field : fields) known.push_back(field.name);
  throw ApiFailure(UnknownField(unknown, known));
}

void AppendModel(std::string& out, const ModelCard& card) {
  out.append(R"({"id":)");
  AppendQuoted(out, card.id);
  out.append(R"(,"object":"model","created":)");
  AppendNumber(out, card.created);
  out.append(R"(,"owned_by":"sluice","root":)");
  AppendQuoted(out, card.id);
  out.append(R"(,"parent":null,"max_model_len":)");
  AppendNumber(out, card.context);
  out.push_back('}');
}

}  // namespace

std::vector<FieldSchema> TokenizeSchemas() {
  std::vector<FieldSchema> schemas;
  AddSchemas<TokenizeDraft>(kTokenizeFields, schemas);
  return schemas;
}

std::vector<FieldSchema> DetokenizeSchemas() {
  std::vector<FieldSchema> schemas;
  AddSchemas<DetokenizeDraft>(kDetokenizeFields, schemas);
  return schemas;
}

TokenizeRequest ParseTokenizeRequest(std::string_view body, bool refuses_unknown) {
  TokenizeDraft draft;
  Read<TokenizeDraft>(body, kTokenizeFields, draft);
  TokenizeRequest& request = draft.request;
  for (const std::string& name : draft.chat.unknown) AddUnknown(name, request.unknown);
  if (refuses_unknown) RefuseUnknown<TokenizeDraft>(request.unknown, kTokenizeFields);
  request.is_chat = draft.chat.has_messages;
  WithApiErrors([&] {
    if (draft.prompt.has_value() == request.is_chat) {
      ThrowInvalid("prompt", request.is_chat ? "a text with messages" : "",
                   "either prompt or messages");
    }
    if (request.is_chat) request.chat_variables = ChatVariables(draft.chat, draft.chat.messages);
  });
  if (draft.chat.continues_final_message) request.final_message = draft.chat.last_text;
  request.prompt = std::move(draft.prompt).value_or("");
  request.adds_special_tokens = draft.adds_special_tokens.value_or(!request.is_chat);
  request.parses_special_tokens = draft.parses_special_tokens.value_or(request.is_chat);
  return std::move(draft.request);
}

DetokenizeRequest ParseDetokenizeRequest(std::string_view body, bool refuses_unknown) {
  DetokenizeDraft draft;
  Read<DetokenizeDraft>(body, kDetokenizeFields, draft);
  if (refuses_unknown) RefuseUnknown<DetokenizeDraft>(draft.request.unknown, kDetokenizeFields);
  if (!draft.has_tokens) {
    WithApiErrors([] { ThrowInvalid("tokens", "", "a list of token ids"); });
  }
  return std::move(draft.request);
}

std::string TokenizeBody(std::span<const int32_t> ids, int64_t context, const Tokenizer& tokenizer,
                         bool returns_token_strs) {
  std::string out = R"({"count":)";
  AppendNumber(out, ids.size());
  out.append(R"(,"max_model_len":)");
  AppendNumber(out, context);
  out.append(R"(,"tokens":)");
  AppendIds(out, ids);
  out.append(R"(,"token_strs":)");
  if (!returns_token_strs) return out.append("null}");
  out.push_back('[');
  for (const int32_t& id : ids) {
    if (&id != ids.data()) out.push_back(',');
    AppendTokenText(out, tokenizer.Token(id).value_or(""));
  }
  return out.append("]}");
}

std::string DetokenizeBody(std::string_view text) {
  std::string out = R"({"prompt":)";
  AppendQuoted(out, text);
  return out.append("}");
}

std::string ModelBody(const ModelCard& card) {
  std::string out;
  AppendModel(out, card);
  return out;
}

std::string ModelsBody(std::span<const ModelCard> cards) {
  std::string out = R"({"object":"list","data":[)";
  for (const ModelCard& card : cards) {
    if (&card != cards.data()) out.push_back(',');
    AppendModel(out, card);
  }
  return out.append("]}");
}

}  // namespace sluice::server
