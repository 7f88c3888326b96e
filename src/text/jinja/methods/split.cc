// Methods of str that part a text, or join texts.
#include <algorithm>
#include <utility>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/find.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/methods/methods.h"
#include "text/jinja/strings.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

Value SplitLines(Run& run, const Value& self, const Arguments& arguments) {
  std::string_view text = *self.AsString();
  const bool keeps_end = IntegerArgument(run, arguments, 0, "keepends") != 0;
  List lines;
  run.Charge(text.size());
  while (!text.empty()) {
    const Line line = FirstLine(text);
    run.Charge(16);
    lines.push_back(PartOf(self, keeps_end ? text.substr(0, line.size) : line.text));
    text.remove_prefix(line.size);
  }
  return Value::Of(std::move(lines));
}

List SplitText(Run& run, const Value& self, const Arguments& arguments, bool from_right) {
  std::string_view text = *self.AsString();
  run.Charge(text.size());
  const Value* separator = arguments.Get(0, "sep");
  const int64_t most = IntegerArgument(run, arguments, 1, "maxsplit", -1);
  List parts;
  const auto add = [&](std::string_view part) {
    run.Charge(16);
    parts.push_back(PartOf(self, part));
  };
  const auto is_full = [&] { return most >= 0 && static_cast<int64_t>(parts.size()) >= most; };
  if ((separator == nullptr || separator->IsNone()) && from_right) {
    for (std::string_view rest = Trimmed(text, false, true); !rest.empty();) {
      if (is_full()) {
        add(rest);
        break;
      }
      size_t size = rest.size();
      while (size > 0 && !IsPythonSpace(LastOf(rest.substr(0, size)).value)) {
        size -= LastOf(rest.substr(0, size)).size;
      }
      add(rest.substr(size));
      rest = Trimmed(rest.substr(0, size), false, true);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  if (separator == nullptr || separator->IsNone()) {
    for (std::string_view rest = Trimmed(text, true, false); !rest.empty();) {
      if (is_full()) {
        add(rest);
        break;
      }
      size_t size = 0;
      while (size < rest.size() && !IsPythonSpace(FirstOf(rest.substr(size)).value)) {
        size += FirstOf(rest.substr(size)).size;
      }
      add(rest.substr(0, size));
      rest = Trimmed(rest.substr(size), true, false);
    }
    return parts;
  }
  const std::string& mark = StringArgument(run, arguments, 0, "sep");
  if (mark.empty()) run.Refuse("an empty separator", "text");
  if (from_right) {
    // From the end, both are read backwards.
    const std::string back_text(text.rbegin(), text.rend());
    const std::string back_mark(mark.rbegin(), mark.rend());
    const Finder finder(run, back_mark);
    while (!is_full()) {
      const size_t at = finder.In(back_text, back_text.size() - text.size());
      if (at == std::string::npos) break;
      const size_t end = back_text.size() - at;
      add(text.substr(end));
      text = text.substr(0, end - mark.size());
    }
    add(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  const Finder finder(run, mark);
  for (size_t at = 0; !is_full() && (at = finder.In(text)) != std::string_view::npos;) {
    add(text.substr(0, at));
    text.remove_prefix(at + mark.size());
  }
  add(text);
  return parts;
}

Value Split(Run& run, const Value& self, const Arguments& arguments) {
  return Value::Of(SplitText(run, self, arguments, false));
}

Value SplitFromRight(Run& run, const Value& self, const Arguments& arguments) {
  return Value::Of(SplitText(run, self, arguments, true));
}

// Three parts: before the separator, it, and after it.
Value PartedAt(Run& run, const Value& self, const Arguments& arguments, bool from_right) {
  const std::string_view text = *self.AsString();
  const std::string& mark = StringArgument(run, arguments, 0, "sep");
  if (mark.empty()) run.Refuse("an empty separator", "text");
  run.Charge(text.size());
  const Finder finder(run, mark);
  const size_t at = from_right ? LastIn(run, text, mark) : finder.In(text);
  const auto part = [&](std::string_view of) { return PartOf(self, of); };
  if (at == std::string_view::npos) {
    return Value::Of(
        from_right ? List{part(""), part(""), part(text)} : List{part(text), part(""), part("")},
        true);
  }
  return Value::Of(List{part(text.substr(0, at)), part(text.substr(at, mark.size())),
                        part(text.substr(at + mark.size()))},
                   true);
}

Value Partition(Run& run, const Value& self, const Arguments& arguments) {
  return PartedAt(run, self, arguments, false);
}

Value PartitionFromRight(Run& run, const Value& self, const Arguments& arguments) {
  return PartedAt(run, self, arguments, true);
}

// Markup joins values of any kind, and escapes them.
Value Join(Run& run, const Value& self, const Arguments& arguments) {
  const std::string& between = *self.AsString();
  ChatText made;
  bool is_first = true;
  for (const Value& item : run.Items(*arguments.Get(0, "iterable"))) {
    if (item.AsString() == nullptr && !self.IsMarkup()) {
      run.Refuse("join of a " + std::string(item.TypeName()), "strings");
    }
    const Value text = TextValue(run, item);
    run.ChargeElement(made.text.size() + between.size() + text.AsString()->size());
    if (!std::exchange(is_first, false)) AppendText(made, between, self.Own());
    if (self.IsMarkup() && !item.IsMarkup()) {
      AppendForeign(made, Escaped(*text.AsString()));
    } else {
      AppendText(made, *text.AsString(), text.Own());
    }
  }
  return run.Made(std::move(made), self.IsMarkup());
}

}  // namespace

std::span<const MethodRow> SplitMethods() {
  static constexpr MethodRow kRows[] = {
      {"join", "/iterable", Join},
      {"partition", "/sep", Partition},
      {"rpartition", "/sep", PartitionFromRight},
      {"rsplit", "sep? maxsplit?", SplitFromRight},
      {"split", "sep? maxsplit?", Split},
      {"splitlines", "keepends?", SplitLines},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
