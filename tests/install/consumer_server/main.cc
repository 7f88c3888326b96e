// An engine, a server in front of it, and one request, all in one program.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sluice/default_model.hpp>
#include <sluice/engine_server.hpp>
#include <sluice/model_runner.hpp>
#include <sluice/server.hpp>
#include <sluice/version.hpp>
#include <string>
#include <thread>

namespace {

// What a server answers to a completion, head and body.
std::string Completion(std::uint16_t port) {
  const std::string body = R"({"prompt":"Once upon a time","max_tokens":8})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), 0) > 0) {
    char bytes[4096];
    for (ssize_t size = 0; (size = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      answer.append(bytes, static_cast<std::size_t>(size));
    }
  }
  ::close(fd);
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], sluice::kVersionString.data()) != 0) return 1;
  const auto checkpoint = sluice::Checkpoint::FromFiles(sluice::DefaultModelFiles());
  const sluice::Tokenizer& tokenizer = checkpoint.tokenizer();
  sluice::ModelRunner runner(checkpoint, {.max_requests = 2});
  sluice::Engine engine(runner, tokenizer);
  sluice::EngineServer engine_server(
      engine,
      {.model = "default", .tokenizer_hash = sluice::TokenizerHash(tokenizer), .has_text = true});
  const std::jthread steps([&](std::stop_token stop) { engine_server.Run(stop); });

  sluice::ServerOptions options;
  options.port = 0;  // any
  options.engines = {engine_server.endpoint()};
  sluice::Server server(checkpoint.text(), options);
  const std::jthread serves([&](std::stop_token stop) { server.Run(stop, {}); });
  const std::string answer = Completion(server.port());
  std::puts(answer.c_str());
  const bool is_good = answer.starts_with("HTTP/1.1 200 ") &&
                       answer.find("\"completion_tokens\":8") != std::string::npos;
  return is_good ? 0 : 1;
}
