// A client in front of one engine of vLLM that a test plays.
#pragma once

#include <string>

#include "tests/link/vllm/fake_vllm.h"

namespace sluice::test {

inline constexpr int kStop = 0, kLength = 1;  // vLLM's reasons

inline RemoteClientOptions VllmOptions(milliseconds stall = milliseconds(30'000)) {
  return {.start_timeout = kPatience, .stall_timeout = stall, .end_tokens = {kEnd}};
}

// A frontend with its engine, and a request that the engine has.
struct VllmPair {
  explicit VllmPair(RemoteClientOptions options = VllmOptions()) : frontend({&engine}, options) {}

  RequestId Ask(ClientRequest request = Asks()) {
    const RequestId id = frontend.Submit(std::move(request));
    const size_t before = engine.requests.size();
    EXPECT_TRUE(frontend.Until([&] { return engine.requests.size() > before; }));
    return id;
  }
  const std::string& last() const { return engine.requests.back().id; }
  // Of the last request's id: its slot and its generation.
  std::string last_place() const { return last().substr(last().find('-', 7)); }
  void ExpectWorks() {
    const RequestId id = Ask();
    engine.SendLetters(last(), "fine", kLength);
    ASSERT_TRUE(frontend.UntilEnded(id));
    EXPECT_EQ(frontend.got[id].text, "fine");
  }

  FakeVllm engine;
  VllmFrontend frontend;
};

inline void ExpectLost(VllmPair& pair, RequestId id, const std::string& why) {
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  const Collected& all = pair.frontend.got[id];
  EXPECT_EQ(all.end, GenerationEnd::kEngineLost);
  EXPECT_EQ(all.text, "ab");
  EXPECT_NE(all.message.find(why), std::string::npos) << all.message;
}
inline RequestId HalfWay(VllmPair& pair) {
  const RequestId id = pair.Ask();
  pair.engine.SendLetters(pair.last(), "ab");
  EXPECT_TRUE(pair.frontend.UntilText(id, "ab"));
  return id;
}

}  // namespace sluice::test
