// Fields of objects inside of a request, by their paths.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/request_value.h"
#include "support/number.h"

namespace sluice::server {

inline std::string FieldPath(std::string_view object, std::string_view field) {
  return std::string(object).append(".").append(field);
}

// use(field, value): of the first field of each of these names, if it is not null. Others are
// listed as those of `kind`: "messages[].content[]".
template <typename Use>
void ReadFields(const RequestValue& object, std::span<const std::string_view> names,
                std::string_view kind, std::vector<std::string>& unknown, Use use) {
  SeenFields seen;
  object.ForEachField([&](const std::string& field, json::Json json) {
    const std::string path = FieldPath(object.name(), field);
    const RequestValue value(path, json);
    const bool is_known = std::ranges::find(names, field) != names.end();
    if (!is_known) AddUnknown(FieldPath(kind, field), unknown);
    if (!is_known || !seen.Add(field) || value.IsNull()) return value.Skip();
    use(std::string_view(field), value);
  });
}

// use(element): of each element of a list, which has its number in its name. Gives how many.
template <typename Use>
size_t ReadElements(const RequestValue& list, const char* allowed, Use use) {
  size_t number = 0;
  list.ForEachValue(allowed, [&](const RequestValue& element) {
    const std::string path = std::string(list.name()).append("[").append(Number(number++)) + "]";
    use(RequestValue(path, element.json()));
  });
  return number;
}

}  // namespace sluice::server
