#include "cli/inspect/inspect_model.h"

#include <string>

#include "cli/flags/param_flags.h"
#include "cli/table.h"
#include "cli/text.h"
#include "head/certified/planes.h"
#include "json/writer.h"

namespace sluice::cli {
namespace {

std::string Megabytes(size_t bytes) { return Fixed(static_cast<double>(bytes) / 1e6, 1) + " MB"; }

size_t HeadBytes(const MatrixView& weight) {
  return static_cast<size_t>(weight.rows * weight.columns) * SizeOf(weight.dtype);
}

size_t PlaneBytes(const MatrixView& weight) {
  return PlaneLayout(CertificateKind::kDither4, weight.rows, weight.columns).end;
}

std::string EndTokens(const Checkpoint& checkpoint) {
  std::string text;
  for (const int32_t id : checkpoint.end_tokens()) {
    const auto token = checkpoint.tokenizer().Token(id);
    text += (text.empty() ? "" : ", ") + Number(id) + " " + QuotedLine(token.value_or(""));
  }
  return text.empty() ? "none" : text;
}

void Print(const InspectModelOptions& options, const Checkpoint& checkpoint, std::ostream& out,
           const Terminal& terminal) {
  const ModelInfo& info = checkpoint.model().info();
  const DenseHead head = checkpoint.head();
  const size_t head_bytes = HeadBytes(head.weight);
  out << terminal.Styled(options.source.Name() + ": " + info.architecture, Style::kHeading) << '\n';
  Table table("ll");
  table.Add({"parameters", Fixed(static_cast<double>(info.parameters) / 1e6, 2) + " million"});
  table.Add({"layers", Number(info.layers) + " of width " + Number(info.dim) +
                           ", feed-forward width " + Number(info.ffn_dim)});
  table.Add({"attention", Number(info.heads) + " heads of width " + Number(info.head_dim) + ", " +
                              Number(info.kv_heads) + " of keys and values"});
  table.Add({"context", Number(info.context) + " tokens"});
  table.Add({"vocabulary", Number(info.vocab) + " rows, " + Number(checkpoint.vocab()) +
                               " of them with a token; the tokenizer has " +
                               Number(checkpoint.tokenizer().size()) + " ids"});
  table.Add({"ends with", EndTokens(checkpoint)});
  table.Add({"chat template", checkpoint.text().has_chat_template() ? "yes" : "no"});
  table.Add({"a token reads", Megabytes(info.weight_bytes)});
  table.Add({"the head's share",
             Megabytes(head_bytes) + ", " +
                 Percent(static_cast<double>(head_bytes) / static_cast<double>(info.weight_bytes)) +
                 ": " + Number(head.weight.rows) + " x " + Number(head.weight.columns) + " " +
                 std::string(Name(head.weight.dtype)) +
                 (info.has_tied_head ? ", the embeddings" : "")});
  table.Add({"certified head", Megabytes(PlaneBytes(head.weight)) + " of planes, and few rows"});
  if (info.logit_softcap != 0.0f) table.Add({"soft-cap", Number(info.logit_softcap)});
  const std::string flags = FlagsOf(checkpoint.generation_config().params, SamplingParams{});
  table.Add({"samples with", flags.empty() ? "the defaults" : flags});
  table.Print(out, terminal);
}

void PrintJson(const InspectModelOptions& options, const Checkpoint& checkpoint,
               std::ostream& out) {
  const ModelInfo& info = checkpoint.model().info();
  const DenseHead head = checkpoint.head();
  JsonWriter json(out);
  json.Object([&] {
    json.Key("model").Value(options.source.Name());
    json.Key("architecture").Value(info.architecture);
    json.Key("parameters").Value(info.parameters);
    json.Key("layers").Value(info.layers);
    json.Key("dim").Value(info.dim);
    json.Key("ffn_dim").Value(info.ffn_dim);
    json.Key("heads").Value(info.heads);
    json.Key("kv_heads").Value(info.kv_heads);
    json.Key("head_dim").Value(info.head_dim);
    json.Key("context").Value(info.context);
    json.Key("vocab").Value(info.vocab);
    json.Key("tokens").Value(checkpoint.vocab());
    json.Key("tokenizer_size").Value(checkpoint.tokenizer().size());
    json.Key("end_token_ids").Array([&] {
      for (const int32_t id : checkpoint.end_tokens()) json.Value(id);
    });
    json.Key("has_chat_template").Value(checkpoint.text().has_chat_template());
    json.Key("weight_bytes").Value(info.weight_bytes);
    json.Key("logit_softcap").Value(info.logit_softcap);
    json.Key("head").Object([&] {
      json.Key("dtype").Value(Name(head.weight.dtype));
      json.Key("is_tied").Value(info.has_tied_head);
      json.Key("bytes").Value(HeadBytes(head.weight));
      json.Key("plane_bytes").Value(PlaneBytes(head.weight));
    });
  });
  out << '\n';
}

}  // namespace

void RunInspectModel(const InspectModelOptions& options, std::ostream& out,
                     const Terminal& terminal) {
  ProgressLine progress(false);
  ThreadPool pool(ThreadsFor(options.source));
  const Checkpoint checkpoint = OpenModel(options.source, pool.parallel(), progress);
  if (options.as_json) {
    PrintJson(options, checkpoint, out);
  } else {
    Print(options, checkpoint, out, terminal);
  }
}

}  // namespace sluice::cli
