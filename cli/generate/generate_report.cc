#include "cli/generate/generate_report.h"

#include <algorithm>

#include "cli/text.h"

namespace sluice::cli {
namespace {

std::string CauseText(DenseCause cause) {
  switch (cause) {
    case DenseCause::kNone:
      break;
    case DenseCause::kAdjustments:
      return "sets kept of changed logits";
    case DenseCause::kLogprobs:
      return "log-probabilities";
    case DenseCause::kSoftCap:
      return "the model's soft-cap";
    case DenseCause::kMass:
      return "filters that measure all tokens";
  }
  return "";
}

// ", 1,900 clusters of 2.6 MB, built in 1.20 s".
void PrintClusters(const ClusterHeadReport& report, std::ostream& out) {
  const bool is_built = report.build_ns > 0;
  out << ", " << Count(report.clusters, "cluster") << " of "
      << Fixed(static_cast<double>(report.bytes) / 1e6, 1) << " MB, "
      << (is_built ? "built" : "read") << " in "
      << Duration(is_built ? report.build_ns : report.load_ns);
}

// "head dither4: 55 rows certified (21.4 logits computed for each, 27 % of the bytes), 2 dense for
// filters that measure all tokens".
void PrintHead(const Generation& generation, std::ostream& out) {
  const GenerationStats& stats = generation.generator().stats();
  const CertifiedStats& certified = stats.certified;
  out << "  head " << Name(generation.head());
  if (generation.head() != HeadChoice::kDense) {
    out << ": " << Count(certified.rows - certified.dense_rows, "row") << " certified";
    if (certified.rows > 0) {
      const auto rows = static_cast<double>(certified.rows);
      out << " (" << Fixed(static_cast<double>(certified.survivors) / rows, 1)
          << " logits computed for each, "
          << Percent(static_cast<double>(certified.bytes_read) /
                     static_cast<double>(std::max<int64_t>(certified.dense_bytes, 1)))
          << " of the bytes)";
    }
    if (certified.dense_rows > 0) out << ", " << certified.dense_rows << " read whole";
    for (size_t i = 1; i < kDenseCauses; ++i) {
      if (stats.dense_rows[i] == 0) continue;
      out << ", " << stats.dense_rows[i] << " dense for " << CauseText(static_cast<DenseCause>(i));
    }
  }
  if (generation.head() == HeadChoice::kClusters) PrintClusters(generation.clusters(), out);
  out << "; " << generation.backend_name() << ", " << Count(generation.threads(), "thread")
      << "; seed " << *generation.generator().params().seed << '\n';
}

}  // namespace

std::string Duration(int64_t ns) {
  const auto time = static_cast<double>(ns);
  if (ns < 10'000'000) return Fixed(time / 1e6, 2) + " ms";
  if (ns < 1'000'000'000) return Fixed(time / 1e6, 0) + " ms";
  return Fixed(time / 1e9, 2) + " s";
}

double PerSecond(int64_t count, int64_t ns) {
  return ns > 0 ? 1e9 * static_cast<double>(count) / static_cast<double>(ns) : 0.0;
}

std::string Rate(int64_t count, int64_t ns) {
  const double rate = PerSecond(count, ns);
  return Fixed(rate, rate < 10 ? 2 : rate < 100 ? 1 : 0) + " tokens/s";
}

std::string Count(int64_t count, std::string_view what) {
  return Number(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

std::string EndText(const OutputEnd& end, const GenerationOptions& options,
                    const Tokenizer& tokenizer, int64_t context) {
  switch (end.end) {
    case GenerationEnd::kNone:
      break;
    case GenerationEnd::kStopString:
      return "the stop string " + QuotedLine(end.stop);
    case GenerationEnd::kStopToken: {
      const auto text = tokenizer.Token(end.stop_token);
      return "the token " + Number(end.stop_token) + ", " + QuotedLine(text.value_or(""));
    }
    case GenerationEnd::kLength:
      return "--max-tokens " + Number(options.max_tokens);
    case GenerationEnd::kContext:
      return "the end of the context, " + Number(context) + " tokens";
    case GenerationEnd::kStatus:
      return "a row without a token: " + std::string(Name(end.status));
    case GenerationEnd::kCancelled:
      return "a signal";
    case GenerationEnd::kRejected:
      return std::string("the engine, which refused it: ").append(end.message);
    case GenerationEnd::kEngineLost:
      return std::string("the loss of the engine: ").append(end.message);
  }
  return "";
}

std::string EndText(GenerationEnd end, const Delta& delta, const TokenResult& token,
                    const Generation& generation) {
  const GenerationOptions& options = generation.options();
  OutputEnd output{.end = end, .stop_token = delta.stop_token, .status = token.status};
  if (end == GenerationEnd::kStopString)
    output.stop = options.stops[static_cast<size_t>(delta.stop)];
  const Checkpoint& checkpoint = generation.checkpoint();
  return EndText(output, options, checkpoint.tokenizer(), checkpoint.model().info().context);
}

void PrintStatistics(const Generation& generation, const GenerateTimes& times, std::ostream& out) {
  const GenerationStats& stats = generation.generator().stats();
  out << "  " << Count(stats.output_tokens, "token") << " in " << Duration(times.decode_ns) << ", "
      << Rate(stats.output_tokens, times.decode_ns) << "; prompt "
      << Count(stats.prompt_tokens, "token") << " in " << Duration(stats.prefill_ns) << ", "
      << Rate(stats.prompt_tokens, stats.prefill_ns) << "; loaded in "
      << Duration(generation.load_ns()) << '\n';
  const struct {
    const char* name;
    int64_t ns;
  } parts[] = {{"forward", stats.forward_ns},
               {"head", stats.head_ns},
               {"select", stats.select_ns},
               {"egress", stats.text_ns + times.write_ns},
               {"candidates", stats.report_ns + times.show_ns}};
  const char* separator = "  ";
  for (const auto& part : parts) {
    if (part.ns == 0) continue;
    const double share =
        static_cast<double>(part.ns) / static_cast<double>(std::max<int64_t>(times.decode_ns, 1));
    out << separator << part.name << ' ' << Duration(part.ns) << ' ' << Fixed(100 * share, 1)
        << " %";
    separator = ", ";
  }
  out << '\n';
  PrintHead(generation, out);
}

void WriteStatistics(JsonWriter& json, const Generation& generation, const GenerateTimes& times) {
  const GenerationStats& stats = generation.generator().stats();
  json.Key("prompt_tokens").Value(stats.prompt_tokens);
  json.Key("output_tokens").Value(stats.output_tokens);
  json.Key("steps").Value(stats.steps);
  json.Key("tokens_per_second").Value(PerSecond(stats.output_tokens, times.decode_ns));
  json.Key("load_ns").Value(generation.load_ns());
  json.Key("prefill_ns").Value(stats.prefill_ns);
  json.Key("decode_ns").Value(times.decode_ns);
  json.Key("forward_ns").Value(stats.forward_ns);
  json.Key("head_ns").Value(stats.head_ns);
  json.Key("select_ns").Value(stats.select_ns);
  json.Key("egress_ns").Value(stats.text_ns + times.write_ns);
  json.Key("candidates_ns").Value(stats.report_ns + times.show_ns);
  if (generation.head() == HeadChoice::kDense) return;
  const CertifiedStats& certified = stats.certified;
  json.Key("certified").Object([&] {
    json.Key("rows").Value(certified.rows - certified.dense_rows);
    json.Key("rows_read_whole").Value(certified.dense_rows);
    json.Key("survivors").Value(certified.survivors);
    json.Key("bytes_read").Value(certified.bytes_read);
    json.Key("dense_bytes").Value(certified.dense_bytes);
    json.Key("least_margin").Value(certified.least_margin);
  });
  if (generation.head() == HeadChoice::kClusters) {
    const ClusterHeadReport& report = generation.clusters();
    json.Key("clusters").Object([&] {
      json.Key("count").Value(report.clusters);
      json.Key("fine_tokens").Value(report.fine_tokens);
      json.Key("bytes").Value(report.bytes);
      json.Key("build_ns").Value(report.build_ns);
      json.Key("load_ns").Value(report.load_ns);
    });
  }
  json.Key("dense_rows").Object([&] {
    for (size_t i = 1; i < kDenseCauses; ++i) {
      json.Key(Name(static_cast<DenseCause>(i))).Value(stats.dense_rows[i]);
    }
  });
}

}  // namespace sluice::cli
