#include <algorithm>

#include "grammar/compiled.h"
#include "grammar/reason.h"
#include "sluice/grammar.hpp"
#include "support/check.h"

namespace sluice {
namespace grammar {

class MatcherImpl {
 public:
  explicit MatcherImpl(std::shared_ptr<const Compiled> compiled)
      : compiled_(std::move(compiled)),
        handle_(Call(functions().new_matcher, compiled_->handle.any(),
                     {None(), Bool(false), Int(-1), None()})) {}

  MaskState FillMask(std::span<int32_t> words) {
    CheckSize("words", words.size(), (int64_t{compiled_->vocab()} + 31) / 32);
    if (is_terminated_) ThrowInvalid("matcher", "one after a stop token", "one that goes on");
    int64_t shape = static_cast<int64_t>(words.size());
    int64_t stride = 1;
    abi::Tensor tensor = {words.data(), abi::kCpu, 0,      1,       abi::kSignedInteger,
                          32,           1,         &shape, &stride, 0};
    abi::Any mask = {abi::kDLTensorPtr, 0, {}};
    mask.pointer = &tensor;
    if (!Call(functions().fill, {mask, Int(0), Bool(false)}).Bool()) {
      std::fill(words.begin(), words.end(), -1);
      return MaskState::kEverything;
    }
    const bool has = std::any_of(words.begin(), words.end(), [](int32_t w) { return w != 0; });
    return has ? MaskState::kSome : MaskState::kNothing;
  }

  bool Accept(int32_t token) {
    if (token < 0 || token >= compiled_->vocab()) return false;
    const TokenSet& tokens = *compiled_->tokens;
    if (!tokens.may_come[static_cast<size_t>(token)] || is_terminated_) return false;
    if (!Call(functions().accept, {Int(token), Bool(false)}).Bool()) return false;
    ++accepted_;
    is_terminated_ = std::ranges::find(tokens.stops, token) != tokens.stops.end();
    return true;
  }

  void Rollback(int64_t tokens) {
    CheckInRange("tokens", tokens, 0, accepted_);
    if (tokens == 0) return;
    Call(functions().rollback, {Int(tokens)});
    accepted_ -= tokens;
    is_terminated_ = false;
  }

  std::unique_ptr<MatcherImpl> Fork() const {
    return std::unique_ptr<MatcherImpl>(
        new MatcherImpl(compiled_, Call(functions().fork, {}), accepted_, is_terminated_));
  }

  int64_t accepted() const { return accepted_; }
  bool IsTerminated() const { return is_terminated_; }
  bool IsComplete() const { return Call(functions().is_completed, {}).Bool(); }
  std::string JumpForward() {
    if (is_terminated_) return {};
    return std::string(Call(functions().jump_forward, {}).String());
  }

 private:
  MatcherImpl(std::shared_ptr<const Compiled> compiled, Value handle, int64_t accepted,
              bool is_terminated)
      : compiled_(std::move(compiled)),
        handle_(std::move(handle)),
        accepted_(accepted),
        is_terminated_(is_terminated) {}

  const LibraryImpl::Functions& functions() const { return compiled_->library->functions(); }

  // No exception of the engine leaves this class.
  Value Call(LibraryImpl::Function function, const abi::Any& self,
             std::initializer_list<abi::Any> args) const {
    abi::Any all[8] = {self};
    std::copy(args.begin(), args.end(), all + 1);
    try {
      return compiled_->library->Call(function, std::span(all, args.size() + 1));
    } catch (const CallError& error) {
      ThrowInvalid("matcher", "this call", CleanReason(error.what()));
    }
  }
  Value Call(LibraryImpl::Function function, std::initializer_list<abi::Any> args) const {
    return Call(function, handle_.any(), args);
  }

  std::shared_ptr<const Compiled> compiled_;
  Value handle_;
  int64_t accepted_ = 0;
  bool is_terminated_ = false;  // what the engine would say, without a call of it for every token
};

}  // namespace grammar

GrammarMatcher::GrammarMatcher(const Grammar& grammar)
    : impl_(std::make_unique<grammar::MatcherImpl>(grammar.compiled_)) {}
GrammarMatcher::GrammarMatcher(std::unique_ptr<grammar::MatcherImpl> impl)
    : impl_(std::move(impl)) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

grammar::MatcherImpl& GrammarMatcher::Get() const {
  if (impl_ == nullptr) ThrowInvalid("matcher", "one that was moved from", "one with a grammar");
  return *impl_;
}

MaskState GrammarMatcher::FillMask(std::span<int32_t> words) { return Get().FillMask(words); }
bool GrammarMatcher::Accept(int32_t token) { return Get().Accept(token); }
void GrammarMatcher::Rollback(int64_t tokens) { Get().Rollback(tokens); }
int64_t GrammarMatcher::accepted() const { return Get().accepted(); }
GrammarMatcher GrammarMatcher::Fork() const { return GrammarMatcher(Get().Fork()); }
bool GrammarMatcher::IsTerminated() const { return Get().IsTerminated(); }
bool GrammarMatcher::IsComplete() const { return Get().IsComplete(); }
std::string GrammarMatcher::JumpForward() { return Get().JumpForward(); }

}  // namespace sluice
