#include "link/vllm/vllm_endpoint.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "support/check.h"
#include "support/number.h"

namespace sluice::link {
namespace {

constexpr std::string_view kScheme = "vllm+tcp://";

[[noreturn]] void ThrowEndpoint(const std::string& endpoint, const std::string& why) {
  ThrowInvalid("endpoint", ToText(std::string_view(endpoint)),
               "vllm+tcp://ADDRESS:PORT, an address of this machine that the engine reaches, as a "
               "number, and ?ranks=N where there are several: " +
                   why);
}

int32_t ReadNumber(const std::string& endpoint, std::string_view name, std::string_view text,
                   int32_t least, int32_t most) {
  int32_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (!is_whole || number < least || number > most) {
    ThrowEndpoint(endpoint,
                  std::string(name) + " is from " + Number(least) + " to " + Number(most));
  }
  return number;
}

// "name=value" and the next ones after each "&".
void ReadQuery(const std::string& endpoint, std::string_view query, VllmEndpoint& read) {
  while (true) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view field = query.substr(0, end);
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = field.substr(std::min(equals + 1, field.size()));
    if (name == "ranks") {
      read.ranks = ReadNumber(endpoint, name, value, 1, kMostVllmRanks);
    } else if (name == "max_logprobs") {
      read.max_logprobs = ReadNumber(endpoint, name, value, -1, INT32_MAX);
    } else {
      ThrowEndpoint(endpoint, "only ranks and max_logprobs may follow its port");
    }
    if (end == query.size()) return;
    query.remove_prefix(end + 1);
  }
}

}  // namespace

std::string VllmEndpoint::NameOf(int32_t rank) const {
  return ranks == 1 ? name : name + "?rank=" + Number(rank);
}

VllmEndpoint ReadVllmEndpoint(const std::string& endpoint) {
  VllmEndpoint read;
  const size_t end = endpoint.find('?');
  read.name = endpoint.substr(0, end);
  if (end != std::string::npos) {
    ReadQuery(endpoint, std::string_view(endpoint).substr(end + 1), read);
  }
  const std::string_view rest =
      std::string_view(read.name).substr(std::min(kScheme.size(), read.name.size()));
  const size_t colon = rest.rfind(':');
  const std::string_view host = rest.substr(0, std::min(colon, rest.size()));
  if (colon == std::string_view::npos || host.empty()) ThrowEndpoint(endpoint, "it has no port");
  if (host == "*" || host == "0.0.0.0" || host == "[::]") {
    ThrowEndpoint(endpoint, "the engine connects to this one, so it cannot be all of them");
  }
  read.host = "tcp://" + std::string(host);
  read.address = "tcp://" + std::string(rest);
  return read;
}

}  // namespace sluice::link
