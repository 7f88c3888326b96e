// A vLLM engine made of bare sockets, which says whatever a test wants. It acts in Pump alone, so a
// test says when.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/sockets.h"
#include "tests/link/frontend/frontend.h"
#include "tests/link/vllm/fixtures.h"

namespace sluice::test {

// What the engine got: an EngineCoreRequest.
struct VllmRequest {
  std::string id;
  std::vector<int32_t> prompt;
  std::string adapter;  // "NAME NUMBER PATH"
  std::string salt;
  std::map<std::string, msgpack::object> params;
  std::shared_ptr<msgpack::object_handle> memory;  // of these
};

// A port that nobody has.
inline std::string FreeVllmEndpoint() {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::router);
  socket.bind("tcp://127.0.0.1:*");
  return "vllm+" + socket.get(zmq::sockopt::last_endpoint);
}

class FakeVllm {
 public:
  explicit FakeVllm(std::string endpoint = FreeVllmEndpoint(),
                    std::string its_identity = std::string(2, '\0'))
      : identity(std::move(its_identity)), endpoint_(std::move(endpoint)) {
    facts = {{"vllm_version", "0.33.0"}};
    Start();
  }

  const std::string& endpoint() const { return endpoint_; }
  const std::string& input_address() const { return input_address_; }

  // As a process that is killed: at once, and silent.
  void Kill() {
    handshake_.reset();
    input_.reset();
    output_.reset();
    half_open_.reset();
    has_outputs_ = true;
  }
  // As one that says so. What it says hello with stays.
  void EndOnItsOwn() {
    Send({"ENGINE_CORE_DEAD"});
    output_->set(zmq::sockopt::linger, -1);
    input_.reset();
    output_.reset();
  }
  // As a process that is started: it says hello.
  void Start() {
    Kill();
    requests.clear();
    aborted.clear();
    handshake_ = Open(zmq::socket_type::dealer);
    handshake_->connect(endpoint_.substr(5, endpoint_.find('?') - 5));
    SayHello();
  }
  void SayHello() { Say(*handshake_, VllmMessage("handshake.hello")); }

  // As where the network is away for a moment: the sockets connect again, and say nothing.
  void DisconnectInput() { input_->disconnect(input_address_); }
  void DisconnectOutputs() {
    output_->disconnect(output_address_);
    has_outputs_ = false;
  }
  void Disconnect() {
    DisconnectInput();
    DisconnectOutputs();
  }
  void ReconnectInput() { Connect(*input_, input_address_); }
  void ReconnectOutputs() {
    Connect(*output_, output_address_);
    has_outputs_ = true;
  }
  void Reconnect() {
    ReconnectInput();
    ReconnectOutputs();
  }
  // As where only this end has seen the network go: its new connection comes while the old one
  // stands at the other end.
  void TakeOverInput() {
    half_open_ = std::move(input_);
    input_ = Open(zmq::socket_type::dealer);
    ReconnectInput();
  }
  void TakeOverOutputs() {
    half_open_ = std::move(output_);
    output_ = Open(zmq::socket_type::push);
    ReconnectOutputs();
  }

  // Takes what has come, loads its model, and answers pings, unless it shall not.
  void Pump() {
    Frames frames;
    while (handshake_ != nullptr && Hear(*handshake_, frames)) TakeAddresses(frames.at(0));
    while (input_ != nullptr && Hear(*input_, frames)) Take(frames);
    // What it only sends through has to be looked at as well to let a connection go.
    if (output_ != nullptr) static_cast<void>(output_->get(zmq::sockopt::events));
  }

