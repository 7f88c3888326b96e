#include "cli/files/trace.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "cli/generate/generation.h"
#include "cli/inspect/stage_text.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "json/params_writer.h"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

std::string MadeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    const bool is_file = std::filesystem::exists(folder);
    throw UsageError(is_file ? "not a folder: " + folder
                             : "cannot make the folder " + folder + ": " + error.message());
  }
  return folder;
}

std::string ParametersText(const Generation& generation) {
  std::ostringstream text;
  JsonWriter json(text);
  json.Object([&] { ParamsWriter(json).WriteFields(generation.generator().params()); });
  return text.str();
}

SafetensorsWriter::Metadata MetadataOf(const Generation& generation) {
  return {{"version", std::string(kVersionString)},
          {"model", std::string(generation.options().source.Name())},
          {"backend", std::string(generation.backend_name())},
          {"head", std::string(Name(generation.head()))},
          {"prompt", generation.prompt().text},
          {"parameters", ParametersText(generation)}};
}

class TraceFiles {
 public:
  TraceFiles(const TraceOptions& options, const Generation& generation)
      : folder_(MadeFolder(options.output)),
        dim_(generation.checkpoint().model().info().dim),
        vocab_(generation.checkpoint().vocab()),
        tensors_(MakeTraceTensors(options.format, folder_, dim_, vocab_, MetadataOf(generation))) {}

  void Add(const Generator& generator, const ChoiceStep& step) {
    tensors_->Append(
        {{static_cast<const float*>(generator.hidden().data), static_cast<size_t>(dim_)},
         {static_cast<const float*>(generator.logits().data), static_cast<size_t>(vocab_)},
         generator.kept(),
         step.token.id});
    std::ostringstream row;
    JsonWriter json(row);
    json.Object([&] {
      json.Key("token").Value(step.token.id);
      json.Key("status").Value(Name(step.token.status));
      json.Key("cut").Object([&] { WriteCut(json, step.token.cut); });
      const CutMass& mass = generator.masses()[0];
      json.Key("mass").Object([&] {
        json.Key("kept").Value(mass.kept);
        json.Key("total").Value(mass.total);
        json.Key("margin");
        if (mass.margin == CutMass{}.margin) {
          json.Null();  // top-p is off
        } else {
          json.Value(mass.margin);
        }
      });
      json.Key("certificate").Object([&] {
        json.Key("path").Value(Name(step.certificate.path));
        json.Key("reason").Value(Name(step.certificate.reason));
        json.Key("survivors").Value(step.certificate.survivors);
        json.Key("margin").Value(step.certificate.margin);
      });
    });
    rows_.push_back(row.str());
  }

  void Close(const Generation& generation) {
    tensors_->Close();
    const std::string path = folder_ + "/trace.json";
    std::ofstream file(path);
    JsonWriter json(file);
    json.Object([&] {
      json.Key("version").Value(kVersionString);
      json.Key("model").Value(generation.options().source.Name());
      json.Key("backend").Value(generation.backend_name());
      json.Key("head").Value(Name(generation.head()));
      json.Key("dim").Value(dim_);
      json.Key("vocab").Value(vocab_);
      json.Key("prompt").Value(generation.prompt().text);
      json.Key("prompt_token_ids").Array([&] {
        for (const int32_t id : generation.prompt().ids) json.Value(id);
      });
      json.Key("parameters");
      json.Raw(ParametersText(generation));
      json.Key("tokens").Array([&] {
        for (const std::string& row : rows_) json.Raw(row);
      });
    });
    file << '\n';
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
  }

  int64_t rows() const { return std::ssize(rows_); }

 private:
  std::string folder_;
  int64_t dim_;
  int64_t vocab_;
  std::unique_ptr<TraceTensors> tensors_;
  std::vector<std::string> rows_;  // of trace.json
};

}  // namespace

void AddTrace(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command = app.add_subcommand(
      "trace", "write hidden states, logits and kept sets of a generation to files");
  const auto options = std::make_shared<TraceOptions>();
  AddGenerationFlags(*command, options->generation, 1);
  command->add_option("--output", options->output, "a folder for the files")
      ->type_name("DIR")
      ->required();
  command
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& name) { options->format = TraceFormatByName(name); },
          "write a .npy file for each tensor, or one .safetensors file")
      ->default_str("npy")
      ->type_name(ChoiceType({"npy", "safetensors"}));
  command->callback([&action, options] { action = [options] { RunTrace(*options, std::cout); }; });
}

void RunTrace(const TraceOptions& options, std::ostream& out) {
  Generation generation(options.generation, {.logits = true, .kept = true, .masses = true});
  const InterruptGuard interrupt;
  generation.Prefill(interrupt);
  Generator& generator = generation.generator();
  TraceFiles files(options, generation);
  ProgressLine progress(options.generation.is_quiet);
  while (generator.live_choices() > 0 && interrupt.signal() == 0) {
    const ChoiceStep& step = generator.Step()[0];
    files.Add(generator, step);
    progress.Show("tracing", files.rows(), options.generation.max_tokens);
    if (step.end != GenerationEnd::kStatus) continue;
    files.Close(generation);
    throw std::runtime_error("a row gave no token: " + std::string(Name(step.token.status)));
  }
  progress.Clear();
  files.Close(generation);
  out << options.output << ": " << files.rows() << " tokens, seed " << *generator.params().seed
      << '\n';
  interrupt.ThrowIfInterrupted();
}

}  // namespace sluice::cli
