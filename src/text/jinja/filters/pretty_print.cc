// The filter pprint: values over several lines, as Python's pprint writes them.
#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/strings.h"
#include "text/jinja/syntax/level.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

constexpr int64_t kWidth = 80;

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Run& run) : run_(run) {}

  std::string Print(const Value& value) {
    Append(value, 0, 0, true);
    return std::move(out_);
  }

 private:
  using Members = std::vector<std::pair<Value, Value>>;

  static int64_t WidthOf(std::string_view text) {
    return static_cast<int64_t>(CountCharacters(text));
  }

  // Python compares keys, or else the names of their types.
  static int RankOf(const Value& key) {
    return key.IsNone() ? 0 : key.IsNumber() ? 1 : key.AsString() != nullptr ? 2 : 3;
  }
  Members Sorted(const Dict& dict) {
    run_.ChargeItems(2 * dict.members.size());
    Members members = dict.members;
    std::stable_sort(members.begin(), members.end(), [&](const auto& a, const auto& b) {
      run_.Charge();
      const int left = RankOf(a.first);
      const int right = RankOf(b.first);
      return left != right ? left < right : IsLess(run_, a.first, b.first);
    });
    return members;
  }

  static bool IsList(const Value& value) {
    const auto* sequence = value.As<Value::Sequence>();
    return sequence != nullptr && sequence->view == Value::View::kNone && !sequence->is_group;
  }

  // On one line, with the members of dicts in order.
  std::string Repr(const Value& value) {
    const Run::Level level(run_);
    std::string text;
    const auto add = [&](const std::string& part) {
      run_.ChargeElement(text.size() + part.size());
      text.append(part);
    };
    if (const Dict* dict = value.AsDict()) {
      for (const auto& [key, item] : Sorted(*dict)) {
        add(text.empty() ? "{" : ", ");
        add(Repr(key));
        add(": ");
        add(Repr(item));
      }
      return text.empty() ? "{}" : text + "}";
    }
    if (!IsList(value)) return ReprText(run_, value);
    const List& items = *value.AsList();
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(", ");
      add(Repr(items[i]));
    }
    if (!value.IsTuple()) return "[" + text + "]";
    return "(" + text + (items.size() == 1 ? ",)" : ")");
  }

  void Write(std::string_view text) {
    out_.append(text);
    run_.ChargeElement(out_.size());
  }
  void NewLine(int64_t indent) {
    Write("\n");
    run_.AppendTimes(" ", indent, out_);
  }

  // `allowance` is what has to follow on the last line.
  void Append(const Value& value, int64_t indent, int64_t allowance, bool is_top = false) {
    const Run::Level level(run_);
    const std::string repr = Repr(value);
    run_.Charge(repr.size());
    const bool fits = WidthOf(repr) <= kWidth - indent - allowance;
    if (!fits && value.AsDict() != nullptr)
      return AppendDict(*value.AsDict(), indent, allowance + 1);
    if (!fits && IsList(value)) return AppendList(value, indent, allowance);
    if (!fits && value.AsString() != nullptr && !value.IsMarkup()) {
      return AppendString(*value.AsString(), indent, allowance, is_top);
    }
    Write(repr);
  }

  void AppendDict(const Dict& dict, int64_t indent, int64_t allowance) {
    Write("{");
    const Members members = Sorted(dict);
    for (size_t i = 0; i < members.size(); ++i) {
      const bool is_last = i + 1 == members.size();
      const std::string key = Repr(members[i].first);
      Write(key);
      Write(": ");
      Append(members[i].second, indent + 3 + WidthOf(key), is_last ? allowance : 1);
      if (is_last) break;
      Write(",");
      NewLine(indent + 1);
    }
    Write("}");
  }

  void AppendList(const Value& value, int64_t indent, int64_t allowance) {
    const List& items = *value.AsList();
    const std::string_view end = !value.IsTuple() ? "]" : items.size() == 1 ? ",)" : ")";
    Write(value.IsTuple() ? "(" : "[");
    for (size_t i = 0; i < items.size(); ++i) {
      const bool is_last = i + 1 == items.size();
      Append(items[i], indent + 1, is_last ? allowance + static_cast<int64_t>(end.size()) : 1);
      if (is_last) break;
      Write(",");
      NewLine(indent + 1);
    }
    Write(end);
  }

  std::string Quoted(std::string_view text) {
    run_.Charge(text.size());
    return ReprText(run_, Value::Of(std::string(text)));
  }

  // Words with the spaces after them.
  static std::vector<std::string_view> PartsOf(std::string_view line) {
    std::vector<std::string_view> parts;
    bool was_space = true;
    size_t at = 0;
    ForEachCharacter(line, [&](uint32_t c, std::string_view bytes) {
      const bool is_space = IsPythonSpace(c);
      if ((was_space && !is_space) || parts.empty()) parts.push_back(line.substr(at, 0));
      parts.back() = std::string_view(parts.back().data(), parts.back().size() + bytes.size());
      was_space = is_space;
      at += bytes.size();
    });
    return parts;
  }

  void AppendString(std::string_view text, int64_t indent, int64_t allowance, bool is_top) {
    if (is_top) ++indent, ++allowance;
    std::vector<std::string> chunks;
    std::string last;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, FirstLine(rest).size);
      rest.remove_prefix(line.size());
      last = Quoted(line);
      if (WidthOf(last) <= kWidth - indent - (rest.empty() ? allowance : 0)) {
        chunks.push_back(last);
        continue;
      }
      const std::vector<std::string_view> parts = PartsOf(line);
      std::string current;
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool is_last = rest.empty() && i + 1 == parts.size();
        std::string candidate = current + std::string(parts[i]);
        if (WidthOf(Quoted(candidate)) <= kWidth - indent - (is_last ? allowance : 0)) {
          current = std::move(candidate);
          continue;
        }
        if (!current.empty()) chunks.push_back(Quoted(current));
        current = parts[i];
      }
      if (!current.empty()) chunks.push_back(Quoted(current));
    }
    if (chunks.size() == 1) return Write(last);
    if (is_top) Write("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) NewLine(indent);
      Write(chunks[i]);
    }
    if (is_top) Write(")");
  }

  Run& run_;
  std::string out_;
};

}  // namespace

Value PrettyPrint(Run& run, const Value& value, const Arguments&) {
  return run.Made(PrettyPrinter(run).Print(value));
}

}  // namespace sluice::text::jinja
