// str.format: fields in braces.
#include <charconv>

#include "text/jinja/format/format.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/strings.h"
#include "text/jinja/syntax/level.h"

namespace sluice::text::jinja {
namespace {

bool IsWhole(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class FieldFormatter {
 public:
  FieldFormatter(Run& run, const List& positional,
                 const std::vector<std::pair<std::string, Value>>& named, const Value* mapping,
                 const Value& format)
      : run_(run),
        positional_(positional),
        named_(named),
        mapping_(mapping),
        escapes_(format.IsMarkup()),
        is_own_(IsOwn(format)) {}

  ChatText Format(std::string_view format, int depth = 2) {
    if (depth < 0) run_.Refuse("fields in fields of a format", "two levels of them");
    run_.Charge(format.size());
    ChatText out;
    for (std::string_view rest = format; !rest.empty();) {
      const size_t at = rest.find_first_of("{}");
      Write(rest.substr(0, at), out);
      if (at == std::string_view::npos) break;
      const char brace = rest[at];
      rest.remove_prefix(at + 1);
      if (rest.starts_with(brace)) {
        Write({&brace, 1}, out);
        rest.remove_prefix(1);
      } else if (brace == '}' || rest.empty()) {
        run_.Refuse(std::string("a single ") + brace + " in a format", "{field}, {{ or }}");
      } else {
        AppendField(rest, depth, out);
      }
      run_.ChargeElement(out.text.size());
    }
    return out;
  }

 private:
  // A piece of the format.
  void Write(std::string_view text, ChatText& out) const {
    is_own_ ? AppendOwn(out, text) : AppendForeign(out, text);
  }
  // The field after an opening brace; takes it from the text, with its end.
  void AppendField(std::string_view& rest, int depth, ChatText& out) {
    const std::string_view name = TakeName(rest);
    char end = rest[0];
    rest.remove_prefix(1);
    char conversion = 0;
    if (end == '!') {
      if (rest.empty()) run_.Refuse("a format that ends in a field", "}");
      conversion = rest[0];
      rest.remove_prefix(1);
      if (!rest.empty()) {
        end = rest[0];
        rest.remove_prefix(1);
        if (end != ':' && end != '}') run_.Refuse("more than a letter after !", "s, r or a");
      }
    }
    const std::string_view spec = end == '}' ? std::string_view() : TakeSpec(rest);
    const Value value = Converted(Field(name), conversion);
    const Value inner_value = Value::Of(Format(spec, depth - 1));
    const std::string& inner = *inner_value.AsString();
    if (value.IsMarkup() && escapes_ && !inner.empty()) {
      run_.Refuse("a format of Markup in Markup", "none");
    }
    std::string text =
        escapes_ && value.IsMarkup() ? *value.AsString() : FormattedValue(run_, value, inner);
    if (escapes_ && !value.IsMarkup()) text = Escaped(text);
    run_.Charge(text.size());
    const bool keeps_value = value.AsString() != nullptr && text == *value.AsString();
    if (keeps_value) {
      AppendText(out, text, value.Own());
    } else if (IsOwn(value) && IsOwn(inner_value)) {
      AppendOwn(out, text);
    } else {
      AppendForeign(out, text);
    }
  }

  // Up to the character that ends it, which stays. A bracket hides such characters.
  std::string_view TakeName(std::string_view& rest) const {
    size_t at = 0;
    for (; at < rest.size(); ++at) {
      const char c = rest[at];
      if (c == '{') run_.Refuse("{ in the name of a field", "a name or a number");
      if (c == '}' || c == ':' || c == '!') break;
      if (c == '[') at = std::min(rest.find(']', at), rest.size() - 1);
    }
    if (at >= rest.size()) run_.Refuse("a field without its end in a format", "}");
    const std::string_view name = rest.substr(0, at);
    rest.remove_prefix(at);
    return name;
  }

  std::string_view TakeSpec(std::string_view& rest) const {
    int open = 1;
    for (size_t at = 0; at < rest.size(); ++at) {
      if (rest[at] == '{') ++open;
      if (rest[at] == '}' && --open == 0) {
        const std::string_view spec = rest.substr(0, at);
        rest.remove_prefix(at + 1);
        return spec;
      }
    }
    run_.Refuse("a field without its end in a format", "}");
  }

  int64_t Place(std::string_view digits) const {
    int64_t place = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), place).ec != std::errc()) {
      run_.Refuse("a larger number in a format", "64 bits");
    }
    return place;
  }

  // An empty name counts on, which does not go together with numbers.
  Value Field(std::string_view name) {
    std::string counted;
    if (name.empty()) {
      if (is_numbered_) run_.Refuse("{} after {0} in a format", "one of them");
      counted = std::to_string(next_++);
      name = counted;
    } else if (IsWhole(name)) {
      if (next_ > 0) run_.Refuse("{0} after {} in a format", "one of them");
      is_numbered_ = true;
    }
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = Argument(name.substr(0, end));
    for (std::string_view rest = name.substr(end); !rest.empty();) {
      run_.Charge();
      const bool is_item = rest[0] == '[';
      if (!is_item && rest[0] != '.') run_.Refuse("text after ] in a field", ". or [");
      rest.remove_prefix(1);
      const size_t size =
          is_item ? rest.find(']') : std::min(rest.find_first_of(".["), rest.size());
      if (size == std::string_view::npos) run_.Refuse("[ without its end in a field", "]");
      const std::string_view part = rest.substr(0, size);
      if (part.empty()) run_.Refuse("an empty part of a field", "a name");
      rest.remove_prefix(size + (is_item ? 1 : 0));
      value = !is_item        ? run_.Attribute(value, part)
              : IsWhole(part) ? run_.Item(value, Value::Of(Place(part)))
                              : run_.Item(value, Value::Of(std::string(part)));
    }
    return value;
  }

  const Value& Argument(std::string_view name) {
    if (IsWhole(name)) {
      const auto place = static_cast<size_t>(Place(name));
      if (place >= positional_.size()) {
        run_.Refuse("the field " + std::string(name) + " of a format", "one of the values");
      }
      return positional_[place];
    }
    if (mapping_ != nullptr && mapping_->AsDict() != nullptr) {
      if (const Value* found = mapping_->AsDict()->Find(run_, name)) return *found;
    }
    for (const auto& [known, value] : named_) {
      if (known == name) return value;
    }
    run_.Refuse("the field \"" + std::string(name) + "\" of a format", "one of the names");
  }

  Value Converted(const Value& value, char conversion) {
    switch (conversion) {
      case 0:
        return value;
      case 's':
        return run_.Made(ToText(run_, value));
      case 'r':
        return run_.Made(ReprText(run_, value));
      case 'a':
        return run_.Made(AsciiText(ReprText(run_, value)));
      default:
        run_.Refuse("another conversion of a field", "s, r or a");
    }
  }

  Run& run_;
  const List& positional_;
  const std::vector<std::pair<std::string, Value>>& named_;
  const Value* mapping_;
  bool escapes_;
  bool is_own_;
  int64_t next_ = 0;
  bool is_numbered_ = false;
};

}  // namespace

Value FormattedFields(Run& run, const Value& format, const List& positional,
                      const std::vector<std::pair<std::string, Value>>& named,
                      const Value* mapping) {
  FieldFormatter formatter(run, positional, named, mapping, format);
  return run.Made(formatter.Format(*format.AsString()), format.IsMarkup());
}

}  // namespace sluice::text::jinja
