// The JSON Schema of each route's answer, for /openapi.json. A test holds bodies of the writers
// against them.
#pragma once

#include <string_view>

#include "server/route.h"

namespace sluice::server {

constexpr std::string_view AnswerSchema(Route route) {
  switch (route) {
    case Route::kCompletions:
      return R"({"type":"object","required":["id","object","created","model","system_fingerprint","seed","choices","usage"],"properties":{"id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},"system_fingerprint":{"type":"string"},"seed":{"type":["integer","null"]},"choices":{"type":"array","items":{"type":"object","required":["index","text","logprobs","finish_reason","stop_reason"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},"logprobs":{"type":["object","null"]},"finish_reason":{"enum":["stop","length"]},"stop_reason":{"type":["string","integer","null"]},"token_ids":{"type":"array","items":{"type":"integer"}},"prompt_token_ids":{"type":"array","items":{"type":"integer"}},"prompt_logprobs":{"type":"array"}}}},"usage":{"$ref":"#/components/schemas/Usage"}}})";
    case Route::kChatCompletions:
      return R"({"type":"object","required":["id","object","created","model","system_fingerprint","seed","choices","usage"],"properties":{"id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},"model":{"type":"string"},"system_fingerprint":{"type":"string"},"seed":{"type":["integer","null"]},"choices":{"type":"array","items":{"type":"object","required":["index","message","logprobs","finish_reason","stop_reason"],"properties":{"index":{"type":"integer"},"message":{"type":"object","required":["role","content"],"properties":{"role":{"const":"assistant"},"content":{"type":["string","null"]},"reasoning_content":{"type":"string"},"tool_calls":{"type":"array","items":{"type":"object","required":["id","type","function"],"properties":{"id":{"type":"string"},"type":{"const":"function"},"function":{"type":"object","required":["name","arguments"],"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}}}}},"logprobs":{"type":["object","null"]},"finish_reason":{"enum":["stop","length","tool_calls"]},"stop_reason":{"type":["string","integer","null"]},"token_ids":{"type":"array","items":{"type":"integer"}}}}},"prompt_token_ids":{"type":"array","items":{"type":"integer"}},"prompt_logprobs":{"type":"array"},"usage":{"$ref":"#/components/schemas/Usage"}}})";
    case Route::kMessages:
      return R"({"type":"object","required":["id","type","role","model","content","stop_reason","stop_sequence","usage"],"properties":{"id":{"type":"string"},"type":{"const":"message"},"role":{"const":"assistant"},"model":{"type":"string"},"seed":{"type":"integer"},"content":{"type":"array","items":{"type":"object","required":["type"],"properties":{"type":{"enum":["text","thinking","tool_use"]},"text":{"type":"string"},"thinking":{"type":"string"},"signature":{"type":"string"},"id":{"type":"string"},"name":{"type":"string"},"input":{"type":"object"}}}},"stop_reason":{"enum":["end_turn","max_tokens","stop_sequence","tool_use"]},"stop_sequence":{"type":["string","null"]},"usage":{"type":"object","required":["input_tokens","output_tokens"],"properties":{"input_tokens":{"type":"integer"},"cache_creation_input_tokens":{"type":"integer"},"cache_read_input_tokens":{"type":"integer"},"output_tokens":{"type":"integer"}}}}})";
    case Route::kCountTokens:
      return R"({"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer"}}})";
    case Route::kResponses:
      return R"({"type":"object","required":["id","object","created_at","status","error","incomplete_details","model","output","usage"],"properties":{"id":{"type":"string"},"object":{"const":"response"},"created_at":{"type":"integer"},"status":{"enum":["completed","incomplete"]},"background":{"const":false},"error":{"type":["object","null"]},"incomplete_details":{"type":["object","null"]},"instructions":{"type":["string","null"]},"metadata":{"type":"object"},"reasoning":{"type":["object","null"]},"text":{"type":"object"},"tools":{"type":"array"},"tool_choice":{"type":["string","object"]},"max_output_tokens":{"type":["integer","null"]},"parallel_tool_calls":{"type":"boolean"},"previous_response_id":{"type":"null"},"store":{"const":false},"truncation":{"const":"disabled"},"temperature":{"type":"number"},"top_p":{"type":"number"},"model":{"type":"string"},"seed":{"type":"integer"},"output":{"type":"array","items":{"type":"object","required":["id","type","status"],"properties":{"id":{"type":"string"},"type":{"enum":["message","reasoning","function_call"]},"status":{"enum":["completed","incomplete"]},"role":{"const":"assistant"},"summary":{"type":"array"},"content":{"type":"array","items":{"type":"object","required":["type","text"],"properties":{"type":{"enum":["output_text","reasoning_text"]},"text":{"type":"string"},"annotations":{"type":"array"},"logprobs":{"type":"array"}}}},"call_id":{"type":"string"},"name":{"type":"string"},"arguments":{"type":"string"}}}},"usage":{"type":"object","required":["input_tokens","input_tokens_details","output_tokens","output_tokens_details","total_tokens"],"properties":{"input_tokens":{"type":"integer"},"input_tokens_details":{"type":"object"},"output_tokens":{"type":"integer"},"output_tokens_details":{"type":"object"},"total_tokens":{"type":"integer"}}}}})";
    case Route::kModels:
      return R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})";
    case Route::kModel:
      return R"({"$ref":"#/components/schemas/Model"})";
    case Route::kTokenize:
      return R"({"type":"object","required":["count","max_model_len","tokens","token_strs"],"properties":{"count":{"type":"integer"},"max_model_len":{"type":"integer"},"tokens":{"type":"array","items":{"type":"integer"}},"token_strs":{"type":["array","null"]}}})";
    case Route::kDetokenize:
      return R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})";
    case Route::kHealth:
    case Route::kReady:
      return R"({"type":"object","required":["status"],"properties":{"status":{"type":"string"},"engines":{"type":"integer"},"engines_ready":{"type":"integer"},"reason":{"type":"string"}}})";
    case Route::kVersion:
      return R"({"type":"object","required":["version"],"properties":{"version":{"type":"string"}}})";
    case Route::kLoad:
      return R"({"type":"object","required":["server_load"],"properties":{"server_load":{"type":"integer"}}})";
    default:
      return R"({"type":"object"})";
  }
}

// What these schemas refer to.
inline constexpr std::string_view kAnswerParts =
    R"("Usage":{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],"properties":{"prompt_tokens":{"type":"integer"},"completion_tokens":{"type":"integer"},"total_tokens":{"type":"integer"},"prompt_tokens_details":{"type":"object","properties":{"cached_tokens":{"type":"integer"}}}}},)"
    R"("Model":{"type":"object","required":["id","object","created","owned_by"],"properties":{"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"},"root":{"type":"string"},"parent":{"type":["string","null"]},"max_model_len":{"type":"integer"}}},)"
    R"("Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type","param","code"],"properties":{"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}},)"
    R"("MessageError":{"type":"object","required":["type","error"],"properties":{"type":{"const":"error"},"error":{"type":"object","required":["type","message"],"properties":{"type":{"type":"string"},"message":{"type":"string"},"param":{"type":"string"},"code":{"type":"string"}}},"request_id":{"type":"string"}}})";

}  // namespace sluice::server
