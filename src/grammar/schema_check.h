// What a JSON schema may say. The grammar engine ignores most of what it does not do, and a text
// that a schema does not allow would come out; here such a schema is refused, with the place.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::grammar {

// Throw Error with that parameter.
void CheckSchema(std::string_view parameter, std::string_view text, int32_t nesting);
// JSON, and every schema that is the value of a `json_schema` in it.
void CheckTagSchemas(std::string_view parameter, std::string_view text, int32_t nesting);
// Whether a structural tag has a grammar with rules of its own. The text is JSON.
bool HasGrammar(std::string_view tag);
// The engine ignores '^' and '$' that are not at an end.
void CheckRegex(std::string_view parameter, std::string_view place, std::string_view regex);

}  // namespace sluice::grammar
