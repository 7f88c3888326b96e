#include "server/api/response/logprobs_json.h"

#include <algorithm>

#include "server/api/json_text.h"
#include "text/normalize/utf8.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice::server {
namespace {

// One of the tokens, with its own number and the most likely ones.
struct OneToken {
  int32_t id;
  bool has_logprob;
  float logprob;
  int32_t rank;  // 0: not known
  std::span<const int32_t> top_ids;
  std::span<const float> top_logprobs;
};

OneToken At(const TokenLogprobs& of, size_t i) {
  const size_t without = of.ids.size() - std::min(of.ids.size(), of.logprobs.size());
  if (i < without) return {of.ids[i], false, 0, 0, {}, {}};
  const size_t at = i - without;
  const auto width = static_cast<size_t>(of.width);
  return {of.ids[i],
          true,
          of.logprobs[at],
          of.ranks.empty() ? 0 : of.ranks[at],
          of.top_ids.subspan(at * width, width),
          of.top_logprobs.subspan(at * width, width)};
}

int64_t CodePoints(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return !text::IsContinuation(static_cast<uint8_t>(c)); });
}

void AppendBytes(std::string& out, std::string_view bytes) {
  char separator = '[';
  for (const char c : bytes) {
    out.push_back(separator);
    AppendNumber(out, static_cast<unsigned>(static_cast<uint8_t>(c)));
    separator = ',';
  }
  out.append(bytes.empty() ? "[]" : "]");
}

void AppendChatToken(std::string& out, std::string_view bytes, float logprob) {
  out.append(R"({"token":)");
  AppendTokenText(out, bytes);
  out.append(R"(,"logprob":)");
  AppendLogprob(out, logprob);
  out.append(R"(,"bytes":)");
  AppendBytes(out, bytes);
}

// use(delta, token, is_first): of every token of all deltas.
template <typename Use>
void ForEachToken(std::span<const ChoiceDelta* const> deltas, Use use) {
  bool is_first = true;
  for (const ChoiceDelta* const delta : deltas) {
    for (size_t i = 0; i < delta->logprobs.ids.size(); ++i) {
      use(At(delta->logprobs, i), is_first);
      is_first = false;
    }
  }
}

void AppendTopObject(std::string& out, const OneToken& token, const Tokenizer& tokenizer) {
  const std::string_view own = TokenBytes(tokenizer, token.id);
  out.push_back('{');
  AppendTokenText(out, own);
  out.push_back(':');
  AppendLogprob(out, token.logprob);
  for (size_t i = 0; i < token.top_ids.size(); ++i) {
    if (token.top_ids[i] < 0) break;  // no more tokens have a probability
    const std::string_view bytes = TokenBytes(tokenizer, token.top_ids[i]);
    bool is_there = bytes == own;
    for (size_t j = 0; j < i && !is_there; ++j) {
      is_there = bytes == TokenBytes(tokenizer, token.top_ids[j]);
    }
    if (is_there) continue;
    out.push_back(',');
    AppendTokenText(out, bytes);
    out.push_back(':');
    AppendLogprob(out, token.top_logprobs[i]);
  }
  out.push_back('}');
}

void AppendOffsets(std::string& out, std::span<const ChoiceDelta* const> deltas,
                   const Tokenizer& tokenizer, bool skips_special_tokens) {
  bool is_first = true;
  for (const ChoiceDelta* const delta : deltas) {
    const int64_t end = delta->text_offset + CodePoints(delta->text);
    int64_t offset = delta->text_offset;
    for (const int32_t id : delta->logprobs.ids) {
      if (!is_first) out.push_back(',');
      is_first = false;
      AppendNumber(out, std::min(offset, end));
      if (skips_special_tokens && tokenizer.IsSpecial(id)) continue;
      offset += CodePoints(TokenBytes(tokenizer, id));
    }
  }
}

