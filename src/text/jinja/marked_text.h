// Texts with their origin: which bytes the template wrote itself, and which came from outside.
//
// What an operation makes of several texts is the template's own byte by byte where the operation
// keeps pieces as they are (joining, cutting, replacing), and as a whole where everything that went
// in was the template's own. Otherwise it counts as foreign.
#pragma once

#include <span>
#include <string_view>

#include "sluice/chat_text.hpp"
#include "text/jinja/value.h"

namespace sluice::text::jinja {

// Appends a text that is the template's own in these spans, or as a whole, or nowhere.
void AppendText(ChatText& to, std::string_view text, std::span<const TextSpan> own);
void AppendOwn(ChatText& to, std::string_view text);
inline void AppendForeign(ChatText& to, std::string_view text) { to.text.append(text); }
// A piece of the string `of`, which it points into.
void AppendPart(ChatText& to, const Value& of, std::string_view part);
// str() of the value. Numbers and constants are words of the language, and count as own.
void AppendValue(Run& run, const Value& value, ChatText& to);

// str() of the value as a value.
Value TextValue(Run& run, const Value& value);
// A piece of the string `of`, which it points into.
Value PartOf(const Value& of, std::string_view part);

// Whether all of it is the template's own: a string, or a number or constant.
bool IsOwn(const Value& value);
bool AreOwn(const Arguments& arguments);
// `made`; own where it is a string and `are_own`.
Value OwnIf(bool are_own, Value made);

}  // namespace sluice::text::jinja
