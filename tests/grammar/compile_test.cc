// What a compiler refuses, how long that takes, and what it keeps.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/grammar/grammar_fixture.h"
#include "tests/text/timing.h"

namespace sluice {
namespace {

using namespace test;

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::vector<std::string> ManyTokens() {
  std::vector<std::string> tokens = SmallVocabulary();
  for (int i = 0; i < 6000; ++i) tokens.push_back("t" + std::to_string(i));
  return tokens;
}

class Refusals : public testing::Test {
 protected:
  void SetUp() override {
    library_ = TestLibrary();
    if (!library_) GTEST_SKIP() << "xgrammar is not in build/python-venv";
    small_ = std::make_unique<SmallCompiler>(*library_);
  }

  // The sentence is one line, names the parameter, has the part, and takes at most a second.
  void Expect(GrammarKind kind, const std::string& text, const std::string& part) {
    std::string sentence;
    const auto refuse = [&] {
      sentence = SentenceOf([&] { small_->compiler.Compile(kind, text); });
    };
    EXPECT_TRUE(EndsWithin(1.0, refuse)) << text.substr(0, 80);
    EXPECT_TRUE(sentence.starts_with(Name(kind))) << sentence << " for " << text.substr(0, 80);
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence << "\n  has no: " << part;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    EXPECT_EQ(sentence.find("/project"), std::string::npos) << sentence;
    EXPECT_LT(sentence.size(), 600U);
  }
  void Schema(const std::string& text, const std::string& part) {
    Expect(GrammarKind::kJsonSchema, text, part);
  }

