#include "cli/replay/replay_difference.h"

#include <algorithm>

#include "cli/text.h"

namespace sluice::cli {
namespace {

// A few characters around a byte, whole ones.
std::string Around(const std::string& text, size_t at) {
  constexpr size_t kBefore = 8;
  constexpr size_t kAfter = 16;
  const auto is_inside = [&](size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) >> 6) == 2;
  };
  size_t begin = at - std::min(at, kBefore);
  while (begin > 0 && is_inside(begin)) --begin;
  size_t end = std::min(at + kAfter, text.size());
  while (is_inside(end)) ++end;
  return QuotedLine(std::string_view(text).substr(begin, end - begin));
}

std::string Both(const std::string& recorded, const std::string& now) {
  return ": recorded " + recorded + ", now " + now;
}

}  // namespace

std::string FirstDifference(const RequestResult& recorded, const RequestResult& now) {
  if (recorded.text != now.text) {
    const auto [in_recorded, in_now] =
        std::mismatch(recorded.text.begin(), recorded.text.end(), now.text.begin(), now.text.end());
    const auto at = static_cast<size_t>(in_recorded - recorded.text.begin());
    return "text differs at byte " + Number(at) +
           Both(Around(recorded.text, at), Around(now.text, at));
  }
  if (recorded.ids != now.ids) {
    const auto [in_recorded, in_now] =
        std::mismatch(recorded.ids.begin(), recorded.ids.end(), now.ids.begin(), now.ids.end());
    const auto token = [](const auto& ids, auto at) {
      return at == ids.end() ? std::string("none") : Number(*at);
    };
    return "token " + Number(in_recorded - recorded.ids.begin()) + " differs" +
           Both(token(recorded.ids, in_recorded), token(now.ids, in_now));
  }
  if (recorded.end != now.end) return "end differs" + Both(recorded.end, now.end);
  if (recorded.prompt_tokens != now.prompt_tokens) {
    return "prompt_tokens differ" + Both(Number(recorded.prompt_tokens), Number(now.prompt_tokens));
  }
  if (recorded.output_tokens != now.output_tokens) {
    return "output_tokens differ" + Both(Number(recorded.output_tokens), Number(now.output_tokens));
  }
  return "";
}

}  // namespace sluice::cli
