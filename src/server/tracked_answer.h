// Between a connection and the handler of its request: counts the response, adds what all responses
// have, and gives the request's place back when the answer is over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/admission/admission.h"
#include "server/http/exchange.h"

namespace sluice::server {

class TrackedExchange final : public Exchange {
 public:
  // `head` sees every head once, before it goes out.
  TrackedExchange(Exchange& exchange, std::function<void(HttpResponse&)> head)
      : exchange_(exchange), head_(std::move(head)) {}

  bool has_begun() const { return status_ != 0; }
  int status() const { return status_; }  // 0: no head was sent
  bool has_ended() const { return has_ended_; }
  void SetPermit(Admission::Permit permit, uint64_t group) {
    permit_.emplace(std::move(permit));
    group_ = group;
  }

  const HttpRequest& request() const override { return exchange_.request(); }
  HttpBody TakeBody() override { return exchange_.TakeBody(); }
  uint64_t group() const override { return group_; }
  void TakePlaces(int64_t count, std::string_view field) override { permit_->Take(count, field); }
  void Respond(HttpResponse response) override {
    SeeHead(response);
    has_ended_ = true;
    exchange_.Respond(std::move(response));
  }
  void Begin(HttpResponse head) override {
    SeeHead(head);
    exchange_.Begin(std::move(head));
  }
  std::string& stream() override { return exchange_.stream(); }
  void Flush() override { exchange_.Flush(); }
  void End() override {
    has_ended_ = true;
    exchange_.End();
  }
  size_t unsent() const override { return exchange_.unsent(); }

 private:
  void SeeHead(HttpResponse& head) {
    head_(head);
    status_ = head.status;
  }

  Exchange& exchange_;
  std::function<void(HttpResponse&)> head_;
  std::optional<Admission::Permit> permit_;
  uint64_t group_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
};

class TrackedAnswer final : public Answer {
 public:
  // `over` is called when the answer is over: with the status of its head, 0 where none was sent,
  // and whether its end was written.
  TrackedAnswer(Exchange& exchange, std::function<void(HttpResponse&)> head,
                std::function<void(int, bool)> over)
      : exchange_(exchange, std::move(head)), over_(std::move(over)) {}
  ~TrackedAnswer() override {
    inner_.reset();
    over_(exchange_.status(), exchange_.has_ended());
  }

  TrackedExchange& exchange() { return exchange_; }
  // False: the exchange has been responded to.
  bool SetInner(std::unique_ptr<Answer> inner) {
    inner_ = std::move(inner);
    return inner_ != nullptr;
  }

  void OnRoom() override { inner_->OnRoom(); }

 private:
  TrackedExchange exchange_;
  std::function<void(int, bool)> over_;
  std::unique_ptr<Answer> inner_;
};

}  // namespace sluice::server
