// How many fields each array of a frame has: a reader takes no other number.
#pragma once

#include <cstddef>

namespace sluice::link {

inline constexpr size_t kHeadFields = 2;
inline constexpr size_t kHelloFields = 4;
inline constexpr size_t kAddFields = 13;
inline constexpr size_t kReadyFields = 2;
inline constexpr size_t kOutputFields = 3;
inline constexpr size_t kPongFields = 6;
inline constexpr size_t kTextFields = 6;
inline constexpr size_t kGrammarFields = 4;
inline constexpr size_t kThinkingFields = 3;
inline constexpr size_t kInfoFields = 14;

// A row has four kinds of fields: the first always, the others where there is something to say. No
// two sums are equal, so the size says which.
inline constexpr size_t kRowFields = 4;
inline constexpr size_t kLogprobFields = 5;
inline constexpr size_t kPromptFields = 6;
inline constexpr size_t kEndFields = 4;
inline constexpr size_t kReasonFields = 3;  // one of these: no size of a row is left for two

inline constexpr size_t kParamsFields = 0
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) +1
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) +1
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) +1
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) +1
#define SLUICE_LIST_PARAM(type, name, json, help) +1
#include "sluice/params.def"
    ;

}  // namespace sluice::link
