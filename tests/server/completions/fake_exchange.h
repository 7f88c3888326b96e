// An exchange without a connection: keeps what was written, and checks its order.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/exchange.h"

namespace sluice::test {

class FakeExchange final : public server::Exchange {
 public:
  explicit FakeExchange(std::string_view body) {
    request_.method = "POST";
    request_.id = "req-1";
    request_.body = body;
  }

  // What the connection keeps until the response is complete or the peer is gone.
  std::unique_ptr<server::Answer> answer;
  // A reader that takes nothing; or as much as it likes.
  bool reads = true;
  uint64_t its_group = 0;

  bool is_complete() const { return response_.has_value() || has_ended_; }
  const std::optional<server::HttpResponse>& response() const { return response_; }  // a whole one
  const std::optional<server::HttpResponse>& head() const { return head_; }
  const std::string& sent() const { return sent_; }
  int64_t flushes() const { return flushes_; }
  std::string_view Retry() const {
    for (const server::HttpField& field : response_->fields) {
      if (field.name == "Retry-After") return field.value;
    }
    return "";
  }

  void Read() {
    reads = true;
    sent_.append(std::exchange(unsent_, {}));
    if (answer != nullptr) answer->OnRoom();
  }
  void Forget() { sent_.clear(); }
  // The response in front of this one, of which so many bytes are not read.
  void LeaveUnread(size_t bytes) { unsent_.append(bytes, ':'); }

  const server::HttpRequest& request() const override { return request_; }
  server::HttpBody TakeBody() override { return {std::exchange(request_.body, {}), {}}; }
  uint64_t group() const override { return its_group; }
  void Respond(server::HttpResponse response) override {
    EXPECT_FALSE(is_complete() || head_.has_value());
    response_ = std::move(response);
  }
  void Begin(server::HttpResponse head) override {
    EXPECT_FALSE(is_complete() || head_.has_value());
    EXPECT_EQ(head.body, "");
    head_ = std::move(head);
  }
  std::string& stream() override {
    EXPECT_TRUE(head_.has_value() && !has_ended_);
    return stream_;
  }
  void Flush() override {
    EXPECT_TRUE(head_.has_value() && !has_ended_);
    ++flushes_;
    (reads ? sent_ : unsent_).append(stream_);
    stream_.clear();
  }
  void End() override {
    Flush();
    has_ended_ = true;
  }
  size_t unsent() const override { return unsent_.size(); }

 private:
  server::HttpRequest request_;
  std::optional<server::HttpResponse> response_;
  std::optional<server::HttpResponse> head_;
  std::string stream_;
  std::string sent_;
  std::string unsent_;
  bool has_ended_ = false;
  int64_t flushes_ = 0;
};

}  // namespace sluice::test