  std::optional<GrammarLibrary> library_;
  std::unique_ptr<SmallCompiler> small_;
};

TEST_F(Refusals, OfSchemasNameThePlace) {
  Schema("{not json", "JSON");
  Schema("", "JSON");
  Schema("[]", "a schema is an object or a boolean");
  Schema(R"({"type":"objekt"})", "objekt");
  Schema(R"({"type":"object","properties":{"a":{"frobnicate":3}}})",
         "\"frobnicate\" is not a supported keyword, at /properties/a/frobnicate");
  Schema(R"({"type":"array","items":{"not":{}}})", "at /items/not");
  Schema(R"({"type":"array","uniqueItems":true})", "at /uniqueItems");
  Schema(R"({"anyOf":[{"type":"null"},{"minimum":1}]})", "with a type, at /anyOf/1/minimum");
  Schema(R"({"type":"string","pattern":"a","maxLength":3})",
         "together with maxLength, at /pattern");
  Schema(R"({"type":"string","pattern":"a$|b"})", "not at byte 1 of /pattern");
  Schema(R"({"allOf":[{"type":"string"},{"type":"string"}]})", "at /allOf");
  Schema(R"({"type":"object","required":["a"]})", "\"a\" is required");
  Schema(R"({"type":"string","enum":["a",1]})", "at /enum");
  Schema(R"({"$ref":"#/$defs/a","$defs":{"a":{}},"type":"string"})", "at /type");
}

TEST_F(Refusals, OfReferences) {
  Schema(R"({"$ref":"https://example.com/s.json"})", "no other document is read, at /$ref");
  Schema(R"({"$ref":"#/$defs/none"})", "names no schema");
  Schema(R"({"$ref":"#/default","default":{"not":{}}})", "names no schema");
  Schema(R"({"$ref":"#"})", "leads to itself");
  Schema(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
         "leads to itself");
}

TEST_F(Refusals, OfContradictions) {
  Schema(R"({"type":"integer","minimum":5,"maximum":3})", "minimum greater than maximum");
  Schema(R"({"type":"string","minLength":5,"maxLength":3})", "minLength 5 is greater");
  Schema("false", "cannot accept any value");
  Schema(R"({"enum":[]})", "must not be empty");
}

TEST_F(Refusals, OfOtherGrammars) {
  Expect(GrammarKind::kRegex, "(a", "position 3: The parenthesis is not closed");
  Expect(GrammarKind::kRegex, "(?=a)b", "Lookahead");
  Expect(GrammarKind::kRegex, "a^b", "not at byte 1");
  Expect(GrammarKind::kEbnf, "root ::= foo", "line 1, column 10");
  Expect(GrammarKind::kEbnf, "r ::= \"a\"", "root rule");
  Expect(GrammarKind::kLark, "start: foo", "line 1, column 8");
  Expect(GrammarKind::kStructuralTag, R"({"type":"structural_tag"})", "format");
  Expect(GrammarKind::kStructuralTag,
         R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"not":{}}}})",
         "at /not");
  Expect(GrammarKind::kJsonObject, "{}", "no text");
  EXPECT_NE(SentenceOf([] { ChoiceGrammar({}); }).find("choice"), std::string::npos);
}

TEST_F(Refusals, OfHostileTextsAreQuick) {
  for (const auto kind : {GrammarKind::kJsonSchema, GrammarKind::kRegex, GrammarKind::kEbnf,
                          GrammarKind::kLark, GrammarKind::kStructuralTag}) {
    Expect(kind, std::string(1 << 20, 'a'), ".size() = 1048576");
    Expect(kind, std::string("a\0b", 3), "without a NUL");
    Expect(kind, "\xFF\xFE", "UTF-8");
  }
  Schema(Repeated("{\"items\":", 5000) + "{}" + Repeated("}", 5000), "64 levels");
  Expect(GrammarKind::kStructuralTag, Repeated("[", 5000), "JSON");
  Expect(GrammarKind::kRegex, Repeated("(", 5000) + "a" + Repeated(")", 5000), "Nest layer");
  Expect(GrammarKind::kEbnf, "root ::= " + Repeated("(", 5000) + "\"a\"" + Repeated(")", 5000),
         "Nest layer");
  Expect(GrammarKind::kLark, "start: " + Repeated("(", 5000) + "\"a\"" + Repeated(")", 5000),
         "nested deeper");
}

// What is no error is done in bounded time as well.
TEST_F(Refusals, NotOfWhatIsLargeAndLegal) {
  const double start = ThreadSeconds();
  const auto compile = [&](GrammarKind kind, const std::string& text) {
    EXPECT_EQ(SentenceOf([&] { small_->compiler.Compile(kind, text); }), "") << text.substr(0, 80);
  };
  compile(GrammarKind::kRegex, "((a|b|c{1,3000}){1,3000}){1,3000}");
  compile(GrammarKind::kEbnf, "root ::= root \"a\" | \"b\"");
  compile(GrammarKind::kJsonSchema,
          R"({"type":"object","properties":{"n":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}})");
  compile(GrammarKind::kJsonSchema, R"({"type":"string","minLength":3000,"maxLength":6000})");
  EXPECT_LT(ThreadSeconds() - start, 20);  // without the limits minutes
}

TEST_F(Refusals, OfGrammarsWithTooManyRules) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 3000; ++i) {
    schema += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":{\"type\":\"string\"}";
  }
  Schema(schema + "}}", "a smaller grammar: its rules take");
  SmallCompiler tiny(*library_, {.compiled_bytes = 100});
  EXPECT_NE(
      SentenceOf([&] { tiny.compiler.Compile(GrammarKind::kRegex, "a+b*c"); }).find("it takes"),
      std::string::npos);
}

// Each of these would take minutes or gigabytes with a vocabulary as models have it.
TEST_F(Refusals, OfMasksThatMayTakeTooMuch) {
  const auto tokens = ManyTokens();
  GrammarCompiler compiler(*library_, Views(tokens), std::vector<int32_t>{kStop},
                           static_cast<int32_t>(tokens.size()), {.mask_bytes = size_t{32} << 20});
  const auto expect = [&](GrammarKind kind, const std::string& text) {
    EXPECT_NE(SentenceOf([&] { compiler.Compile(kind, text); }).find("its masks may take"),
              std::string::npos)
        << text.substr(0, 80);
  };
  std::string rules = "root ::= \"a\"";
  std::string schema = R"({"type":"object","properties":{)";
  std::string lengths = schema;
  for (int i = 0; i < 100; ++i) {
    lengths += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) +
               R"(":{"type":"string","minLength":)" + std::to_string(i) + R"(,"maxLength":600})";
    const std::string letters = {static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26)};
    rules += " [^" + letters + "]{0,600}";
    schema += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) +
              R"(":{"type":"string","pattern":"^[^)" + letters + R"(]{0,100}$"})";
  }
  expect(GrammarKind::kEbnf, rules);
  expect(GrammarKind::kJsonSchema, schema + "}}");
  expect(GrammarKind::kJsonSchema, lengths + "}}");
  expect(GrammarKind::kJsonSchema,
         R"({"type":"string","pattern":"^([^b]{0,30}[^c]{0,30}){0,30}$"})");
}

