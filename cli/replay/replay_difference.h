// How what a request gave differs from what was recorded of it.
#pragma once

#include <string>

#include "json/request_json.h"

namespace sluice::cli {

// "text differs at byte 17: recorded "the c", now "the d""; empty when nothing does.
std::string FirstDifference(const RequestResult& recorded, const RequestResult& now);

}  // namespace sluice::cli
