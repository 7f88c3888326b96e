#include "grammar/rule_states.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "grammar/bounded_strings.h"

namespace sluice::grammar {
namespace {

constexpr int64_t kMost = int64_t{1} << 50;
constexpr int64_t kStateBytes = 512;    // of a state without its lists
constexpr int64_t kMostRepeated = 160;  // 128 states, and those around a counter

int64_t Product(int64_t a, int64_t b) { return b != 0 && a > kMost / b ? kMost : a * b; }
int64_t Sum(int64_t a, int64_t b) { return std::min(a + b, kMost); }

class Estimate {
 public:
  explicit Estimate(const FirstBytes& first_bytes)
      : first_(first_bytes), vocab_(std::reduce(first_bytes.begin(), first_bytes.end())) {}

  int64_t Rules(std::string_view rules, bool has_chains) {
    std::vector<std::pair<std::string_view, std::string_view>> all;
    while (!rules.empty()) {
      const std::string_view line = rules.substr(0, std::min(rules.find('\n'), rules.size()));
      rules.remove_prefix(std::min(line.size() + 1, rules.size()));
      const size_t at = line.find(" ::= ");
      const bool is_rule = at != std::string_view::npos;
      all.emplace_back(is_rule ? line.substr(0, at) : "", is_rule ? line.substr(at + 5) : line);
      bodies_[all.back().first] = all.back().second;
    }
    int64_t sum = 0;
    for (const auto& [name, body] : all) {
      const bool is_chain = has_chains && name.starts_with(kChainName);
      sum = Sum(sum, is_chain ? kStateBytes + vocab_ / 8 : Body(body));
    }
    return sum;
  }

 private:
  // Two lists of 4 bytes a token, one of which may be bits.
  int64_t Mask(int64_t tokens) const {
    return kStateBytes + 4 * tokens + std::min(4 * tokens, vocab_ / 8);
  }
  int64_t Byte(char byte) const { return Mask(first_[static_cast<unsigned char>(byte)]); }

  static size_t ClassEnd(std::string_view text, size_t begin) {
    size_t end = begin + 1;
    while (end < text.size() && text[end] != ']') end += text[end] == '\\' ? 2 : 1;
    return std::min(end, text.size());
  }

  // Those that are not of plain ASCII alone may be any.
  int64_t Class(std::string_view inside) const {
    std::vector<char> bytes;
    bool is_plain = !inside.starts_with('^');
    for (size_t i = 0; i < inside.size() && is_plain; ++i) {
      const char c = inside[i];
      const char next = i + 1 < inside.size() ? inside[i + 1] : '\0';
      is_plain = c != '\\' || next == 'n' || next == 'r' || next == 't';
      if (c == '-' && !bytes.empty() && next != '\0' && next != '\\') {
        for (int byte = bytes.back() + 1; byte <= next; ++byte) {
          bytes.push_back(static_cast<char>(byte));
        }
        ++i;
      } else if (c == '\\') {
        bytes.push_back(next == 'n' ? '\n' : next == 'r' ? '\r' : '\t');
        ++i;
      } else {
        bytes.push_back(c);
      }
      is_plain = is_plain && static_cast<unsigned char>(c) < 128;
    }
    if (!is_plain) return Mask(vocab_);
    int64_t tokens = 0;
    for (const char byte : std::set<char>(bytes.begin(), bytes.end())) {
      tokens += first_[static_cast<unsigned char>(byte)];
    }
    return Mask(tokens);
  }

  // Of {m, n} and {m,n} at `at`, and where it ends; at most kMostRepeated.
  static int64_t Repeated(std::string_view text, size_t at, size_t& end) {
    end = std::min(text.find('}', at), text.size() - 1);
    int64_t most = 1;
    const char* place = text.data() + at + 1;
    const char* const last = text.data() + end;
    while (place < last) {
      int64_t number = 0;
      const auto [after, error] = std::from_chars(place, last, number);
      if (error == std::errc::result_out_of_range) number = kMostRepeated;
      most = std::max(most, number);
      place = after == place ? place + 1 : after;
    }
    return std::min(most, kMostRepeated);
  }

  int64_t Body(std::string_view body) {
    int64_t sum = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      const char c = body[i];
      if (c == '"') {
        const size_t begin = i + 1;
        for (++i; i < body.size() && body[i] != '"'; ++i) {
          sum = Sum(sum, body[i] == '\\' ? Mask(vocab_) / 16 : Byte(body[i]));
          if (body[i] == '\\') ++i;
        }
        const bool is_regex = body.substr(0, begin - 1).ends_with("Regex(");
        if (is_regex) sum = Sum(sum, Regex(body.substr(begin, i - begin)));
      } else if (c == '[') {
        const size_t end = ClassEnd(body, i);
        sum = Sum(sum, Class(body.substr(i + 1, end - i - 1)));
        i = end;
      } else if (c == '{') {
        size_t begin = i;
        while (begin > 0 && (std::isalnum(static_cast<unsigned char>(body[begin - 1])) != 0 ||
                             body[begin - 1] == '_')) {
          --begin;
        }
        const auto repeated = bodies_.find(body.substr(begin, i - begin));
        const std::string least(body.substr(i, std::min(body.find(',', i), body.size()) - i));
        size_t end = i;
        const int64_t times = Repeated(body, i, end);
        i = end;
        // The engine makes the masks of equal rules once, and a higher count adds a counter alone.
        if (repeated == bodies_.end() ||
            !seen_.insert(std::string(repeated->second) + least + " " + std::to_string(times))
                 .second) {
          continue;
        }
        const bool has_repeats = repeated->second.find('{') != std::string_view::npos;
        sum = Sum(sum, Product(times, has_repeats ? kStateBytes : Body(repeated->second)));
      }
    }
    return sum;
  }

  // Here the repetitions multiply.
  int64_t Regex(std::string_view regex) const {
    std::vector<int64_t> groups = {0};
    int64_t atom = 0;
    const auto add = [&](int64_t next) {
      groups.back() = Sum(groups.back(), atom);
      atom = next;
    };
    for (size_t i = 0; i < regex.size(); ++i) {
      const char c = regex[i];
      if (c == '(') {
        add(0);
        groups.push_back(0);
      } else if (c == ')' && groups.size() > 1) {
        atom = Sum(groups.back(), atom);
        groups.pop_back();
      } else if (c == '{') {
        size_t end = i;
        atom = Product(atom, Repeated(regex, i, end));
        i = end;
      } else if (c == '[') {
        const size_t end = ClassEnd(regex, i);
        add(Class(regex.substr(i + 1, end - i - 1)));
        i = end;
      } else if (c == '\\' || c == '.') {
        add(Mask(vocab_));
        if (c == '\\') ++i;
      } else if (c != '*' && c != '+' && c != '?' && c != '|') {
        add(Byte(c));
      }
    }
    int64_t sum = atom;
    for (const int64_t group : groups) sum = Sum(sum, group);
    return sum;
  }

  const FirstBytes& first_;
  int64_t vocab_;
  std::map<std::string_view, std::string_view> bodies_;
  std::set<std::string> seen_;
};

}  // namespace

FirstBytes CountFirstBytes(std::span<const std::string_view> tokens) {
  FirstBytes counts = {};
  for (const std::string_view token : tokens) {
    if (!token.empty()) ++counts[static_cast<unsigned char>(token.front())];
  }
  return counts;
}

int64_t EstimateMaskBytes(std::string_view rules, bool has_chains, const FirstBytes& first_bytes) {
  return Estimate(first_bytes).Rules(rules, has_chains);
}

}  // namespace sluice::grammar
