#include "cli/replay/replay.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "cli/engine/client_output.h"
#include "cli/engine/endpoint.h"
#include "cli/files/file.h"
#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "cli/generate/generate_report.h"
#include "cli/interrupt.h"
#include "cli/replay/replay_difference.h"
#include "cli/text.h"
#include "json/writer.h"
#include "sluice/error.hpp"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollTime(50);  // how long Ctrl-C may wait

// The engine that the records go through: there, or one of this process's own.
class ReplayEngine {
 public:
  explicit ReplayEngine(const ReplayOptions& options) {
    if (options.engine.empty()) {
      own_ = std::make_unique<ModelEngine>(options.setup);
      client_ = MakeLocalClient(own_->engine(), own_->Info(), own_->checkpoint().tokenizer(),
                                {.stop_at = options.stop_at});
    } else {
      client_ = ConnectClient(std::span(&options.engine, 1),
                              OpenModelText(options.setup.source).tokenizer(),
                              {.stop_at = options.stop_at});
    }
  }
  Client& client() { return *client_; }

 private:
  std::unique_ptr<ModelEngine> own_;
  std::unique_ptr<Client> client_;
};

// As it was: complete, so that nothing is to be added.
ClientRequest RequestOf(const EngineRequest& record) {
  return {.params = record.params,
          .prompt = record.prompt,
          .choice = record.choice,
          .max_tokens = record.max_tokens,
          .prompt_logprobs = record.prompt_logprobs,
          .text = record.text,
          .grammar = record.grammar,
          .thinking = record.thinking,
          .ignores_end = true,
          .mode = OutputMode::kFinal};
}

// Every request, at most `concurrency` at once. Fewer outputs when a signal came.
std::vector<RequestOutput> RunAll(const std::vector<RequestRecord>& records, Client& client,
                                  int64_t concurrency, const InterruptGuard& interrupt,
                                  ProgressLine& progress) {
  const auto count = std::ssize(records);
  int64_t at_once = client.info().max_client_requests;
  if (concurrency > 0) at_once = std::min(at_once, concurrency);
  std::vector<RequestOutput> outputs(records.size());
  std::unordered_map<uint64_t, size_t> places;
  int64_t next = 0;
  for (int64_t done = 0; done < count && interrupt.signal() == 0;) {
    for (; next < count && client.live_requests() < at_once; ++next) {
      const auto place = static_cast<size_t>(next);
      try {
        places[client.Submit(RequestOf(records[place].request)).value] = place;
      } catch (const Error& error) {
        // A slot is free after the engine's last message of it, which may follow the end.
        if (error.code() == ErrorCode::kExhausted) break;
        throw Error(error.code(), "request " + Number(next + 1) + ": " + error.parameter(),
                    error.value(), error.allowed());
      }
    }
    for (const ClientOutput& output : client.Poll(kPollTime)) {
      if (output.end == GenerationEnd::kNone) continue;
      outputs[places[output.request.value]].Add(output);
      ++done;
    }
    progress.Show("replaying", done, count);
  }
  progress.Clear();
  interrupt.ThrowIfInterrupted();
  return outputs;
}

void PrintTexts(const std::vector<RequestOutput>& outputs, std::ostream& out,
                const Terminal& terminal) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const RequestOutput& output = outputs[i];
    const std::string heading = "--- " + Number(i + 1) + " of " + Number(outputs.size()) + ", " +
                                std::string(Name(output.end)) + " after " +
                                Count(output.output_tokens, "token") + " ---";
    out << terminal.Styled(heading, Style::kHeading) << '\n' << output.text;
    if (!output.text.empty() && output.text.back() != '\n') out << '\n';
  }
}

void WriteTexts(const std::vector<RequestOutput>& outputs,
                const std::vector<std::string>& differences, const EngineInfo& info,
                int64_t wall_ns, std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("version").Value(kVersionString);
    json.Key("model").Value(info.model);
    json.Key("wall_ns").Value(wall_ns);
    json.Key("requests").Array([&] {
      for (size_t i = 0; i < outputs.size(); ++i) {
        const RequestOutput& output = outputs[i];
        json.Object([&] {
          json.Key("text").Value(output.text);
          json.Key("token_ids").Array([&] {
            for (const int32_t id : output.tokens.ids) json.Value(id);
          });
          json.Key("end").Value(Name(output.end));
          if (!output.message.empty()) json.Key("message").Value(output.message);
          if (output.end == GenerationEnd::kRejected) json.Key("code").Value(Name(output.code));
          if (!output.parameter.empty()) json.Key("parameter").Value(output.parameter);
          json.Key("prompt_tokens").Value(output.prompt_tokens);
          json.Key("output_tokens").Value(output.output_tokens);
          if (differences.empty()) return;
          json.Key("difference");
          if (differences[i].empty()) {
            json.Null();
          } else {
            json.Value(differences[i]);
          }
        });
      }
    });
  });
  out << '\n' << std::flush;
}

}  // namespace

