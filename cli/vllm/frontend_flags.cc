#include "cli/vllm/frontend_flags.h"

#include <algorithm>
#include <iterator>

namespace sluice::cli {
namespace {

using enum FlagFate;

constexpr std::string_view kTls = "--tls-cert and --tls-key have a certificate and its key";
constexpr std::string_view kOwn = "sluice vllm gives the engine this flag itself";
constexpr std::string_view kRequests = "Sluice has no such default: requests say it";
constexpr std::string_view kRanks =
    "start the ranks of several hosts yourself, and sluice serve with ?ranks=N after --engine";
constexpr std::string_view kPython = "Sluice loads no Python";
constexpr std::string_view kCohere = "Sluice has no routes of Cohere's API";
constexpr std::string_view kBrowsers =
    "pages of the origins may send any request, without credentials";
constexpr std::string_view kNoLog = "requests are logged with --access-log alone";
constexpr std::string_view kBounds = "Sluice has bounds of its own: 32 KiB and 100 header fields";
constexpr std::string_view kPrint = "system_fingerprint is the version of Sluice";
constexpr std::string_view kSupervisor = "Sluice has no supervisor of several servers";

// In the order of vLLM 0.33: cli_args.py, then those of its engine that change what a server does.
constexpr FrontendFlag kFlags[] = {
    {"--headless", kRefused, kOwn},
    {"--api-server-count", kServer},
    {"-asc", kRefused, "write --threads"},
    {"--config", kRefused,
     "write its flags here: some are the server's, which does not read the file"},
    {"--grpc", kRefused, "Sluice speaks HTTP alone"},
    {"--lora-modules", kServer},
    {"--chat-template", kServer},
    {"--chat-template-content-format", kRefused, "templates get a message's content as it came",
     "auto"},
    {"--trust-request-chat-template", kRefused,
     "requests bring no template: --chat-template is that of all"},
    {"--trust-request-mm-kwargs", kRefused, "prompts are texts"},
    {"--default-chat-template-kwargs", kRefused, kRequests},
    {"--reasoning-effort-map", kRefused, "the template gets reasoning_effort as requests say it"},
    {"--response-role", kRefused, "answers have the role assistant", "assistant"},
    {"--return-tokens-as-token-ids", kRefused, kRequests},
    {"--enable-auto-tool-choice", kServer},
    {"--exclude-tools-when-tool-choice-none", kNoEffect, "they are always excluded"},
    {"--tool-call-parser", kServer},
    {"--tool-parser-plugin", kRefused,
     "Sluice loads no Python: --tool-format names a form that it reads"},
    {"--tool-strict-level", kRefused, "each tool says it, with strict", "auto"},
    {"--tool-server", kRefused, "Sluice calls no tools itself"},
    {"--max-log-len", kNoEffect, "texts of requests are never logged"},
    {"--enable-prompt-tokens-details", kNoEffect, "usage always has them"},
    {"--enable-per-request-metrics", kRefused,
     "answers have no times: /metrics and --access-log have them"},
    {"--enable-server-load-tracking", kNoEffect, "/load always has it"},
    {"--enable-force-include-usage", kRefused, "requests say it, with stream_options"},
    {"--sse-keep-alive-interval", kServer},
    {"--enable-tokenizer-info-endpoint", kRefused, "Sluice has no /tokenizer_info"},
    {"--enable-log-outputs", kRefused, "texts of requests are never logged"},
    {"--enable-log-deltas", kNoEffect, "texts of requests are never logged"},
    {"--cohere-is-reasoning-model", kNoEffect, kCohere},
    {"--cohere-format", kRefused, kCohere},
    {"--anthropic-disabled-thinking-effort", kRefused,
     "the template gets enable_thinking false where thinking is disabled", "auto"},
    {"--log-error-stack", kNoEffect, "errors are sentences"},
    {"--tokens-only", kRefused, "Sluice has no server of tokens alone"},
    {"--enable-scale-out", kRefused, "Sluice has no routes of ids alone: prompt takes token ids"},
    {"--fingerprint-mode", kRefused, kPrint},
    {"--fingerprint-value", kRefused, kPrint},
    {"--host", kServer},
    {"--port", kServer},
    {"--grpc-port", kRefused, "Sluice speaks HTTP alone"},
    {"--data-parallel-supervisor-port", kRefused, kSupervisor},
    {"--dp-supervisor-probe-interval-s", kRefused, kSupervisor},
    {"--dp-supervisor-probe-timeout-s", kRefused, kSupervisor},
    {"--dp-supervisor-probe-failure-threshold", kRefused, kSupervisor},
    {"--uds", kServer},
    {"--uvicorn-log-level", kNoEffect, kNoLog},
    {"--disable-uvicorn-access-log", kNoEffect, kNoLog},
    {"--disable-access-log-for-endpoints", kNoEffect, kNoLog},
    {"--allow-credentials", kRefused, kBrowsers},
    {"--allowed-origins", kServer},
    {"--allowed-methods", kRefused, kBrowsers},
    {"--allowed-headers", kRefused, kBrowsers},
    {"--api-key", kServer},
    {"--ssl-keyfile", kServer},
    {"--ssl-certfile", kServer},
    {"--ssl-ca-certs", kRefused, kTls},
    {"--enable-ssl-refresh", kRefused, kTls},
    {"--ssl-cert-reqs", kRefused, kTls},
    {"--ssl-ciphers", kRefused, kTls},
    {"--root-path", kRefused, "let the proxy remove the path"},
    {"--middleware", kRefused, kPython},
    {"--enable-request-id-headers", kNoEffect, "every answer has X-Request-Id"},
    {"--disable-fastapi-docs", kRefused,
     "/ and /openapi.json are always served: let a proxy keep them back"},
    {"--h11-max-incomplete-event-size", kNoEffect, kBounds},
    {"--h11-max-header-count", kNoEffect, kBounds},
    {"--enable-offline-docs", kNoEffect, "the page at / needs no network"},
    {"--enable-flash-late-interaction", kEngine},
    {"--reasoning-parser", kServer},
    {"--reasoning-parser-plugin", kRefused,
     "Sluice loads no Python: --reasoning-format names a form that it reads"},
    {"--revision", kServer},
    {"--served-model-name", kServer},
    {"--tokenizer", kRefused, "the folder of the model has the tokenizer"},
    {"--skip-tokenizer-init", kRefused, "the engine needs its tokenizer for grammars"},
    {"--override-generation-config", kRefused, kRequests},
    {"--logprobs-mode", kRefused, "answers say that theirs are raw_logprobs", "raw_logprobs"},
    {"--data-parallel-rpc-port", kRefused, kOwn},
    {"--data-parallel-address", kRefused, kOwn},
    {"--data-parallel-rank", kRefused, kRanks},
    {"--data-parallel-start-rank", kRefused, kRanks},
    {"--data-parallel-external-lb", kRefused, kRanks},
    {"--data-parallel-hybrid-lb", kRefused, kRanks},
    {"--data-parallel-multi-port-external-lb", kRefused, kRanks},
    {"--data-parallel-size", kServer},
    {"--data-parallel-size-local", kRefused, kRanks},
    {"-dp", kRefused, "write --data-parallel-size"},
    {"-dpn", kRefused, kRanks},
    {"-dpr", kRefused, kRanks},
    {"-dpl", kRefused, kRanks},
    {"-dpa", kRefused, kOwn},
    {"-dpp", kRefused, kOwn},
    {"-dpe", kRefused, kRanks},
    {"-dph", kRefused, kRanks}};

}  // namespace

std::span<const FrontendFlag> FrontendFlags() { return kFlags; }

const FrontendFlag* FindFrontendFlag(std::string_view name) {
  const auto* const found = std::ranges::find(kFlags, name, &FrontendFlag::name);
  return found == std::end(kFlags) ? nullptr : found;
}

}  // namespace sluice::cli