  void Send(const Frames& frames) { Say(*output_, frames); }
  // Tokens of a request, and perhaps its end.
  void SendLetters(const std::string& id, std::string_view letters, int finish = -1) {
    SendIds(id, Ids(letters), finish);
  }
  void SendIds(const std::string& id, const std::vector<int32_t>& ids, int finish = -1) {
    msgpack::sbuffer bytes;
    msgpack::packer packer(bytes);
    PackHead(packer, id, ids);
    for (int i = 0; i < 3; ++i) packer.pack_nil();
    finish < 0 ? packer.pack_nil() : packer.pack(finish);
    Send({{bytes.data(), bytes.size()}});
  }
  // The same with lists of log-probabilities, of `width` a row: `first`, one less, ... of ids from
  // 0 on.
  void SendWithLogprobs(const std::string& id, std::string_view letters, int width,
                        int prompt_rows = 0, float first = -1) {
    msgpack::sbuffer bytes;
    msgpack::packer packer(bytes);
    const std::vector<int32_t> ids = Ids(letters);
    PackHead(packer, id, ids);
    PackLists(packer, static_cast<int>(ids.size()), width, first);
    prompt_rows > 0 ? PackLists(packer, prompt_rows, width, first) : Nil(packer);
    packer.pack_nil();
    packer.pack_nil();
    Send({{bytes.data(), bytes.size()}});
  }

  std::vector<VllmRequest> requests;
  std::vector<std::string> aborted;
  std::map<std::string, std::string> facts;
  int64_t data_parallel_size = 1;
  bool supports_lora = false;
  std::string identity;
  int pings = 0;
  bool answers_ping = true;
  bool loads = true;
  int lives = 0;  // for which addresses came

 private:
  using Packer = msgpack::packer<msgpack::sbuffer>;

  std::unique_ptr<zmq::socket_t> Open(zmq::socket_type type) {
    auto socket = std::make_unique<zmq::socket_t>(context_, type);
    socket->set(zmq::sockopt::linger, 0);
    if (type == zmq::socket_type::dealer) socket->set(zmq::sockopt::routing_id, identity);
    return socket;
  }
  // Back when the other end has taken the connection.
  void Connect(zmq::socket_t& socket, const std::string& address) {
    zmq::socket_t monitor =
        link::OpenMonitor(context_, socket, "inproc://connects-" + std::to_string(++connects_),
                          ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    socket.connect(address);
    zmq::pollitem_t item{monitor.handle(), 0, ZMQ_POLLIN, 0};
    EXPECT_EQ(zmq::poll(&item, 1, kPatience), 1);
    zmq_socket_monitor(socket.handle(), nullptr, 0);
  }
  static void Say(zmq::socket_t& socket, const Frames& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const bool is_last = i + 1 == frames.size();
      socket.send(zmq::buffer(frames[i]),
                  is_last ? zmq::send_flags::none : zmq::send_flags::sndmore);
    }
  }
  static bool Hear(zmq::socket_t& socket, Frames& frames) {
    frames.clear();
    zmq::message_t message;
    if (!socket.recv(message, zmq::recv_flags::dontwait)) return false;
    frames.push_back(message.to_string());
    while (message.more()) {
      EXPECT_TRUE(socket.recv(message));
      frames.push_back(message.to_string());
    }
    return true;
  }

  void TakeAddresses(const std::string& bytes) {
    ++lives;
    if (!loads) return;
    const auto handle = msgpack::unpack(bytes.data(), bytes.size());
    const auto all = handle.get().as<std::map<std::string, msgpack::object>>();
    const auto addresses = all.at("addresses").as<std::map<std::string, msgpack::object>>();
    input_ = Open(zmq::socket_type::dealer);
    output_ = Open(zmq::socket_type::push);
    input_address_ = addresses.at("inputs").as<std::vector<std::string>>().at(0);
    output_address_ = addresses.at("outputs").as<std::vector<std::string>>().at(0);
    input_->connect(input_address_);
    output_->connect(output_address_);
    msgpack::sbuffer bytes_of_facts;
    msgpack::packer packer(bytes_of_facts);
    packer.pack_map(static_cast<uint32_t>(4 + facts.size()));
    packer.pack("supports_lora").pack(supports_lora);
    for (const auto& [key, value] : facts) packer.pack(key).pack(value);
    packer.pack("max_model_len").pack(4096).pack("max_num_seqs").pack(8);
    packer.pack("data_parallel_size").pack(data_parallel_size);
    Say(*input_, {{bytes_of_facts.data(), bytes_of_facts.size()}});
    Say(*handshake_, VllmMessage("handshake.ready"));
  }

