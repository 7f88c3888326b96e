#include "grammar/library_impl.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstdlib>

#include "support/check.h"

namespace sluice::grammar {
namespace {

// TVM FFI installs a handler when it is opened; what the program does about a signal is its own.
class KeptSignalAction {
 public:
  explicit KeptSignalAction(int signal) : signal_(signal) { sigaction(signal_, nullptr, &action_); }
  ~KeptSignalAction() { sigaction(signal_, &action_, nullptr); }
  KeptSignalAction(const KeptSignalAction&) = delete;
  KeptSignalAction& operator=(const KeptSignalAction&) = delete;

 private:
  int signal_;
  struct sigaction action_ = {};
};

void* Open(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    // Of a name without a folder, the dynamic linker has found no file.
    const bool has_folder = name.find('/') != std::string::npos;
    ThrowMissing(has_folder ? name : "", reason != nullptr ? reason : "it cannot be opened");
  }
  return handle;
}

// A program with a static C++ run-time library exports what its shared libraries use of it, and so
// does the engine: it would throw with one library and unwind with another, which ends the program.
void CheckRuntime(const std::string& file) {
  const void* symbol = dlsym(RTLD_DEFAULT, "__cxa_throw");
  Dl_info info = {};
  if (symbol == nullptr || dladdr(symbol, &info) == 0) return;
  const std::string_view owner = info.dli_fname;
  if (owner.find("libstdc++") != owner.npos || owner.find("libc++") != owner.npos) return;
  ThrowMissing(file,
               "this program exports parts of a static C++ run-time library; link it without "
               "-static-libstdc++");
}

template <typename F>
F* Symbol(void* handle, const std::string& file, const char* name) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) ThrowMissing(file, std::string("it has no function ").append(name));
  return reinterpret_cast<F*>(symbol);
}

abi::ByteArray Bytes(std::string_view text) { return {text.data(), text.size()}; }
std::string_view View(const abi::ByteArray& bytes) { return {bytes.data, bytes.size}; }

// What follows the header of an object.
template <typename T>
const T& Cell(const void* object) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(object) + sizeof(abi::Object));
}

}  // namespace

void ThrowMissing(const std::string& value, const std::string& reason) {
  throw Error(ErrorCode::kUnavailable, "grammar_library", value.empty() ? "" : ToText(value),
              "libtvm_ffi.so and libxgrammar_bindings.so of xgrammar 0.2.8, which "
              "\"pip install --no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2\" installs (" +
                  reason + ")");
}

Value::~Value() {
  if (any_.type >= abi::kObject) library_->Release(any_.pointer);
}

int64_t Value::Integer() const {
  if (any_.type != abi::kInt && any_.type != abi::kBool) throw CallError("it gave no number");
  return any_.integer;
}

std::string_view Value::String() const {
  if (any_.type == abi::kSmallStr) return {any_.bytes, any_.small_size};
  if (any_.type != abi::kStr) throw CallError("it gave no text");
  return View(Cell<abi::ByteArray>(any_.pointer));
}

LibraryImpl::LibraryImpl(const std::string& tvm_ffi, const std::string& xgrammar)
    : path_(xgrammar) {
  CheckRuntime(xgrammar);
  void* ffi = nullptr;
  {
    const KeptSignalAction kept(SIGSEGV);
    ffi = Open(tvm_ffi);
    Open(xgrammar);  // finds the first by its name, because it is open
  }
  abi::Version version = {};
  Symbol<abi::GetVersion>(ffi, tvm_ffi, "TVMFFIGetVersion")(&version);
  if (version.major != abi::kMajor || version.minor != abi::kMinor ||
      version.patch < abi::kFirstPatch) {
    ThrowMissing(tvm_ffi, "its interface is " + std::to_string(version.major) + "." +
                              std::to_string(version.minor) + "." + std::to_string(version.patch) +
                              ", and 0.1.11 to 0.1.x are known");
  }
  type_key_to_index_ = Symbol<abi::TypeKeyToIndex>(ffi, tvm_ffi, "TVMFFITypeKeyToIndex");
  get_type_info_ = Symbol<abi::GetTypeInfo>(ffi, tvm_ffi, "TVMFFIGetTypeInfo");
  get_global_ = Symbol<abi::FunctionGetGlobal>(ffi, tvm_ffi, "TVMFFIFunctionGetGlobal");
  call_ = Symbol<abi::FunctionCall>(ffi, tvm_ffi, "TVMFFIFunctionCall");
  take_error_ = Symbol<abi::ErrorMoveFromRaised>(ffi, tvm_ffi, "TVMFFIErrorMoveFromRaised");
  make_string_ = Symbol<abi::StringFromByteArray>(ffi, tvm_ffi, "TVMFFIStringFromByteArray");
  decrease_ = Symbol<abi::ObjectReference>(ffi, tvm_ffi, "TVMFFIObjectDecRef");
  LookUp();
}

