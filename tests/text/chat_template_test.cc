// Templates render as jinja2 does, and can take no more than they are given. The texts were made by
// jinja2 itself: tests/fixtures/make_chats.py.
#include "sluice/chat_template.hpp"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include "sluice/error.hpp"
#include "tests/support/slowdown.h"
#include "tests/text/timing.h"

namespace sluice::test {
namespace {

constexpr int64_t kSeconds = 1'700'000'000;

std::string ReadFixture(const std::string& name) {
  std::ifstream file(std::string(SLUICE_FIXTURES) + "/chats/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Rendered(std::string_view source, std::string_view variables = "{}",
                     const ChatTemplateLimits& limits = {}) {
  return ChatTemplate(source, limits).Render(variables, kSeconds);
}

// What is hostile gets as far as its limits let it.
constexpr ChatTemplateLimits kShorter = {.max_steps = ChatTemplateLimits{}.max_steps / kSlowdown};

std::string ErrorOf(std::string_view source, std::string_view variables = "{}",
                    const ChatTemplateLimits& limits = kShorter) {
  try {
    Rendered(source, variables, limits);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

class ChatFamily : public testing::TestWithParam<const char*> {};

TEST_P(ChatFamily, EqualsJinja2) {
  const ChatTemplate chat(ReadFixture(std::string(GetParam()) + ".jinja"));
  simdjson::dom::parser parser;
  const std::string file = ReadFixture("cases.json");
  const simdjson::dom::element cases = parser.parse(file)[GetParam()];
  for (const auto chat_case : cases.get_array()) {
    const std::string variables = simdjson::minify(simdjson::dom::element(chat_case.at(0)));
    const simdjson::dom::element text = chat_case.at(1);
    if (text.is_null()) {
      EXPECT_THROW(chat.Render(variables, kSeconds), Error) << variables;
    } else {
      EXPECT_EQ(chat.Render(variables, kSeconds), std::string_view(text)) << variables;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ChatFamily,
                         testing::Values("chatml", "llama3", "qwen3", "mistral", "gemma",
                                         "deepseek", "language"),
                         [](const auto& family) { return std::string(family.param); });

std::string Hash(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  std::ostringstream hex;
  hex << std::hex << std::setw(16) << std::setfill('0') << hash;
  return hex.str();
}

// scripts/check_chat_template.py shows where a text differs; tests/fixtures/make_families.py made
// the hashes.
TEST(ChatTemplate, FamiliesEqualJinja2) {
  simdjson::dom::parser parser;
  const std::string file = ReadFixture("families/expected.json");
  const simdjson::dom::element root = parser.parse(file);
  std::vector<std::string> conversations;
  for (const auto conversation : root["conversations"].get_array()) {
    conversations.push_back(simdjson::minify(conversation));
  }
  size_t texts = 0;
  for (const auto family : root["templates"].get_object()) {
    const std::string name = "families/" + std::string(family.key) + ".jinja";
    const ChatTemplate chat(ReadFixture(name));
    size_t i = 0;
    for (const auto hash : family.value.get_array()) {
      const std::string& variables = conversations[i++];
      if (hash.is_null()) {
        EXPECT_THROW(chat.Render(variables, kSeconds), Error) << name << " " << variables;
        continue;
      }
      ++texts;
      try {
        const std::string text = chat.Render(variables, kSeconds);
        EXPECT_EQ(Hash(text), std::string_view(hash)) << name << " " << variables << "\n" << text;
      } catch (const Error& error) {
        ADD_FAILURE() << name << " " << variables << "\n" << error.what();
      }
    }
    EXPECT_EQ(i, conversations.size()) << name;
  }
  EXPECT_GE(conversations.size(), 20u);
  EXPECT_GE(texts, 40 * 20u);
}

class Expressions : public testing::TestWithParam<const char*> {};

TEST_P(Expressions, EqualJinja2) {
  simdjson::dom::parser parser;
  const std::string json = ReadFixture("../" + std::string(GetParam()) + ".json");
  const simdjson::dom::element root = parser.parse(json);
  const std::string_view variables = root.at(0);
  for (const auto row : root.at(1).get_array()) {
    const std::string_view source = row.at(0);
    const simdjson::dom::element expected = row.at(1);
    if (expected.is_null()) {
      EXPECT_NE(ErrorOf(source, variables), "") << source;
      continue;
    }
    try {
      EXPECT_EQ(Rendered(source, variables), std::string_view(expected)) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << " " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Expressions, testing::Values("expressions", "language"),
                         [](const auto& file) { return std::string(file.param); });

TEST(ChatTemplate, TellsTheTimeThatIsGivenOrTheClocks) {
  const ChatTemplate chat("{{ strftime_now('%Y') }}");
  EXPECT_EQ(chat.Render("{}", 0), "1970");
  EXPECT_GE(chat.Render("{}"), "2024");
  EXPECT_THROW(chat.Render("{}", INT64_MAX), Error);
  EXPECT_NE(ErrorOf(R"({{ strftime_now('a\0b') }})"), "");
}

TEST(ChatTemplate, SaysWhatATemplateRaises) {
  EXPECT_EQ(ErrorOf("a\n{{ raise_exception('roles must alternate') }}"),
            "template, line 2 = roles must alternate is not allowed: a conversation that the "
            "template takes");
}

TEST(ChatTemplate, NamesTheLineOfAMistake) {
  EXPECT_EQ(ErrorOf("a\n\n{% if x %}"), "template, line 3 = the end is not allowed: {% endif %}");
  EXPECT_EQ(ErrorOf("{% import 'x' %}"),
            "template, line 1 = {% import %} is not allowed: for, if, set, macro, call, with, "
            "filter, generation, raw, break or continue");
  for (const std::string_view source : {"{{",
                                        "{{ 'a }}",
                                        "{{ a",
                                        "{#",
                                        "{% raw %}",
                                        "{{ a b }}",
                                        "{{ ) }}",
                                        "{{ 1 + }}",
                                        "{% endfor %}",
                                        "{% for %}",
                                        "{% break %}",
                                        "{{ x.y.z }}",
                                        "{{ f() }}",
                                        "{{ 1 + 'a' }}",
                                        "{{ 1|nofilter }}",
                                        "{{ 1 is notest }}",
                                        "{% set x.y = 1 %}",
                                        "{{ 1 // 0 }}",
                                        "{{ 9223372036854775807 + 1 }}",
                                        "{{ 99999999999999999999 }}",
                                        "{{ [1][::0] }}",
                                        "{{ {}.a.b }}",
                                        "{{ 1 < 'a' }}",
                                        "{{ 'a' * 'b' }}",
                                        "{{ \xFF }}",
                                        "{{ none|length }}"}) {
    EXPECT_NE(ErrorOf(source), "") << source;
  }
  EXPECT_NE(ErrorOf("x", "[]"), "");
  EXPECT_NE(ErrorOf("x", "{"), "");
}

// As jinja2 has it: the end of a line goes after endraw only, and raw ends in no plus.
TEST(ChatTemplate, RawKeepsTheEndOfItsFirstLine) {
  EXPECT_EQ(Rendered("{% raw %}\n{% endraw %} b"), "\n b");
  EXPECT_EQ(Rendered("{% raw -%}\n{% endraw %} b"), " b");
  EXPECT_EQ(Rendered("a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb"), "a\n\n  {{ x }}\nb");
  EXPECT_EQ(Rendered("{% raw %}  {% endraw +%}\nb"), "  \nb");
  EXPECT_NE(ErrorOf("{% raw +%}\n{% endraw %} b"), "");
}

TEST(ChatTemplate, SelectingFromNoneGivesNothing) {
  for (const char* filter :
       {"select", "reject", "selectattr('a')", "rejectattr('a')",
        "selectattr('type', 'equalto', 'x')", "map('upper')", "map(attribute='a')"}) {
    for (const char* nothing : {"none", "0", "false", "''", "undefined"}) {
      const std::string source =
          std::string("{{ ").append(nothing).append("|").append(filter).append("|list }}");
      EXPECT_EQ(Rendered(source), "[]") << source;
    }
    EXPECT_NE(ErrorOf(std::string("{{ 1|").append(filter).append("|list }}")), "") << filter;
  }
  for (const char* refused : {"{% for x in none %}{% endfor %}", "{{ none|unique|list }}",
                              "{{ none|sum }}", "{{ none|join }}", "{{ none|list }}"}) {
    EXPECT_NE(ErrorOf(refused), "") << refused;
  }
}

TEST(ChatTemplate, CallsTakeListsAndDictsOfArguments) {
  const std::string macro = "{% macro f(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}";
  EXPECT_EQ(Rendered(macro + "{{ f(*[1, 2]) }}"), "123");
  EXPECT_EQ(Rendered(macro + "{{ f(1, *[2, 4]) }}"), "124");
  EXPECT_EQ(Rendered(macro + "{{ f(**{'a': 1, 'b': 2}) }}"), "123");
  EXPECT_EQ(Rendered(macro + "{{ f(c=5, *[1], **{'b': 2}) }}"), "125");
  EXPECT_EQ(Rendered(macro + "{{ f(*undefined, **{}) }}"), "3");
  EXPECT_EQ(Rendered("{{ ' a '|trim(*[' a']) }}{{ 4 is divisibleby(*[2]) }}"), "True");
  for (const char* refused :
       {"{{ f(*[1, 2, 3, 4]) }}", "{{ f(**{'d': 1}) }}", "{{ f(*none) }}", "{{ f(**none) }}",
        "{{ f(**[1]) }}", "{{ f(**{1: 2}) }}", "{{ f(a=1, **{'a': 2}) }}", "{{ f(*[1], 2) }}",
        "{{ f(*[1], *[2]) }}", "{{ f(**{}, a=1) }}", "{{ f(1, a=2) }}", "{{ f(a=1, a=2) }}",
        "{{ f(*range(300)) }}"}) {
    EXPECT_NE(ErrorOf(macro + refused), "") << refused;
  }
}

TEST(ChatTemplate, CallGivesAMacroItsCaller) {
  const std::string macro = "{% macro f(a='') %}<{{ a }}{{ caller() }}>{% endmacro %}";
  EXPECT_EQ(Rendered(macro + "{% call f() %}x{% endcall %}"), "<x>");
  EXPECT_EQ(
      Rendered(macro + "{% for i in [1, 2] %}{% call f(i) %}{{ i }}{% endcall %}{% endfor %}"),
      "<11><22>");
  EXPECT_EQ(Rendered(macro + "{% call f(a=1) %}{% call f(2) %}x{% endcall %}{% endcall %}"),
            "<1<2x>>");
  EXPECT_EQ(
      Rendered("{% macro f(l) %}{% for i in l %}{{ caller(i, k=i) }};{% endfor %}{% endmacro %}"
               "{% call(i, j=7, k=0) f([1, 2]) %}{{ i }}{{ j }}{{ k }}{% endcall %}"),
      "171;272;");
  EXPECT_EQ(Rendered("{% macro f() %}{{ caller is defined }}{% endmacro %}"
                     "{{ f() }}{% call f() %}{% endcall %}"),
            "FalseTrue");
  for (const char* refused :
       {"{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "{% call 1 %}x{% endcall %}",
        "{% call range(3) %}x{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ caller(1) }}{% endmacro %}{% call f() %}x{% endcall %}",
        "{% macro f() %}{{ caller() }}{% endmacro %}"
        "{% for i in [1] %}{% call f() %}{% break %}{% endcall %}{% endfor %}",
        "{% set ns = namespace() %}{% macro f() %}{{ caller() }}{% endmacro %}"
        "{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}"}) {
    EXPECT_NE(ErrorOf(refused), "") << refused;
  }
  // A caller that a namespace carries out of its macro.
  EXPECT_EQ(
      Rendered("{% set ns = namespace() %}{% macro f() %}{% set ns.c = caller %}{% endmacro %}"
               "{% call f() %}x{% endcall %}{{ ns.c() }}"),
      "x");
}

// A template that loops, recurses or emits a gigabyte.
TEST(ChatTemplate, IsBounded) {
  EXPECT_NE(ErrorOf("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "");
  EXPECT_NE(
      ErrorOf("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
      "");
  EXPECT_NE(ErrorOf("{{ range(1000000) }}"), "");
  EXPECT_NE(ErrorOf("{{ 'a' * 1000000000000 }}"), "");
  EXPECT_NE(ErrorOf("{{ [1] * 1000000000000 }}"), "");
  EXPECT_NE(ErrorOf("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}"
                    "{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
            "");
  EXPECT_NE(ErrorOf("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}"
                    "{% for i in range(64) %}{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}"),
            "");
  EXPECT_NE(ErrorOf("{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}"), "");
  EXPECT_NE(ErrorOf(std::string(100000, '(').insert(0, "{{ ")), "");
  EXPECT_NE(ErrorOf("{{ " + std::string(100000, '-') + "1 }}"), "");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{% if 1 %}";
  EXPECT_NE(ErrorOf(deep), "");
  for (const char* huge : {"''|indent(10**9)",
                           "'x'|center(10**9)",
                           "'x'.center(10**18)",
                           "'x'.ljust(10**9, 'é')",
                           "'x'.rjust(10**18)",
                           "'x'.zfill(10**18)",
                           "'\t'.expandtabs(10**18)",
                           "'%1000000000d' % 1",
                           "'%9223372036854775807s' % 1",
                           "'%-*d' % (10**18, 1)",
                           "'%.1000000000d' % 1",
                           "'%.1000000000f' % 1.5",
                           "'%.9223372036854775807g' % 1.5",
                           "'{:1000000000}'.format(1)",
                           "'{:9223372036854775807}'.format('a')",
                           "'{:.1000000000}'.format(1.5)",
                           "'{:01000000000,}'.format(1)",
                           "'{:=9223372036854775807,}'.format(1)",
                           "'{:{w}}'.format('a', w=10**18)",
                           "[1]|batch(10**9, 0)|list",
                           "[1]|batch(10**18, 0)|list",
                           "[1]|slice(10**9)|list",
                           "'a'|wordwrap(1, wrapstring='b' * 10**7 * 9)",
                           "'a b' * 10**6|wordwrap(1)",
                           "1|tojson(indent=10**18)",
                           "[[1]]|tojson(indent=10**7)",
                           "('x ' * 10**6)|pprint"}) {
    EXPECT_NE(ErrorOf(std::string("{{ ").append(huge).append(" }}")), "") << huge;
  }
  EXPECT_NE(ErrorOf("{{ strftime_now('%c' * 600) }}"), "");
  EXPECT_NE(ErrorOf("abc", "{}", {.max_output_bytes = 2}), "");
  EXPECT_NE(ErrorOf("abc", "{}", {.max_template_bytes = 2}), "");
  EXPECT_NE(ErrorOf("{{ 1 }}", "{}", {.max_steps = 1}), "");
  EXPECT_EQ(Rendered("abc", "{}", {.max_output_bytes = 3}), "abc");
}

// What is nested a hundred thousand times is freed by as many calls within each other.
TEST(ChatTemplate, MembersToSelectByMayBeNamed) {
  EXPECT_EQ(Rendered("{{ []|selectattr(attribute='x')|list }}"), "[]");
  EXPECT_EQ(Rendered("{{ [{'x': 1}, {'x': 0}]|selectattr(attribute='x')|list }}"), "[{'x': 1}]");
  EXPECT_EQ(Rendered("{{ [{'x': 1}, {'x': 0}]|rejectattr(attribute='x')|list }}"), "[{'x': 0}]");
}

TEST(ChatTemplate, ChainsAreOnlySoLong) {
  const auto chain = [](std::string_view link, int count) {
    std::string source = "{{ a";
    for (int i = 0; i < count; ++i) source.append(link);
    return source + " }}";
  };
  const ChatTemplateLimits limits = {.max_template_bytes = 1 << 23};
  for (const char* link : {".b", "[0]", "[:]", "()", "|trim", "+a", "~a", "*a", "**a", " or a",
                           " and a", " if a", " is string", " is not string"}) {
    EXPECT_NE(ErrorOf(chain(link, 400000 / kSlowdown), "{}", limits).find("deeper nesting"),
              std::string::npos)
        << link;
  }
  // Chains in each other.
  std::string part = ")";
  for (int i = 0; i < 300; ++i) part.append(".b");
  std::string chains = std::string("{{ ").append(40, '(').append("a");
  for (int i = 0; i < 40; ++i) chains.append(part);
  EXPECT_NE(ErrorOf(chains + " }}").find("deeper nesting"), std::string::npos);
  EXPECT_EQ(Rendered(chain("+a", 300), R"({"a":1})"), "301");
}

TEST(ChatTemplate, WalksOfSharedValuesAreBounded) {
  const std::string both =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  EXPECT_EQ(Rendered(both + "{{ ns.x == ns.x }}"), "True");
  for (const char* use :
       {"{{ ns.x == ns.y }}", "{{ ns.x < ns.y }}", "{{ ns.x in [ns.y] }}", "{{ {ns.x: 1}[ns.y] }}",
        "{{ [ns.x, ns.y]|unique }}", "{{ [ns.x].count(ns.y) }}", "{{ ns.x }}", "{{ ns }}",
        "{{ ns.x|string }}", "{{ ns.x|tojson }}", "{{ ns.x|tojson(indent=2) }}", "{{ ns.x ~ 1 }}",
        "{{ {'a': ns.x} == {'a': ns.y} }}", "{{ {ns.x: 1}|tojson }}"}) {
    EXPECT_NE(ErrorOf(both + use), "") << use;
  }
  // A step for each element that is compared.
  const std::string deep =
      "{% set ns = namespace(x=[1], y=[2]) %}{% for i in range(100) %}"
      "{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}";
  EXPECT_EQ(Rendered(deep + "{{ ns.x < ns.y }}{{ ns.y < ns.x }}"), "TrueFalse");

  std::string nested = "{% set a0 = namespace(x=1) %}";
  std::string inner = "a0";
  for (int i = 1; i <= 60; ++i) {
    const std::string name = std::string("a").append(std::to_string(i));
    nested.append("{% set ").append(name).append(" = namespace(x=").append(inner);
    nested.append(", y=").append(inner).append(") %}");
    inner = name;
  }
  EXPECT_NE(ErrorOf(nested + "{{ a60 }}"), "");
  EXPECT_NE(ErrorOf(nested + "{{ a60|tojson }}"), "");
  EXPECT_EQ(Rendered(nested + "{{ a60 == a60 }}{{ a60 == a59 }}"), "TrueFalse");

  const std::string text = "{% set t = 'a' * 1000000 %}";
  EXPECT_NE(ErrorOf(text + "{{ [t] * 1000 }}").find("a text of"), std::string::npos);
  EXPECT_NE(ErrorOf(text + "{{ ([t] * 1000)|join }}").find("a text of"), std::string::npos);
}

// A few hundred bytes that would take minutes or gigabytes, were steps charged for less than they
// cost. `t` is a text of 4 MB, `l` a list of it 200 times, `d` a dict, `many` has 3,000 names.
// With a sanitizer texts are shorter and steps fewer: it took 30 s, the longest of its tests.
TEST(ChatTemplate, HostileTemplatesEndSoon) {
  std::string many;
  for (int i = 0; i < 3000; ++i) {
    many.append("{% set n").append(std::to_string(i)).append(" = 1 %}");
  }
  std::string dict = "{";
  for (int i = 0; i < 100'000; ++i) dict.append(std::to_string(i)).append(":1,");
  std::string names = "{";
  for (int i = 0; i < 200'000; ++i) {
    names.append(i > 0 ? "," : "").append("\"k").append(std::to_string(i)).append("\":1");
  }
  const std::string variables = R"({"t":")" + std::string(4'000'000 / kSlowdown, 'a') +
                                R"(","s":")" + std::string(200'000 / kSlowdown, 'a') + R"("})";
  const ChatTemplateLimits limits = {.max_steps = 2'000'000 / kSlowdown / kSlowdown};
  const std::string loop = "{% set l = [t] * 200 %}{% for i in range(99999) %}";
  for (const std::string& body :
       std::vector<std::string>{"{% set x = (t ~ 'b') in t %}",
                                "{% set x = s + 'b' in t %}",
                                "{% set x = t.find(s + 'b') %}",
                                "{% set x = t.replace(s + 'b', '') %}",
                                "{% set x = t|replace(s + 'b', '') %}",
                                "{% set x = t.count(s + 'b') %}",
                                "{% set x = t.split(s + 'b') %}",
                                "{% set x = t.rsplit('b' + s) %}",
                                "{% set x = t|length %}",
                                "{% set x = t.strip('b') %}",
                                "{% set x = t.strip('b' * 1000000 + 'a') %}",
                                "{% set x = t|trim('b' * 1000000 + 'a') %}",
                                "{% for c in t %}{% break %}{% endfor %}",
                                "{% set x = t|list %}",
                                "{% set x = t|first %}",
                                "{% set x = t[5] %}",
                                "{% set x = t[-5:] %}",
                                "{% set x = t[::-1] %}",
                                "{% set x = l|sort %}",
                                "{% set x = l|min %}",
                                "{% set x = l|unique|list %}",
                                "{% set x = l|join %}",
                                "{% set x = t.join(l) %}",
                                "{% set x = {}[t] %}",
                                "{% set x = {}.get(t) %}",
                                "{% set x = {t ~ 'a': 1}[t ~ 'b'] %}",
                                "{% set x = t is upper %}",
                                "{% set x = t is lower %}",
                                "{% set x = t.splitlines() %}",
                                "{% set x = t.startswith(t) %}",
                                "{% set x = t.startswith((t, t, t)) %}",
                                "{% set x = t|title %}",
                                "{% set x = t|reverse %}",
                                "{% set x = l|tojson %}",
                                "{% set x = l|string %}",
                                "{% set x = t|upper %}",
                                "{% set x = '%s%s%s%s%s' % (t, t, t, t, t) %}",
                                "{% set x = '%s'|format(t) %}",
                                "{% set x = t|center %}",
                                "{% set x = t|escape %}",
                                "{% set x = t|int %}{% set x = t|float %}",
                                "{% set x = t.isdigit() %}",
                                "{% set x = l|map('upper')|list %}",
                                "{% set x = l|select('upper')|list %}",
                                "{% set x = t < t ~ 'a' %}",
                                "{% set x = l == [t ~ 'a'] * 200 %}",
                                "{% set x = l|map(attribute=t)|list %}",
                                "{% set x = t|indent %}",
                                "{% set x = strftime_now('%c' * 100) %}",
                                "{% macro m() %}{{ t }}{% endmacro %}{% set x = m() %}",
                                "{% set x %}{{ t }}{% endset %}",
                                "{% set x = t|default(t)|trim %}",
                                "{% set x = t.undefined %}",
                                "{% set x = t.rfind(s + 'b') %}",
                                "{% set x = t.rpartition('b' + s) %}",
                                "{% set x = t.swapcase() %}",
                                "{% set x = t.casefold() %}",
                                "{% set x = t.isalpha() %}",
                                "{% set x = t.istitle() %}",
                                "{% set x = t.isidentifier() %}",
                                "{% set x = t.expandtabs() %}",
                                "{% set x = ('\t' * 1000).expandtabs(9999) %}",
                                "{% set x = t.removeprefix(t) %}",
                                "{% set x = t|wordcount %}",
                                "{% set x = t|wordwrap(1) %}",
                                "{% set x = ('-' * 100000)|wordwrap(3) %}",
                                "{% set x = t|truncate(9) %}",
                                "{% set x = t|striptags %}",
                                "{% set x = ('<' * 100000)|striptags %}",
                                "{% set x = ('&' * 100000)|striptags %}",
                                "{% set x = ('&#' ~ '1' * 100000)|striptags %}",
                                "{% set x = t|urlencode %}",
                                "{% set x = l|urlencode %}",
                                "{% set x = t|pprint %}",
                                "{% set x = l|pprint %}",
                                "{% set x = {'a': t}|xmlattr %}",
                                "{% set x = t|forceescape %}",
                                "{% set x = (t|safe) + t %}",
                                "{% set x = (t|safe).join(l) %}",
                                "{% set x = t|batch(2) %}",
                                "{% set x = t|slice(2) %}",
                                "{% set x = l|groupby(none) %}",
                                "{% set x = '{}{}'.format(t, t) %}",
                                "{% set x = '{!r}'.format(t) %}",
                                "{% set x = '{:.3}'.format(t) %}",
                                "{% set x = ('{0}' * 10000).format(1) %}",
                                "{% set x = '%*d' % (99999, 1) %}",
                                "{% set x = '{:99999}'.format(1) %}",
                                "{% set x = '%.99999f' % 1.5 %}",
                                "{% set x = '{:.99999}'.format(1.5) %}",
                                "{% set x = '{:099999,}'.format(1) %}",
                                "{% set x = 1.5|round(99999) %}",
                                "{% set x = (t, t) in {} %}"}) {
    const std::string source = loop + body + "{% endfor %}";
    EXPECT_TRUE(EndsWithin(10.0, [&] { ErrorOf(source, variables, limits); })) << body;
  }
  for (const std::string& source :
       std::vector<std::string>{many + "{% for i in range(99999) %}{% for j in range(9999) %}{{ "
                                       "undefined }}{% endfor %}{% endfor %}",
                                "{{ " + dict + "} }}", "{% set d = " + dict + "} %}"}) {
    EXPECT_TRUE(EndsWithin(10.0, [&] { EXPECT_NE(ErrorOf(source, variables), ""); }));
  }
  // Members of variables are data, not steps.
  EXPECT_TRUE(EndsWithin(10.0, [&] { EXPECT_EQ(Rendered("{{ k199999 }}", names + "}"), "1"); }));
  EXPECT_TRUE(EndsWithin(10.0, [&] {
    EXPECT_NE(ErrorOf("{% for i in range(99999) %}{{ x }}{% endfor %}", names + "}"), "");
  }));
}

// Each `map` calls the next for the characters of a text, which are texts of one character.
TEST(ChatTemplate, FiltersCallEachOtherOnlySoDeep) {
  std::string source = "{{ 'a'|map(";
  for (int i = 0; i < 150; ++i) source.append("'map',");
  EXPECT_EQ(Rendered(source + "'upper')|list|length }}"), "1");
  for (int i = 0; i < 50'000; ++i) source.append("'map',");
  EXPECT_NE(ErrorOf(source + "'upper')|list }}"), "");
}

TEST(ChatTemplate, ValuesAreNestedOnlySoDeep) {
  for (const std::string_view deeper :
       {"[ns.x]", "{'a': ns.x}", "(ns.x,)", "[ns.x].index", "{'a': ns.x}.get", "namespace(x=ns.x)",
        "ns", "[ns]", "[[ns].index]"}) {
    const std::string source =
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = " +
        std::string(deeper) + " %}{% endfor %}";
    EXPECT_NE(ErrorOf(source), "") << deeper;
  }
  EXPECT_EQ(Rendered("{% set ns = namespace(x=1) %}{% set ns.x = [ns.x] %}{{ ns.x }}"), "[1]");
}

}  // namespace
}  // namespace sluice::test