  void Take(const Frames& frames) {
    ASSERT_EQ(frames.size(), 2u);
    auto handle = std::make_shared<msgpack::object_handle>(
        msgpack::unpack(frames[1].data(), frames[1].size()));
    const auto fields = handle->get().as<std::vector<msgpack::object>>();
    if (frames[0] == std::string(1, '\0')) {
      std::string adapter;
      if (!fields.at(6).is_nil()) {
        const auto its = fields.at(6).as<std::vector<msgpack::object>>();
        adapter = its.at(0).as<std::string>() + " " + std::to_string(its.at(1).as<int>()) + " " +
                  its.at(2).as<std::string>();
      }
      requests.push_back({.id = fields.at(0).as<std::string>(),
                          .prompt = fields.at(1).as<std::vector<int32_t>>(),
                          .adapter = adapter,
                          .salt = fields.at(7).is_nil() ? "" : fields.at(7).as<std::string>(),
                          .params = fields.at(3).as<std::map<std::string, msgpack::object>>(),
                          .memory = handle});
    } else if (frames[0] == "\x01") {
      for (const auto& id : fields) aborted.push_back(id.as<std::string>());
    } else {
      ASSERT_EQ(frames[0], "\x03");
      ++pings;
      if (answers_ping && has_outputs_) Answer(fields.at(1).as<int64_t>());
    }
  }

  void Answer(int64_t call) {
    msgpack::sbuffer bytes;
    msgpack::packer packer(bytes);
    packer.pack_array(5).pack(0).pack_array(0).pack_nil().pack(2.5).pack_array(3).pack(call);
    packer.pack_nil().pack_array(2).pack_nil().pack(false);
    Send({{bytes.data(), bytes.size()}});
  }

  static void Nil(Packer& packer) { packer.pack_nil(); }
  static void PackHead(Packer& packer, const std::string& id, const std::vector<int32_t>& ids) {
    packer.pack_array(2).pack(0).pack_array(1).pack_array(6).pack(id).pack(ids);
  }
  template <typename T>
  static void PackArray(Packer& packer, const char* type, const std::vector<T>& values,
                        std::vector<int> shape) {
    const size_t size = values.size() * sizeof(T);
    packer.pack_array(3).pack(type).pack(shape);
    packer.pack_ext(size, 3).pack_ext_body(reinterpret_cast<const char*>(values.data()),
                                           static_cast<uint32_t>(size));
  }
  static void PackLists(Packer& packer, int rows, int width, float first) {
    std::vector<int32_t> ids, ranks;
    std::vector<float> values;
    for (int i = 0; i < rows * width; ++i) {
      ids.push_back(i % width);
      values.push_back(first - static_cast<float>(i));
    }
    for (int i = 0; i < rows; ++i) ranks.push_back(1 + i);
    packer.pack_array(4);
    PackArray(packer, "<i4", ids, {rows, width});
    PackArray(packer, "<f4", values, {rows, width});
    PackArray(packer, "<i4", ranks, {rows});
    packer.pack_nil();
  }

  zmq::context_t context_;
  std::string endpoint_;
  std::unique_ptr<zmq::socket_t> handshake_;
  std::unique_ptr<zmq::socket_t> input_;
  std::unique_ptr<zmq::socket_t> output_;
  std::unique_ptr<zmq::socket_t> half_open_;
  std::string input_address_, output_address_;
  bool has_outputs_ = true;  // else it would wait until they are taken
  int connects_ = 0;
};

using VllmFrontend = FrontendOf<FakeVllm>;

}  // namespace sluice::test
