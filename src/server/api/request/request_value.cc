#include "server/api/request/request_value.h"

#include "server/api/json_text.h"

namespace sluice::server {
namespace {

using json::Get;
using json::Json;
using json::json_type;

void Append(Json value, int depth, std::string& out) {
  if (depth > json::kDeepest) ThrowInvalid("json", "deeper nesting", "at most 64 levels");
  const json_type type = Get(value.type());
  if (type == json_type::object) {
    char separator = '{';
    for (auto result : Get(value.get_object())) {
      auto field = Get(std::move(result));
      out.push_back(separator);
      AppendQuoted(out, json::NameOf(field));
      out.push_back(':');
      Append(field.value(), depth + 1, out);
      separator = ',';
    }
    out.append(separator == '{' ? "{}" : "}");
  } else if (type == json_type::array) {
    char separator = '[';
    for (auto element : Get(value.get_array())) {
      out.push_back(separator);
      Append(Get(std::move(element)), depth + 1, out);
      separator = ',';
    }
    out.append(separator == '[' ? "[]" : "]");
  } else if (type == json_type::string) {
    AppendQuoted(out, Get(value.get_string()));
  } else {
    const std::string_view text = json::Trimmed(value.raw_json_token());
    json::Skip(value, depth);
    out.append(text);
  }
}

}  // namespace

void AppendJson(const RequestValue& value, std::string& out) { Append(value.json(), 2, out); }

}  // namespace sluice::server