void AppendRanked(std::string& out, int32_t id, float logprob, int64_t rank,
                  const Tokenizer& tokenizer) {
  out.push_back('"');
  AppendNumber(out, id);
  out.append(R"(":{"logprob":)");
  AppendLogprob(out, logprob);
  out.append(R"(,"rank":)");
  if (rank > 0) {
    AppendNumber(out, rank);
  } else {
    out.append("null");
  }
  out.append(R"(,"decoded_token":)");
  AppendTokenText(out, TokenBytes(tokenizer, id));
  out.push_back('}');
}

}  // namespace

std::string_view TokenBytes(const Tokenizer& tokenizer, int32_t id) {
  const text::Vocabulary& vocabulary = tokenizer.impl().vocabulary();
  return vocabulary.IsKnown(id) ? vocabulary.Bytes(vocabulary.Piece(id)) : std::string_view();
}

void AppendTokenText(std::string& out, std::string_view bytes) {
  if (text::ValidPrefix(bytes) == bytes.size()) {
    AppendQuoted(out, bytes);
    return;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  out.append("\"bytes:");
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out.append(R"(\\x)");
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
  }
  out.push_back('"');
}

void AppendChatLogprobs(std::string& out, const TokenLogprobs& logprobs,
                        const Tokenizer& tokenizer) {
  out.append(R"({"content":[)");
  for (size_t i = 0; i < logprobs.ids.size(); ++i) {
    const OneToken token = At(logprobs, i);
    if (i > 0) out.push_back(',');
    AppendChatToken(out, TokenBytes(tokenizer, token.id), token.logprob);
    out.append(R"(,"top_logprobs":[)");
    for (size_t j = 0; j < token.top_ids.size() && token.top_ids[j] >= 0; ++j) {
      if (j > 0) out.push_back(',');
      AppendChatToken(out, TokenBytes(tokenizer, token.top_ids[j]), token.top_logprobs[j]);
      out.push_back('}');
    }
    out.append("]}");
  }
  out.append("]}");
}

void AppendCompletionLogprobs(std::string& out, std::span<const ChoiceDelta* const> deltas,
                              const Tokenizer& tokenizer, bool skips_special_tokens) {
  out.append(R"({"tokens":[)");
  ForEachToken(deltas, [&](const OneToken& token, bool is_first) {
    if (!is_first) out.push_back(',');
    AppendTokenText(out, TokenBytes(tokenizer, token.id));
  });
  out.append(R"(],"token_logprobs":[)");
  ForEachToken(deltas, [&](const OneToken& token, bool is_first) {
    if (!is_first) out.push_back(',');
    if (token.has_logprob) {
      AppendLogprob(out, token.logprob);
    } else {
      out.append("null");
    }
  });
  out.append(R"(],"top_logprobs":[)");
  ForEachToken(deltas, [&](const OneToken& token, bool is_first) {
    if (!is_first) out.push_back(',');
    if (token.has_logprob) {
      AppendTopObject(out, token, tokenizer);
    } else {
      out.append("null");
    }
  });
  out.append(R"(],"text_offset":[)");
  AppendOffsets(out, deltas, tokenizer, skips_special_tokens);
  out.append("]}");
}

void AppendPromptLogprobs(std::string& out, const TokenLogprobs& logprobs,
                          const Tokenizer& tokenizer) {
  out.append("[null");
  for (size_t i = 0; i < logprobs.ids.size(); ++i) {
    const OneToken token = At(logprobs, i);
    out.append(",{");
    AppendRanked(out, token.id, token.logprob, token.rank, tokenizer);
    for (size_t j = 0; j < token.top_ids.size() && token.top_ids[j] >= 0; ++j) {
      if (token.top_ids[j] == token.id) continue;
      out.push_back(',');
      AppendRanked(out, token.top_ids[j], token.top_logprobs[j], static_cast<int64_t>(j) + 1,
                   tokenizer);
    }
    out.push_back('}');
  }
  out.push_back(']');
}

}  // namespace sluice::server