void LibraryImpl::LookUp() {
  Functions& f = functions_;
  const abi::ByteArray array = Bytes("ffi.Array");
  if (get_global_(&array, &f.array) != 0 || f.array == nullptr) {
    ThrowMissing(path_, "it has no arrays");
  }
  f.new_vocabulary = Method("TokenizerInfo", "__ffi_init__");
  f.new_compiler = Method("GrammarCompiler", "__ffi_init__");
  f.new_matcher = Method("GrammarMatcher", "__ffi_init__");
  f.json_schema_rules = Method("Grammar", "from_json_schema");
  f.regex_rules = Method("Grammar", "from_regex");
  f.ebnf_rules = Method("Grammar", "from_ebnf");
  f.lark_rules = Method("Grammar", "from_lark");
  f.tag_rules = Method("Grammar", "from_structural_tag");
  f.rules_text = Method("Grammar", "to_string");
  f.compile_ebnf = Method("GrammarCompiler", "compile_grammar_from_strings");
  f.compiled_bytes = Method("CompiledGrammar", "memory_size_bytes");
  f.compiler_bytes = Method("GrammarCompiler", "get_cache_size_bytes");
  f.fill = Method("GrammarMatcher", "fill_next_token_bitmask");
  f.accept = Method("GrammarMatcher", "accept_token");
  f.rollback = Method("GrammarMatcher", "rollback");
  f.fork = Method("GrammarMatcher", "fork");
  f.is_completed = Method("GrammarMatcher", "is_completed");
  f.jump_forward = Method("GrammarMatcher", "find_jump_forward_string");
}

LibraryImpl::Function LibraryImpl::Method(std::string_view type, std::string_view name) const {
  const std::string key = std::string("xgrammar.tvm_ffi_binding.").append(type);
  const abi::ByteArray bytes = Bytes(key);
  int32_t index = 0;
  const abi::TypeInfo* info = nullptr;
  if (type_key_to_index_(&bytes, &index) == 0) info = get_type_info_(index);
  // Its own key says that the layout of the table is the one that is declared here.
  if (info != nullptr && info->index == index && info->key.size == key.size() &&
      View(info->key) == key) {
    for (int32_t i = 0; i < info->methods; ++i) {
      const abi::MethodInfo& method = info->method_infos[i];
      if (View(method.name) == name && method.method.type == abi::kFunction) {
        return method.method.pointer;
      }
    }
  }
  ThrowMissing(path_, "it has no " + key + "." + std::string(name));
}

Value LibraryImpl::Call(Function function, std::span<abi::Any> args) const {
  abi::Any result = {};
  if (call_(function, args.data(), static_cast<int32_t>(args.size()), &result) == 0) {
    return {*this, result};
  }
  void* error = nullptr;
  take_error_(&error);
  if (error == nullptr) throw CallError("it failed without a reason");
  std::string message(View(Cell<abi::ErrorCell>(error).message));
  Release(error);
  throw CallError(message);
}

Value LibraryImpl::Call(Function function, std::initializer_list<abi::Any> args) const {
  abi::Any copy[10];
  size_t count = 0;
  for (const abi::Any& arg : args) copy[count++] = arg;
  return Call(function, std::span(copy, count));
}

Value LibraryImpl::String(std::string_view text) const {
  const abi::ByteArray bytes = Bytes(text);
  abi::Any made = {};
  if (make_string_(&bytes, &made) != 0) throw CallError("no memory for a text");
  return {*this, made};
}

}  // namespace sluice::grammar
