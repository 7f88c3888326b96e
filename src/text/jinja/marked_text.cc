#include "text/jinja/marked_text.h"

#include <algorithm>
#include <utility>

#include "text/jinja/run.h"

namespace sluice::text::jinja {
namespace {

void AddSpan(std::vector<TextSpan>& to, TextSpan span) {
  if (span.begin == span.end) return;
  if (!to.empty() && to.back().end == span.begin) {
    to.back().end = span.end;
  } else {
    to.push_back(span);
  }
}

}  // namespace

void AppendText(ChatText& to, std::string_view text, std::span<const TextSpan> own) {
  const size_t at = to.text.size();
  to.text.append(text);
  for (const TextSpan span : own) AddSpan(to.own, {at + span.begin, at + span.end});
}

void AppendOwn(ChatText& to, std::string_view text) {
  const TextSpan all{0, text.size()};
  AppendText(to, text, {&all, 1});
}

void AppendPart(ChatText& to, const Value& of, std::string_view part) {
  const size_t at = to.text.size();
  to.text.append(part);
  if (part.empty()) return;
  const auto begin = static_cast<size_t>(part.data() - of.AsString()->data());
  const size_t end = begin + part.size();
  const std::span<const TextSpan> own = of.Own();
  auto span = std::ranges::upper_bound(own, begin, {}, &TextSpan::end);
  for (; span != own.end() && span->begin < end; ++span) {
    AddSpan(to.own,
            {at + std::max(span->begin, begin) - begin, at + std::min(span->end, end) - begin});
  }
}

void AppendValue(Run& run, const Value& value, ChatText& to) {
  if (const std::string* text = value.AsString()) return AppendText(to, *text, value.Own());
  const std::string text = ToText(run, value);
  if (IsOwn(value)) {
    AppendOwn(to, text);
  } else {
    AppendForeign(to, text);
  }
}

Value TextValue(Run& run, const Value& value) {
  if (value.AsString() != nullptr) return value;
  ChatText made;
  AppendValue(run, value, made);
  return Value::Of(std::move(made));
}

Value PartOf(const Value& of, std::string_view part) {
  ChatText made;
  AppendPart(made, of, part);
  return Value::Of(std::move(made), of.IsMarkup());
}

bool IsOwn(const Value& value) {
  if (value.IsNumber() || value.IsNone() || value.IsUndefined()) return true;
  const std::string* text = value.AsString();
  if (text == nullptr) return false;
  const std::span<const TextSpan> own = value.Own();
  return text->empty() || (own.size() == 1 && own[0].end - own[0].begin == text->size());
}

bool AreOwn(const Arguments& arguments) {
  return std::ranges::all_of(arguments.positional, IsOwn) &&
         std::ranges::all_of(arguments.named,
                             [](const auto& named) { return IsOwn(named.second); });
}

Value OwnIf(bool are_own, Value made) {
  if (!are_own || made.AsString() == nullptr || !made.Own().empty()) return made;
  ChatText text;
  AppendOwn(text, *made.AsString());
  return Value::Of(std::move(text), made.IsMarkup());
}

}  // namespace sluice::text::jinja