// So nothing that is compiled takes more than the limit.
TEST_F(Refusals, EstimateMasksFromAbove) {
  const auto tokens = ManyTokens();
  const auto compile = [&](GrammarKind kind, const std::string& text, const GrammarLimits& limits) {
    GrammarCompiler compiler(*library_, Views(tokens), std::vector<int32_t>{kStop},
                             static_cast<int32_t>(tokens.size()), limits);
    return compiler.Compile(kind, text).bytes();
  };
  const std::pair<GrammarKind, std::string> grammars[] = {
      {GrammarKind::kEbnf, "root ::= [^a] [^b] [^c]{0,600} \"t1\" [^d]{30,60}"},
      {GrammarKind::kEbnf, "root ::= a a \"x\"\na ::= [^a]* \"t\" | [a-t]{2,9} [\\u00e9-\\u4e00]"},
      {GrammarKind::kLark, "start: (\"t\" /[a-z]+/)~2..300 /t.*/"},
      {GrammarKind::kRegex, "(t[^b]{0,40}){0,20}"},
      {GrammarKind::kJsonSchema,
       R"({"type":"string","pattern":"^[^c]{0,100}(t[0-9]{1,3}){0,9}$"})"},
      {GrammarKind::kJsonSchema, R"({"type":"string","maxLength":100})"},
      {GrammarKind::kJsonSchema, R"({"type":"string","minLength":3,"maxLength":1000})"},
      {GrammarKind::kJsonSchema,
       R"({"type":"object","additionalProperties":{"type":["string","number","null"]}})"},
      {GrammarKind::kJsonObject, ""},
  };
  for (const auto& [kind, text] : grammars) {
    const size_t bytes = compile(kind, text, {});
    EXPECT_NE(SentenceOf([&, kind = kind, &text = text] {
                compile(kind, text, {.mask_bytes = bytes});
              }).find("its masks may take"),
              std::string::npos)
        << text << " takes " << bytes;
  }
}

TEST_F(Refusals, OfACompilersArguments) {
  const auto tokens = SmallVocabulary();
  const auto make = [&](std::vector<int32_t> stops, int32_t vocab) {
    return SentenceOf([&] { GrammarCompiler(*library_, Views(tokens), stops, vocab); });
  };
  EXPECT_NE(make({}, 10).find("stop_tokens"), std::string::npos);
  EXPECT_NE(make({10}, 10).find("stop_tokens = 10"), std::string::npos);
  EXPECT_NE(make({0}, 0).find("vocab = 0"), std::string::npos);
}

TEST(GrammarCache, HoldsItsBoundAndDropsTheOldest) {
  SLUICE_NEEDS_GRAMMAR(library);
  const size_t bytes = SmallCompiler(*library).compiler.Compile(GrammarKind::kRegex, "a0+").bytes();
  const size_t most = 4 * (bytes + 100);
  SmallCompiler small(*library, {.cache_bytes = most});
  const auto text = [](int i) { return "a" + std::to_string(i) + "+"; };
  for (int i = 0; i < 10; ++i) {
    small.compiler.Compile(GrammarKind::kRegex, text(i));
    if (i > 0) small.compiler.Compile(GrammarKind::kRegex, text(0));  // used again and again
    EXPECT_LE(small.compiler.cached_bytes(), most);
  }
  EXPECT_GT(small.compiler.cached_bytes(), most / 2);
  EXPECT_TRUE(small.compiler.IsCached(GrammarKind::kRegex, text(0)));
  EXPECT_TRUE(small.compiler.IsCached(GrammarKind::kRegex, text(9)));
  EXPECT_FALSE(small.compiler.IsCached(GrammarKind::kRegex, text(1)));
  EXPECT_FALSE(small.compiler.IsCached(GrammarKind::kEbnf, text(9)));
}

TEST(GrammarCache, GivesTheSameGrammar) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  small.compiler.Compile(GrammarKind::kJsonSchema, schema);
  EXPECT_TRUE(small.compiler.IsCached(GrammarKind::kJsonSchema, schema));
  EXPECT_FALSE(small.compiler.IsCached(GrammarKind::kJsonSchema, schema, {.strict = false}));
  const size_t bytes = small.compiler.cached_bytes();
  GrammarMatcher matcher(small.compiler.Compile(GrammarKind::kJsonSchema, schema));
  EXPECT_EQ(small.compiler.cached_bytes(), bytes);
  EXPECT_TRUE(matcher.Accept('{' - ' ' + 1));
}

