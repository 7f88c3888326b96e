// The command sluice: its subcommands and flags. What they do stands in a file each.
//
// Text goes to standard output, diagnostics to standard error, each after "sluice: ". Exit codes:
// 0, 2 for a command line that cannot be understood, a file that does not exist or a value out of
// range, 1 for every other failure, 128 and the number of the signal (130 for Ctrl-C) when one has
// ended a generation. An engine and a server are ended by signals.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/bench.h"
#include "cli/completion/completion.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_row.h"
#include "cli/flags/choices.h"
#include "cli/inspect/explain.h"
#ifdef SLUICE_HAS_ENGINE
#include "cli/files/trace.h"
#include "cli/generate/generate.h"
#include "cli/inspect/inspect_model.h"
#endif
#ifdef SLUICE_HAS_LINK
#include "cli/engine/engine.h"
#include "cli/engine/mock_engine.h"
#include "cli/replay/replay.h"
#endif
#ifdef SLUICE_HAS_SERVER
#include "cli/serve/serve.h"
#include "cli/vllm/vllm.h"
#endif
#include "cli/flags/param_flags.h"
#include "cli/flags/params_table.h"
#include "cli/help.h"
#include "cli/inspect/inspect.h"
#include "cli/inspect/inspect_row.h"
#include "cli/interrupt.h"
#ifdef SLUICE_HAS_TEXT
#include "cli/text_commands.h"
#endif
#include "cli/usage.h"
#include "cli/usage_error.h"
#include "json/build_report.h"
#include "sluice/error.hpp"
#include "sluice/version.hpp"
#ifdef SLUICE_HAS_DEFAULT_MODEL
#include "sluice/default_model.hpp"
#endif

namespace {

using sluice::cli::Terminal;
using sluice::cli::UsageError;

constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsageError = 2;

using Action = std::function<void()>;

void AddDemo(CLI::App& app, Action& action, sluice::cli::DemoOptions& options) {
  CLI::App* demo =
      app.add_subcommand("demo", "sample one token of a synthetic row and show every stage");
  demo->footer("Every sampling flag is also an environment variable: --top-k is SLUICE_TOP_K.");
  demo->add_flag("--json", options.as_json, "write one JSON object");
  demo->add_option("--show-candidates", options.show_candidates,
                   "list this many of the most likely tokens")
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
  CLI::App* const inspect = app.add_subcommand(
      "inspect", "show a row of logits, a model, the backends or the parameters");
  inspect->require_subcommand(0, 1);
  CLI::App* const backends =
      inspect->add_subcommand("backends", "list the backends, the fastest first");
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
      inspect->add_subcommand("params", "list every sampling parameter and its names");
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
  CLI::App* const model = inspect->add_subcommand(
      "model", "show a model's shapes, its tokenizer and the cost of its head");
  sluice::cli::AddModelFlags(*model, options.model.source);
  model
      ->add_option("DIR", options.model.source.directory,
                   "the folder of the model, as --model takes it")
      ->type_name("DIR");
  model->add_flag("--json", options.model.as_json, "write one JSON object");
  model->callback([&action, &options] {
    action = [&options] {
      sluice::cli::RunInspectModel(options.model, std::cout, Terminal::Detect());
    };
  });
#endif
  sluice::cli::AddInspectRow(*inspect, options.row);
  inspect->footer("Give a FILE to show a row of its logits, or one of the commands.\n" +
                  inspect->get_footer());
  inspect->callback([&action, &options, inspect] {
    if (!inspect->get_subcommands().empty()) return;
    if (options.row.row.path.empty()) {
      throw UsageError(
          "missing FILE: give a .npy file of logits, or the command backends, params or model\n"
          "See sluice inspect --help");
    }
    action = [&options] { sluice::cli::RunInspectRow(options.row, std::cout, Terminal::Detect()); };
  });
}

void AddCompletion(CLI::App& app, Action& action, std::string& shell) {
  CLI::App* const completion =
      app.add_subcommand("completion", "write a completion script for bash, zsh or fish");
  completion->add_option("SHELL", shell, "the shell: bash, zsh or fish")
      ->required()
      ->type_name(sluice::cli::ChoiceType({"bash", "zsh", "fish"}));
  completion->footer(
      "bash reads the script from ~/.local/share/bash-completion/completions/sluice, zsh from a "
      "file _sluice in a folder of $fpath, fish from ~/.config/fish/completions/sluice.fish.");
  completion->callback([&app, &action, &shell] {
    action = [&app, &shell] { sluice::cli::PrintCompletion(app, shell, std::cout); };
  });
}

void PrintBuildReport() {
  int64_t model_bytes = 0;
#ifdef SLUICE_HAS_DEFAULT_MODEL
  for (const std::span<const std::byte> file : sluice::DefaultModelFiles().safetensors) {
    model_bytes += std::ssize(file);
  }
#endif
  sluice::WriteBuildReport(std::cout, model_bytes);
  std::cout << '\n';
}

int Finished() {
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "sluice: cannot write to standard output\n";
    return kFailure;
  }
  return kSuccess;
}

int Run(int argc, char** argv) {
  CLI::App app(
      "Sluice turns a language model's hidden states into text, the same text on every machine.",
      "sluice");
  app.set_version_flag("--version", "sluice " + std::string(sluice::kVersionString),
                       "show the version; with --json all that a bug report needs");
  app.require_subcommand(1);

  Action action;
  sluice::cli::DemoOptions demo;
  InspectOptions inspect;
  sluice::cli::ExplainOptions explain;
  std::string shell;
#ifdef SLUICE_HAS_ENGINE
  sluice::cli::AddGenerate(app, action);
#endif
#ifdef SLUICE_HAS_LINK
#ifdef SLUICE_HAS_SERVER
  sluice::cli::AddServe(app, action);
  sluice::cli::AddVllm(app, action);
#endif
  sluice::cli::AddEngine(app, action);
#endif
#ifdef SLUICE_HAS_TEXT
  sluice::cli::AddTextCommands(app, action);
#endif
  AddInspect(app, action, inspect);
  sluice::cli::AddExplain(app, explain)->callback([&action, &explain] {
    action = [&explain] { sluice::cli::RunExplain(explain, std::cout, Terminal::Detect()); };
  });
  AddDemo(app, action, demo);
  AddCompletion(app, action, shell);
#ifdef SLUICE_HAS_ENGINE
  sluice::cli::AddTrace(app, action);
#endif
#ifdef SLUICE_HAS_LINK
  sluice::cli::AddReplay(app, action);
  sluice::cli::AddMockEngine(app, action);
#endif
  sluice::cli::AddBench(app, action);
  sluice::cli::CheckChoices(app);
  sluice::cli::FinishHelp(app);

  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"--version", "--json"} ||
      words == std::vector<std::string>{"--json", "--version"}) {
    PrintBuildReport();
    return Finished();
  }
  try {
    app.parse(argc, argv);
    action();
  } catch (const CLI::Success& wanted) {  // --help and --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    if (sluice::cli::IsWithoutSubcommand(app, error, words)) {
      std::cerr << app.help();
    } else {
      std::cerr << "sluice: " << sluice::cli::UsageText(app, error, words) << '\n';
    }
    return kUsageError;
  } catch (const sluice::Error& error) {
    throw sluice::cli::NamedAsGiven(app, error, words);
  }
  return Finished();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const sluice::cli::Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const UsageError& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return kUsageError;
  } catch (const sluice::Error& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return error.code() == sluice::ErrorCode::kInvalidValue ? kUsageError : kFailure;
  } catch (const std::exception& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return kFailure;
  }
}