void AddReplay(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command = app.add_subcommand("replay", "replay requests saved with --record");
  const auto options = std::make_shared<ReplayOptions>();
  command
      ->add_option("FILE", options->path,
                   "a file of requests, one on each line; - is standard input")
      ->type_name("FILE")
      ->required();
  AddEngineSetupFlags(*command, options->setup);
  CLI::Option* const engine =
      command
          ->add_option("--engine", options->engine,
                       "run on this engine (see sluice engine); --model gives the tokenizer")
          ->type_name("ENDPOINT");
  for (const char* flag : {"--weights", "--threads", "--head", "--head-file", "--backend",
                           "--max-requests", "--step-tokens", "--cache-tokens", "--max-prefixes",
                           "--draft-tokens", "--steps-in-flight", "--max-logprobs"}) {
    engine->excludes(command->get_option(flag));
  }
  command
      ->add_option_function<std::string>(
          "--stop-at",
          [options = options.get()](const std::string& name) {
            options->stop_at = StopAtByName(name);
          },
          "where stops are found; the text is the same")
      ->default_str("engine")
      ->type_name(ChoiceType({"engine", "frontend"}));
  command
      ->add_option("--concurrency", options->concurrency,
                   "run this many requests at once; 0 is all of them")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str();
  command->add_flag("--check", options->checks,
                    "compare with the recorded results; exit code 1 at a difference");
  command->add_flag("--json", options->as_json, "write one JSON object");
  command->callback([&action, options] {
    action = [options] { RunReplay(*options, std::cout, Terminal::Detect()); };
  });
}

void RunReplay(const ReplayOptions& options, std::ostream& out, const Terminal& terminal) {
  if (!options.engine.empty()) CheckEndpoint("engine", options.engine);
  std::vector<RequestRecord> records;
  try {
    records = ReadRecords(ReadTextFile("FILE", options.path));
  } catch (const Error& error) {
    if (error.parameter() != "FILE") RethrowOf(options.path, error);
    throw;
  }
  ReplayEngine engine(options);
  Client& client = engine.client();
  const InterruptGuard interrupt;
  ProgressLine progress(options.setup.is_quiet);
  const Clock::time_point start = Clock::now();
  const std::vector<RequestOutput> outputs =
      RunAll(records, client, options.concurrency, interrupt, progress);
  const int64_t wall_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();

  std::vector<std::string> differences;
  int64_t checked = 0;
  for (size_t i = 0; i < records.size() && options.checks; ++i) {
    const std::optional<RequestResult>& recorded = records[i].result;
    if (recorded.has_value()) ++checked;
    differences.push_back(recorded.has_value() ? FirstDifference(*recorded, outputs[i].Result())
                                               : "");
  }
  if (options.as_json) {
    WriteTexts(outputs, differences, client.info(), wall_ns, out);
  } else {
    PrintTexts(outputs, out, terminal);
  }
  if (!options.setup.is_quiet) {
    int64_t tokens = 0;
    for (const RequestOutput& output : outputs) tokens += output.output_tokens;
    std::cerr << "  " << Count(std::ssize(outputs), "request") << ", " << Count(tokens, "token")
              << " in " << Duration(wall_ns) << ", " << Rate(tokens, wall_ns);
    if (options.checks) std::cerr << "; " << checked << " checked";
    std::cerr << '\n';
  }
  for (size_t i = 0; i < differences.size(); ++i) {
    if (differences[i].empty()) continue;
    throw std::runtime_error("request " + Number(i + 1) + ": " + differences[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string failure = FailureText(outputs[i]);
    if (!failure.empty()) throw std::runtime_error("request " + Number(i + 1) + ": " + failure);
  }
}

}  // namespace sluice::cli
