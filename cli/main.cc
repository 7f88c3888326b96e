// The command sluice: its subcommands and flags. What they do stands in a file each.
//
// Text goes to standard output, diagnostics to standard error. Exit codes: 0, 2 for a command line
// that cannot be understood or a value out of range, 1 for every other failure, 128 and the number
// of the signal (130 for Ctrl-C) when one has ended a generation. An engine and a server are ended
// by signals.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>

#include "cli/bench.h"
#include "cli/completion.h"
#include "cli/demo.h"
#include "cli/demo_row.h"
#include "cli/explain.h"
#ifdef SLUICE_HAS_ENGINE
#include "cli/generate.h"
#include "cli/inspect_model.h"
#include "cli/trace.h"
#endif
#ifdef SLUICE_HAS_LINK
#include "cli/engine.h"
#include "cli/mock_engine.h"
#include "cli/replay.h"
#endif
#ifdef SLUICE_HAS_SERVER
#include "cli/serve.h"
#endif
#include "cli/inspect.h"
#include "cli/inspect_row.h"
#include "cli/interrupt.h"
#include "cli/param_flags.h"
#include "cli/params_table.h"
#ifdef SLUICE_HAS_TEXT
#include "cli/text_commands.h"
#endif
#include "sluice/error.hpp"
#include "sluice/version.hpp"

namespace {

using sluice::cli::Terminal;

constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsageError = 2;

// "--top-p [0.9]": the default says more than the type does. The environment variables follow one
// rule, which the footer of a command states.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(36); }

  std::string make_option_opts(const CLI::Option* option) const override {
    const bool is_positional = option->get_lnames().empty() && option->get_snames().empty();
    if (option->get_type_size() == 0 || is_positional) return "";
    const std::string value = option->get_default_str();
    return value.empty() ? " " + option->get_type_name() : " [" + value + "]";
  }
};

using Action = std::function<void()>;

void AddDemo(CLI::App& app, Action& action, sluice::cli::DemoOptions& options) {
  CLI::App* demo = app.add_subcommand("demo", "sample one token and show every stage of the way");
  demo->footer("Every sampling flag is also an environment variable: --top-k is SLUICE_TOP_K.");
  demo->add_flag("--json", options.as_json, "write one JSON object");
  demo->add_option("--show-candidates", options.show_candidates, "how many tokens to list")
      ->check(CLI::Range(0, sluice::cli::kDemoVocab))
      ->capture_default_str();
  sluice::cli::AddExecutionFlags(*demo, options.execution);
  sluice::cli::AddParamFlags(*demo, options.params);
  demo->callback([&action, &options] {
    action = [&options] { sluice::cli::RunDemo(options, std::cout, Terminal::Detect()); };
  });
}

struct InspectOptions {
  sluice::cli::InspectRowOptions row;
  bool as_json = false;
  bool as_markdown = false;
#ifdef SLUICE_HAS_ENGINE
  sluice::cli::InspectModelOptions model;
#endif
};

void AddInspect(CLI::App& app, Action& action, InspectOptions& options) {
  CLI::App* const inspect =
      app.add_subcommand("inspect", "show a row of logits, or what this build has on this machine");
  inspect->require_subcommand(0, 1);
  CLI::App* const backends = inspect->add_subcommand("backends", "the backends, the fastest first");
  backends->add_flag("--json", options.as_json, "write one JSON object");
  backends->callback([&action, &options] {
    action = [&options] {
      if (options.as_json) {
        sluice::cli::PrintBackendsJson(std::cout);
      } else {
        sluice::cli::PrintBackends(std::cout, Terminal::Detect());
      }
    };
  });
  CLI::App* const params =
      inspect->add_subcommand("params", "every sampling parameter and its names");
  params->add_flag("--json", options.as_json, "write one JSON object");
  params->add_flag("--markdown", options.as_markdown, "write the page docs/parameters.md")
      ->excludes("--json");
  params->callback([&action, &options] {
    action = [&options] {
      if (options.as_markdown) {
        sluice::cli::PrintParamsMarkdown(std::cout);
      } else if (options.as_json) {
        sluice::cli::PrintParamsJson(std::cout);
      } else {
        sluice::cli::PrintParams(std::cout, Terminal::Detect());
      }
    };
  });
#ifdef SLUICE_HAS_ENGINE
  CLI::App* const model =
      inspect->add_subcommand("model", "a model's shapes, its tokenizer and what its head costs");
  sluice::cli::AddModelFlags(*model, options.model.source);
  model->add_option("DIR", options.model.source.directory, "folder of the model, as --model")
      ->type_name("DIR");
  model->add_flag("--json", options.model.as_json, "write one JSON object");
  model->callback([&action, &options] {
    action = [&options] {
      sluice::cli::RunInspectModel(options.model, std::cout, Terminal::Detect());
    };
  });
#endif
  sluice::cli::AddInspectRow(*inspect, options.row);
  inspect->footer("FILE is a row of logits to show; the subcommands take none. " +
                  inspect->get_footer());
  inspect->callback([&action, &options, inspect] {
    if (!inspect->get_subcommands().empty()) return;
    if (options.row.row.path.empty()) throw CLI::RequiredError("FILE.npy or a subcommand");
    action = [&options] { sluice::cli::RunInspectRow(options.row, std::cout, Terminal::Detect()); };
  });
}

void AddCompletion(CLI::App& app, Action& action, std::string& shell) {
  CLI::App* const completion =
      app.add_subcommand("completion", "write a completion script for a shell");
  completion->add_option("SHELL", shell, "which shell")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash"}));
  completion->callback(
      [&app, &action] { action = [&app] { sluice::cli::PrintBashCompletion(app, std::cout); }; });
}

int Run(int argc, char** argv) {
  CLI::App app("The last mile of language-model decoding: from hidden states to text", "sluice");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "sluice " + std::string(sluice::kVersionString));
  app.require_subcommand(1);

  Action action;
  sluice::cli::DemoOptions demo;
  InspectOptions inspect;
  sluice::cli::ExplainOptions explain;
  std::string shell;
#ifdef SLUICE_HAS_ENGINE
  sluice::cli::AddGenerate(app, action);
  sluice::cli::AddTrace(app, action);
#endif
#ifdef SLUICE_HAS_LINK
#ifdef SLUICE_HAS_SERVER
  sluice::cli::AddServe(app, action);
#endif
  sluice::cli::AddEngine(app, action);
  sluice::cli::AddMockEngine(app, action);
  sluice::cli::AddReplay(app, action);
#endif
  AddDemo(app, action, demo);
  AddInspect(app, action, inspect);
  sluice::cli::AddExplain(app, explain)->callback([&action, &explain] {
    action = [&explain] { sluice::cli::RunExplain(explain, std::cout, Terminal::Detect()); };
  });
  sluice::cli::AddBench(app, action);
#ifdef SLUICE_HAS_TEXT
  sluice::cli::AddTextCommands(app, action);
#endif
  AddCompletion(app, action, shell);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help and --version come this way too
    return app.exit(error) == 0 ? kSuccess : kUsageError;
  }
  action();
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "sluice: cannot write to standard output\n";
    return kFailure;
  }
  return kSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const sluice::cli::Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const sluice::Error& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return error.code() == sluice::ErrorCode::kInvalidValue ? kUsageError : kFailure;
  } catch (const std::exception& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return kFailure;
  }
}
