#include "cli/serve/serve_check.h"

#include <exception>
#include <functional>
#include <optional>

#include "cli/flags/grammar_flags.h"
#include "cli/table.h"
#include "cli/text.h"
#include "json/writer.h"
#include "server/server_options.h"
#include "sluice/client.hpp"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

struct Finding {
  std::string name;
  std::string text;
  bool is_good = true;
};

class ServeCheck {
 public:
  explicit ServeCheck(const ServeOptions& options) : options_(options) {}

  void Run() {
    Check("model", [this] { return Model(); });
    Check("chat template", [this] { return Template(); });
    Check("engine", [this] { return Engines(); });
    Check("grammars", [this] { return Grammars(); });
    Check("address", [this] { return Address(); });
    Check("API keys", [this] { return Keys(); });
  }
  const std::vector<Finding>& findings() const { return findings_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  void Check(const char* name, const std::function<std::string()>& find) {
    Finding finding{.name = name, .text = ""};
    try {
      finding.text = find();
    } catch (const std::exception& error) {
      finding.text = error.what();
      finding.is_good = false;
      if (failure_ == nullptr) failure_ = std::current_exception();
    }
    findings_.push_back(std::move(finding));
  }

  bool has_own_engine() const { return options_.server.engines.empty(); }

  // Its weights are looked at where they are needed here, but not converted.
  std::string Model() {
    const ModelSource& source = options_.setup.source;
    text_ = OpenModelText(source);
    std::string found = source.Name() + ", " + Number(text_->tokenizer().size()) + " tokens";
    if (!has_own_engine()) return found + "; its text alone";
    ProgressLine progress(options_.setup.is_quiet);
    const ModelInfo info = OpenModel({.directory = source.directory}, {}, progress).model().info();
    return found + ", " + Fixed(static_cast<double>(info.parameters) / 1e6, 2) +
           " million parameters, a context of " + Number(info.context);
  }

  std::string Template() {
    if (!text_.has_value()) return "not checked";
    const ModelText text = OpenServedText(options_);
    if (!text.has_chat_template()) return "none: /v1/chat/completions refuses all requests";
    const ChatMessage probe[] = {{"user", "Hello"}};
    return "makes " + QuotedLine(text.RenderChat(probe)) + " of \"Hello\"";
  }

  std::string Engines() {
    const std::vector<std::string>& endpoints = options_.server.engines;
    if (endpoints.empty()) return "a child of this process";
    if (!text_.has_value()) return "not checked";
    // An engine of vLLM connects to one frontend only: the server must be that one.
    if (HasVllmEngine(options_.server)) return "connects when this server runs";
    const std::unique_ptr<Client> client = ConnectClient(
        endpoints, text_->tokenizer(),
        {.stop_at = options_.server.stop_at, .connect_timeout = options_.server.connect_timeout});
    has_grammars_ = client->info().has_grammars;
    return client->info().model + " of " + Number(endpoints.size()) +
           (endpoints.size() == 1 ? " engine" : " engines") + ", a context of " +
           Number(client->info().context);
  }

  std::string Grammars() const {
    if (has_own_engine()) {
      const auto library = FindGrammarLibrary(options_.setup.grammar_library);
      return library.has_value() ? library->path()
                                 : "none: \"pip install --no-deps xgrammar==0.2.8 "
                                   "apache-tvm-ffi==0.1.15.post2\" installs the library";
    }
    if (!has_grammars_.has_value()) return "not checked";
    return *has_grammars_ ? "the engine takes them" : "none: the engine takes none";
  }

  std::string Address() {
    CheckAddress(options_.server);
    return AddressText(options_.server) +
           (IsLocal(options_.server) ? "" : ", which other machines may reach");
  }

  std::string Keys() {
    const size_t count = options_.server.api_keys.size();
    return count == 0 ? "none: every client that reaches the server may use it" : Number(count);
  }

  const ServeOptions& options_;
  std::optional<ModelText> text_;
  std::optional<bool> has_grammars_;  // of engines elsewhere
  std::vector<Finding> findings_;
  std::exception_ptr failure_;
};

}  // namespace

void RunServeCheck(const ServeOptions& options, std::ostream& out, const Terminal& terminal) {
  ServeCheck check(options);
  check.Run();
  if (options.as_json) {
    JsonWriter json(out);
    json.Object([&] {
      json.Key("ok").Value(check.failure() == nullptr);
      json.Key("checks").Array([&] {
        for (const Finding& finding : check.findings()) {
          json.Object([&] {
            json.Key("name").Value(finding.name);
            json.Key("ok").Value(finding.is_good);
            json.Key("found").Value(finding.text);
          });
        }
      });
    });
    out << '\n';
  } else {
    Table table("lll");
    for (const Finding& finding : check.findings()) {
      table.Add({finding.name, finding.is_good ? "ok" : "WRONG", finding.text},
                finding.is_good ? Style::kPlain : Style::kHeading);
    }
    table.Print(out, terminal);
  }
  out.flush();
  if (check.failure() != nullptr) std::rethrow_exception(check.failure());
}

}  // namespace sluice::cli
