// Keyword arguments. Functions take dozens of them, most never given: they come as a dictionary,
// and its few entries find their place in a table. A keyword that a function does not have is an
// Error that lists those it has.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "sluice/params.hpp"

namespace sluice::python {

namespace nb = nanobind;

// Those in addition to the parameters of params.def.
// clang-format off: one word a line is no list
#define SLUICE_PYTHON_KEYWORDS(KEYWORD)                                                        \
  KEYWORD(position)                                                                            \
  KEYWORD(choice) KEYWORD(stream) KEYWORD(masses) KEYWORD(cuts) KEYWORD(order) KEYWORD(out)    \
      KEYWORD(backend) KEYWORD(algorithm) KEYWORD(threads) KEYWORD(max_temperature)            \
          KEYWORD(lengths) KEYWORD(hint) KEYWORD(hint_shift) KEYWORD(thresholds)               \
              KEYWORD(next_n) KEYWORD(sorted)                                                  \
              KEYWORD(draft_probabilities) KEYWORD(draft_logits) KEYWORD(draft_params)         \
                  KEYWORD(draft_cuts) KEYWORD(bias) KEYWORD(query_start_loc) KEYWORD(vocab)    \
                      KEYWORD(max_requests) KEYWORD(prompt) KEYWORD(max_new_tokens)            \
                          KEYWORD(processors) KEYWORD(bitmask) KEYWORD(forced) KEYWORD(drafts) \
                              KEYWORD(kept) KEYWORD(adjusted) KEYWORD(tokens)                  \
                                  KEYWORD(prompt_length) KEYWORD(with_cuts) KEYWORD(values)    \
                                      KEYWORD(max_tokens) KEYWORD(stop) KEYWORD(include_stop)  \
                                          KEYWORD(ignore_eos) KEYWORD(skip_special_tokens)     \
                                              KEYWORD(mode) KEYWORD(stream_interval)       \
                                                  KEYWORD(prompt_logprobs) KEYWORD(parents)     \
  KEYWORD(json_schema) KEYWORD(json_object) KEYWORD(regex) KEYWORD(grammar) KEYWORD(choices) \
  KEYWORD(thinking_budget) KEYWORD(reasoning_format)
// clang-format on

enum class Keyword : uint8_t {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) name,
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) name,
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) name,
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) name,
#define SLUICE_LIST_PARAM(type, name, json, help) name,
#include "sluice/params.def"
#define SLUICE_PYTHON_KEYWORD(name) name,
  SLUICE_PYTHON_KEYWORDS(SLUICE_PYTHON_KEYWORD)
#undef SLUICE_PYTHON_KEYWORD
      kCount
};
inline constexpr size_t kKeywordCount = static_cast<size_t>(Keyword::kCount);

// A set of keywords.
class Keywords {
 public:
  constexpr Keywords() = default;
  constexpr Keywords(std::initializer_list<Keyword> keywords) {
    for (const Keyword keyword : keywords) Add(keyword);
  }
  constexpr bool Has(Keyword keyword) const { return (words_[Word(keyword)] & Bit(keyword)) != 0; }
  constexpr bool HasAny(Keywords other) const {
    return (words_[0] & other.words_[0]) != 0 || (words_[1] & other.words_[1]) != 0;
  }
  constexpr void Add(Keyword keyword) { words_[Word(keyword)] |= Bit(keyword); }
  constexpr Keywords operator|(Keywords other) const {
    other.words_[0] |= words_[0];
    other.words_[1] |= words_[1];
    return other;
  }

 private:
  static_assert(kKeywordCount <= 128);
  static constexpr size_t Word(Keyword keyword) { return static_cast<size_t>(keyword) / 64; }
  static constexpr uint64_t Bit(Keyword keyword) {
    return uint64_t{1} << (static_cast<unsigned>(keyword) % 64);
  }
  std::array<uint64_t, 2> words_ = {};
};

// The fields of SamplingParams that need a request's history.
inline constexpr Keywords kStateKeywords = {
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Keyword::name,
#define SLUICE_LIST_PARAM(type, name, json, help) Keyword::name,
#include "sluice/params.def"
};

// Every field of SamplingParams.
inline constexpr Keywords kParamKeywords = {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Keyword::name,
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Keyword::name,
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) Keyword::name,
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) Keyword::name,
#define SLUICE_LIST_PARAM(type, name, json, help) Keyword::name,
#include "sluice/params.def"
};

// Makes the table of names; once, when the module is imported.
void InternKeywords();

std::string_view NameOf(Keyword keyword);

// The keyword arguments of one call. Borrowed: the caller's dictionary outlives them.
class Arguments {
 public:
  Arguments(Keywords allowed, nb::kwargs kwargs);

  // The value of a keyword; none when it was not given or given as None.
  nb::handle operator[](Keyword keyword) const { return values_[static_cast<size_t>(keyword)]; }
  bool Has(Keyword keyword) const { return given_.Has(keyword); }
  bool HasAny(Keywords keywords) const { return given_.HasAny(keywords); }
  // False when it was not given.
  bool Flag(Keyword keyword) const;

 private:
  std::array<PyObject*, kKeywordCount> values_ = {};
  Keywords given_;
};

}  // namespace sluice::python
