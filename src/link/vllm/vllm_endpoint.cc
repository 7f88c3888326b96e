#include "link/vllm/vllm_endpoint.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "support/check.h"
#include "support/number.h"

namespace sluice::link {
namespace {

constexpr std::string_view kScheme = "vllm+tcp://";
constexpr std::string_view kRanks = "?ranks=";

[[noreturn]] void ThrowEndpoint(const std::string& endpoint, const std::string& why) {
  ThrowInvalid("endpoint", ToText(std::string_view(endpoint)),
               "vllm+tcp://ADDRESS:PORT, an address of this machine that the engine reaches, as a "
               "number, and ?ranks=N where there are several: " +
                   why);
}

int32_t ReadRanks(const std::string& endpoint, std::string_view text) {
  int32_t ranks = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), ranks);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (!is_whole || ranks < 1 || ranks > kMostVllmRanks) {
    ThrowEndpoint(endpoint, "ranks is from 1 to " + Number(kMostVllmRanks));
  }
  return ranks;
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
    const std::string_view query = std::string_view(endpoint).substr(end);
    if (!query.starts_with(kRanks)) ThrowEndpoint(endpoint, "only ranks may follow its port");
    read.ranks = ReadRanks(endpoint, query.substr(kRanks.size()));
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