TEST(GrammarCache, BoundsTheRulesThatAreKept) {
  SLUICE_NEEDS_GRAMMAR(library);
  const size_t most = size_t{64} << 10;
  SmallCompiler small(*library, {.cache_bytes = most});
  SmallCompiler none(*library, {.cache_bytes = 0});
  size_t highest = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text =
        "a" + std::to_string(i) + "[^b" + std::string(1, static_cast<char>('c' + i % 20)) + "]+";
    small.compiler.Compile(GrammarKind::kRegex, text);
    highest = std::max(highest, small.compiler.kept_rule_bytes());
    none.compiler.Compile(GrammarKind::kRegex, text);
    ASSERT_EQ(none.compiler.kept_rule_bytes(), 0U);
  }
  EXPECT_LE(highest, most);
  EXPECT_GT(highest, most / 2);
}

// The masks of a string's rules are most of the work. They are those of another schema, too. In the
// time of the thread, which others on the machine do not have.
TEST(GrammarCache, KeepsTheMasksOfRules) {
  SLUICE_NEEDS_GRAMMAR(library);
  const std::vector<std::string> tokens = ManyTokens();
  const auto cpu_ns = [](GrammarCompiler& compiler, const std::string& name) {
    const auto now = [] {
      timespec time = {};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
    };
    const int64_t start = now();
    compiler.Compile(GrammarKind::kJsonSchema, R"({"type":"object","properties":{")" + name +
                                                   R"(":{"type":"string","maxLength":100}}})");
    return now() - start;
  };
  int64_t first = INT64_MAX;
  int64_t second = INT64_MAX;
  for (int i = 0; i < 3; ++i) {
    GrammarCompiler compiler(*library, Views(tokens), std::vector<int32_t>{kStop},
                             static_cast<int32_t>(tokens.size()));
    first = std::min(first, cpu_ns(compiler, "a"));
    second = std::min(second, cpu_ns(compiler, "b"));
  }
  EXPECT_LT(second, first / 3);
}

int Threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    count += task.exists() ? 1 : 0;
  }
  return count;
}

TEST(GrammarThreads, TwoCompileAtOnceAndNoOthersAppear) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const int before = Threads();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        // Half of them are the other thread's as well.
        const std::string text = "x" + std::to_string(i % 2 == 0 ? i : i * 2 + t) + "(a|b){1,9}";
        GrammarMatcher matcher(small.compiler.Compile(GrammarKind::kRegex, text));
        if (!matcher.Accept('x' - ' ' + 1) || matcher.Accept('y' - ' ' + 1)) ++wrong;
        if (Threads() > before + 2) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Threads(), before);
}

TEST(GrammarLibraryTest, SaysWhatIsMissing) {
  const auto folder = std::filesystem::temp_directory_path() / "sluice_no_grammar";
  std::filesystem::create_directories(folder);
  const std::string sentence = SentenceOf([&] { GrammarLibrary::Load(folder.string()); });
  EXPECT_TRUE(sentence.starts_with("grammar_library = \"" + folder.string() + "\"")) << sentence;
  for (const char* part : {"libtvm_ffi.so", "libxgrammar_bindings.so", "pip install --no-deps"}) {
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  }
  // A file that is no library is said to be none, unless the program itself is refused first: a
  // sanitizer has a __cxa_throw of its own.
  for (const char* name : {"libtvm_ffi.so", "libxgrammar_bindings.so"}) {
    FILE* file = std::fopen((folder / name).c_str(), "w");
    std::fputs("text", file);
    std::fclose(file);
  }
  const std::string refused = SentenceOf([&] { GrammarLibrary::Load(folder.string()); });
  const char* const reason =
      refused.find("C++ run-time library") == std::string::npos ? "too short" : "this program";
  EXPECT_NE(refused.find(reason), std::string::npos) << refused;
  std::filesystem::remove_all(folder);
}

TEST(GrammarLibraryTest, FindsPackagesInAnEnvironment) {
  SLUICE_NEEDS_GRAMMAR(library);
  EXPECT_TRUE(library->path().ends_with("site-packages/xgrammar/libxgrammar_bindings.so"));
}

TEST(GrammarLibraryTest, LeavesSignalsAlone) {
  SLUICE_NEEDS_GRAMMAR(library);
  struct sigaction action = {};
  sigaction(SIGSEGV, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace sluice
