// The examples at the end of each command's help.
#pragma once

#include <string_view>

namespace sluice::cli {

struct HelpExample {
  std::string_view command;  // "bench select"; of the program itself ""
  std::string_view line;
};

inline constexpr HelpExample kHelpExamples[] = {
    {"", "sluice generate \"Once upon a time\""},
    {"", "sluice serve --model Qwen3-0.6B"},
    {"", "sluice demo --top-p 0.9 --seed 5"},
    {"generate", "sluice generate \"Once upon a time\" --seed 3 --top-k 50"},
    {"generate",
     "sluice generate --model Qwen3-0.6B --chat \"What is a sluice?\" --max-tokens 100"},
    {"serve", "sluice serve"},
    {"serve", "sluice serve --model Qwen3-0.6B --port 8000"},
    {"vllm", "sluice vllm Qwen/Qwen3-0.6B --port 8000 --served-model-name qwen"},
    {"engine", "sluice engine --model Qwen3-0.6B --listen ipc:///tmp/engine"},
    {"engine", "sluice generate \"Hello\" --model Qwen3-0.6B --engine ipc:///tmp/engine"},
    {"tokenize", "sluice tokenize Qwen3-0.6B/tokenizer.json \"Once upon a time\""},
    {"tokenize", "sluice tokenize Qwen3-0.6B/tokenizer.json --json < story.txt"},
    {"detokenize", "sluice detokenize Qwen3-0.6B/tokenizer.json 12522 5193 264 882"},
    {"inspect", "sluice inspect logits.npy --row 3 --top-k 50 --top-p 0.9"},
    {"inspect", "sluice inspect model Qwen3-0.6B"},
    {"inspect backends", "sluice inspect backends"},
    {"inspect params", "sluice inspect params --json"},
    {"inspect model", "sluice inspect model Qwen3-0.6B"},
    {"explain", "sluice explain logits.npy --id 42 --top-k 50 --top-p 0.9"},
    {"demo", "sluice demo --top-p 0.9 --seed 5"},
    {"demo", "sluice demo --profile hf --show-candidates 20"},
    {"completion", "sluice completion bash > ~/.local/share/bash-completion/completions/sluice"},
    {"completion", "sluice completion zsh > ~/.zfunc/_sluice"},
    {"completion", "sluice completion fish > ~/.config/fish/completions/sluice.fish"},
    {"trace", "sluice trace \"Once upon a time\" --max-tokens 64 --output trace"},
    {"replay", "sluice replay requests.jsonl --check"},
    {"mock-engine", "sluice mock-engine --listen ipc:///tmp/mock --echo --rate 1000"},
    {"bench", "sluice bench select --quick"},
    {"bench select", "sluice bench select --task top-p,top-50 --distribution mid --dtype fp32"},
    {"bench draw", "sluice bench draw --distribution mid --json draw.json"},
    {"bench algorithms", "sluice bench algorithms --rows-file trace/logits.npy"},
    {"bench pipeline", "sluice bench pipeline --threads 4"},
    {"bench head", "sluice bench head --batch 1,8 --planes dither4"},
    {"bench trained-head", "sluice bench trained-head story.txt --states 1000"},
    {"bench head-peers", "sluice bench head-peers --head 32000x1024"},
    {"bench tune", "sluice bench tune --output src/select/policy.inc"},
    {"bench rows", "sluice bench rows --distribution mid --output rows.bin"},
    {"bench topk", "sluice bench topk --columns 65536 --k 2048"},
    {"bench detok", "sluice bench detok Qwen3-0.6B/tokenizer.json story.txt"},
    {"bench engine", "sluice bench engine --quick"},
    {"bench soak", "sluice bench soak --requests 10000"},
    {"bench serve",
     "sluice bench serve --url http://127.0.0.1:8080 --requests 256 --concurrency 64"},
};

}  // namespace sluice::cli
