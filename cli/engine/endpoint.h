// Where an engine is to be found: ipc://PATH, ipc://@NAME or tcp://HOST:PORT.
#pragma once

#include <string_view>

namespace sluice::cli {

// Throws Error naming `parameter` for what has not one of these forms.
void CheckEndpoint(std::string_view parameter, std::string_view endpoint);

// Whether only this machine reaches it.
bool IsLocal(std::string_view endpoint);

}  // namespace sluice::cli
