// The grammar engine as functions: calls into its libraries, and what comes back.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/tvm_ffi_abi.h"

namespace sluice::grammar {

class LibraryImpl;

// What a call threw, in the engine's words. It stays inside src/grammar.
class CallError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A value that a call returned, or an argument. Owns one reference if it is an object.
class Value {
 public:
  Value() = default;  // none
  Value(const LibraryImpl& library, const abi::Any& owned) : library_(&library), any_(owned) {}
  Value(Value&& other) noexcept
      : library_(other.library_), any_(std::exchange(other.any_, abi::Any{})) {}
  Value& operator=(Value&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(any_, other.any_);
    return *this;
  }
  ~Value();

  const abi::Any& any() const { return any_; }
  int64_t Integer() const;
  bool Bool() const { return Integer() != 0; }
  std::string_view String() const;  // valid as long as this

 private:
  const LibraryImpl* library_ = nullptr;
  abi::Any any_ = {};
};

inline abi::Any None() { return {}; }
inline abi::Any Int(int64_t value) { return {abi::kInt, 0, {value}}; }
inline abi::Any Bool(bool value) { return {abi::kBool, 0, {value}}; }

class LibraryImpl {
 public:
  // Throws Error. A name without a folder is searched by the dynamic linker.
  LibraryImpl(const std::string& tvm_ffi, const std::string& xgrammar);

  // A function of the engine, valid as long as the program runs.
  using Function = void*;
  Function Method(std::string_view type, std::string_view name) const;
  // Allocates nothing, unless it throws CallError.
  Value Call(Function function, std::span<abi::Any> args) const;
  Value Call(Function function, std::initializer_list<abi::Any> args) const;
  Value String(std::string_view text) const;

  void Release(void* object) const { decrease_(object); }
  const std::string& path() const { return path_; }

  // What is called, looked up once.
  struct Functions {
    Function array;
    Function new_vocabulary, new_compiler, new_matcher;
    Function json_schema_rules, regex_rules, ebnf_rules, lark_rules, tag_rules, rules_text;
    Function compile_ebnf;
    Function compiled_bytes, compiler_bytes;
    Function fill, accept, rollback, fork, is_completed, jump_forward;
  };
  const Functions& functions() const { return functions_; }

 private:
  void LookUp();

  std::string path_;
  abi::TypeKeyToIndex* type_key_to_index_;
  abi::GetTypeInfo* get_type_info_;
  abi::FunctionGetGlobal* get_global_;
  abi::FunctionCall* call_;
  abi::ErrorMoveFromRaised* take_error_;
  abi::StringFromByteArray* make_string_;
  abi::ObjectReference* decrease_;
  Functions functions_ = {};
};

// Throws Error with kUnavailable: what is missing, and how to get it.
[[noreturn]] void ThrowMissing(const std::string& value, const std::string& reason);

}  // namespace sluice::grammar
