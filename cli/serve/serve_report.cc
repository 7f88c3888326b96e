#include "cli/serve/serve_report.h"

#include <unistd.h>

#include "cli/generate/model_source.h"
#include "cli/text.h"
#include "json/writer.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kUnix = "unix:";

// As a word of a shell, inside single quotes.
std::string ShellText(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted;
}

std::string CurlExample(const ServeStart& start) {
  const bool is_unix = start.url.starts_with(kUnix);
  std::string text = "  curl ";
  if (is_unix) text += "--unix-socket '" + ShellText(start.url.substr(kUnix.size())) + "' ";
  text += (is_unix ? "http://localhost" : start.url) + "/v1/chat/completions \\\n";
  if (start.has_api_keys) text += "    -H \"Authorization: Bearer $SLUICE_API_KEY\" \\\n";
  return text + "    -H 'Content-Type: application/json' -d '{\"model\": " +
         ShellText(QuotedLine(start.model)) +
         ",\n      \"messages\": [{\"role\": \"user\", \"content\": \"Once upon a time\"}], "
         "\"stream\": true}'\n";
}

std::string PythonExample(const ServeStart& start) {
  const bool is_unix = start.url.starts_with(kUnix);
  const std::string key = start.has_api_keys ? "os.environ[\"SLUICE_API_KEY\"]" : "\"none\"";
  std::string text = start.has_api_keys ? "  import os\n" : "";
  if (is_unix) text += "  import httpx\n";
  text += "  from openai import OpenAI\n  client = OpenAI(base_url=\"" +
          (is_unix ? "http://localhost" : start.url) + "/v1\", api_key=" + key;
  if (is_unix) {
    text += ",\n    http_client=httpx.Client(transport=httpx.HTTPTransport(uds=" +
            QuotedLine(start.url.substr(kUnix.size())) + "))";
  }
  return text + ")\n  print(client.completions.create(model=" + QuotedLine(start.model) +
         ", prompt=\"Once upon a time\").choices[0].text)\n";
}

}  // namespace

void PrintStart(const ServeStart& start, std::ostream& out, const Terminal& terminal) {
  out << terminal.Styled(start.url, Style::kHeading) << " serves "
      << terminal.Printable(start.model);
  if (start.is_built_in_model) {
    out << ", " << kBuiltInModel << "; for real work: sluice serve --model DIR";
  }
  out << "\n\n" << CurlExample(start) << '\n' << PythonExample(start) << std::endl;
}

void WriteStart(const ServeStart& start, std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("url").Value(start.url);
    json.Key("pid").Value(::getpid());
    json.Key("model").Value(start.model);
    json.Key("engine").Array([&] {
      for (const std::string& endpoint : start.engines) json.Value(endpoint);
    });
    json.Key("engine_pid");
    if (start.engine_pid.has_value()) {
      json.Value(*start.engine_pid);
    } else {
      json.Null();
    }
  });
  out << std::endl;
}

}  // namespace sluice::cli
