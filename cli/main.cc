// The command sluice: its subcommands and flags. What they do stands in a file each.
//
// Text goes to standard output, diagnostics to standard error. Exit codes: 0, 2 for a command line
// that cannot be understood or a value out of range, 1 for every other failure.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>

#include "cli/bench.h"
#include "cli/demo.h"
#include "cli/demo_row.h"
#include "cli/inspect.h"
#include "cli/param_flags.h"
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
    if (option->get_type_size() == 0) return "";
    const std::string value = option->get_default_str();
    return value.empty() ? " " + option->get_type_name() : " [" + value + "]";
  }
};

CLI::App* AddDemo(CLI::App& app, sluice::cli::DemoOptions& options) {
  CLI::App* demo = app.add_subcommand("demo", "sample one token and show every stage of the way");
  demo->footer("Every sampling flag is also an environment variable: --top-k is SLUICE_TOP_K.");
  demo->add_flag("--json", options.as_json, "write one JSON object");
  demo->add_option("--show-candidates", options.show_candidates, "how many tokens to list")
      ->check(CLI::Range(0, sluice::cli::kDemoVocab))
      ->capture_default_str();
  sluice::cli::AddParamFlags(*demo, options.params);
  return demo;
}

int Run(int argc, char** argv) {
  CLI::App app("The last mile of language-model decoding: from hidden states to text", "sluice");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "sluice " + std::string(sluice::kVersionString));
  app.require_subcommand(1);

  sluice::cli::DemoOptions demo_options;
  const CLI::App* demo = AddDemo(app, demo_options);

  CLI::App* inspect = app.add_subcommand("inspect", "show what this build has on this machine");
  inspect->require_subcommand(1);
  CLI::App* backends = inspect->add_subcommand("backends", "the backends, the fastest first");
  bool backends_as_json = false;
  backends->add_flag("--json", backends_as_json, "write one JSON object");

  std::function<void()> bench;
  sluice::cli::AddBench(app, bench);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help and --version come this way too
    return app.exit(error) == 0 ? kSuccess : kUsageError;
  }

  if (demo->parsed()) {
    sluice::cli::RunDemo(demo_options, std::cout, Terminal::Detect());
  } else if (bench) {
    bench();
  } else if (backends_as_json) {
    sluice::cli::PrintBackendsJson(std::cout);
  } else {
    sluice::cli::PrintBackends(std::cout, Terminal::Detect());
  }
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
  } catch (const sluice::Error& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return error.code() == sluice::ErrorCode::kInvalidValue ? kUsageError : kFailure;
  } catch (const std::exception& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return kFailure;
  }
}
