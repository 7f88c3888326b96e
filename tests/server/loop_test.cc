// What one thread of a server does when something in it fails.
#include "server/loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <future>
#include <new>
#include <thread>

#include "tests/server/completions/fake_client.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

constexpr char kPath[] = "/v1/completions";

// A loop on a thread of its own, over outputs that a test makes up.
class RunningLoop {
 public:
  RunningLoop() : state_(LettersText(), {}), pool_(1) {
    state_.info = InfoOf(Letters());
    state_.model_names = {"letters"};
    auto client = std::make_unique<FakeClient>(state_.info, Letters());
    client->fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client_ = client.get();
    const server::ListenAddress address = {.host = "127.0.0.1"};
    loops_.push_back(
        std::make_unique<server::Loop>(state_, pool_, 0, address, std::move(client), nullptr));
    thread_ = std::thread([this] {
      try {
        loops_[0]->Run(loops_);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  ~RunningLoop() {
    loops_[0]->EndAll("the test ends");
    if (thread_.joinable()) thread_.join();
    const int fd = client_->fd;
    loops_.clear();
    ::close(fd);
  }

  uint16_t port() const { return loops_[0]->port(); }
  // Between two of its events.
  void OnLoop(const std::function<void(FakeClient&)>& call) {
    std::promise<void> done;
    loops_[0]->Report([&] {
      call(*client_);
      done.set_value();
    });
    done.get_future().wait();
  }
  // What Run has thrown, or null.
  std::exception_ptr Join() {
    thread_.join();
    return failure_;
  }

 private:
  server::ServerState state_;
  server::EncodePool pool_;
  std::vector<std::unique_ptr<server::Loop>> loops_;
  FakeClient* client_ = nullptr;
  std::exception_ptr failure_;
  std::thread thread_;
};

void Wake(const FakeClient& client) { ASSERT_EQ(::eventfd_write(client.fd, 1), 0); }

TEST(Loop, AFailureOfItsClientIsToldToEveryRequestBeforeItEnds) {
  RunningLoop loop;
  TestClient streams(loop.port());
  streams.Send(TestClient::Request("POST", kPath, Asking("a", 100, kStreams)));
  TestClient silent(loop.port());
  silent.Send(TestClient::Request("POST", kPath, Asking("a", 100, kStreams)));
  TestClient whole(loop.port());
  whole.Send(TestClient::Request("POST", kPath, Asking("a", 100)));
  ASSERT_TRUE(Becomes([&] {
    size_t submitted = 0;
    loop.OnLoop([&](FakeClient& client) { submitted = client.submitted.size(); });
    return submitted == 3;
  }));
  // Which of the three is the first one is the kernel's choice: by its mode.
  loop.OnLoop([](FakeClient& client) {
    for (size_t i = 0; i < 3; ++i) {
      if (client.submitted[i].mode != OutputMode::kDelta) continue;
      client.Give(i, "x");
      break;
    }
    Wake(client);
  });
  std::vector<pollfd> waits = {{streams.fd(), POLLIN, 0}, {silent.fd(), POLLIN, 0}};
  ASSERT_EQ(::poll(waits.data(), waits.size(), 10'000), 1);
  TestClient& first = waits[0].revents != 0 ? streams : silent;
  TestClient& second = waits[0].revents != 0 ? silent : streams;
  EXPECT_EQ(first.ReadHead().status, 200);

  loop.OnLoop([](FakeClient& client) {
    client.polls_without_memory = true;
    Wake(client);
  });
  std::string body;
  while (first.ReadChunk(body)) {
  }
  ReadResponse read = ResponseReader::Stream(body);
  EXPECT_EQ(read.choices[0].text, "x");
  ASSERT_TRUE(read.error.has_value());
  EXPECT_EQ(read.error->message, "the server has failed");
  EXPECT_TRUE(read.is_done);
  for (TestClient* const client : {&second, &whole}) {
    const TestResponse response = client->Read();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(ErrorOf(response).message, "the server has failed");
  }
  const std::exception_ptr failure = loop.Join();
  ASSERT_NE(failure, nullptr);
  EXPECT_THROW(std::rethrow_exception(failure), std::bad_alloc);
}

}  // namespace
}  // namespace sluice::test
