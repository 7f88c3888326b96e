#!/usr/bin/env python3
"""Tokens a second of `sluice generate` and of transformers, on one checkpoint of random weights.

    python3 bench/model_peers.py SLUICE [--json FILE]    SLUICE is the command

The checkpoint has the shape of SmolLM2-135M, in fp32 and in bf16, and is made in a temporary
folder. Both sides generate greedily from the same prompt, one sequence, on one thread and on two;
they run in turns, and the median of the runs counts. Time is that of the steps after the prompt,
from the first token to the last. Whether the tokens agree is checked where both compute in
fp32. Sluice also runs with weights rounded to int8, which transformers has nothing like without
another package.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    from transformers.generation.streamers import BaseStreamer
except ImportError as missing:
    sys.exit(f"model_peers: {missing}; pip install torch transformers tokenizers")

SHAPE = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
         "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
         "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0}
PROMPT = "In the last mile of decoding every token is chosen from logits. "
TOKENS = 64
RUNS = 5
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def byte_tokenizer(vocab):
    """A token for each byte, and fillers that no text has, so that any id can be printed."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + [f"filler{i}" for i in range(vocab - len(alphabet))]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_checkpoint(folder, dtype):
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    for name, weight in model.named_parameters():
        # Larger than an untrained model's, so that the greedy tokens are not decided by rounding.
        if weight.dim() == 2 and "embed" not in name:
            weight.data.normal_(std=1.5 / weight.shape[1] ** 0.5)
    model.to(dtype).save_pretrained(folder)
    byte_tokenizer(SHAPE["vocab_size"]).save(str(Path(folder) / "tokenizer.json"))


def sluice_run(command, folder, threads, weights):
    """(ns a token, tokens, prompt, backend). The one place with the command's flags."""
    words = [command, "generate", "--model", folder, "--max-tokens", str(TOKENS + 1),
             "--temperature", "0", "--ignore-eos", "--threads", str(threads), "--weights", weights,
             "--json", "--quiet", PROMPT]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"model_peers: {' '.join(words)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    # The first of the tokens comes with the prompt.
    return (report["statistics"]["decode_ns"] / TOKENS, report["choices"][0]["token_ids"],
            report["prompt_token_ids"], report["backend"])


class Clock(BaseStreamer):
    """When each token came: generate() calls put() for the prompt, then for every token."""

    def __init__(self):
        self.times = []

    def put(self, value):
        self.times.append(time.perf_counter_ns())

    def end(self):
        pass


def transformers_run(model, prompt, threads):
    """(ns a token, tokens)."""
    torch.set_num_threads(threads)
    ids, clock = torch.tensor([prompt]), Clock()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=TOKENS + 1, min_new_tokens=TOKENS + 1,
                             pad_token_id=0, streamer=clock)
    return (clock.times[-1] - clock.times[1]) / TOKENS, out[0, len(prompt):].tolist()


def rows_of(command, folder, dtype, threads):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval()
    weights = ["as-stored", "int8"]
    times = {name: [] for name in [*weights, "transformers"]}
    tokens = {}
    for _ in range(RUNS):
        for name in weights:
            ns, tokens[name], prompt, backend = sluice_run(command, folder, threads, name)
            times[name].append(ns)
        ns, tokens["transformers"] = transformers_run(model, prompt, threads)
        times["transformers"].append(ns)
    peer_ns = statistics.median(times["transformers"])
    rows = []
    for name in weights:
        ns = statistics.median(times[name])
        row = {"bench": "model", "task": "generate", "backend": backend, "dtype": dtype,
               "weights": name, "vocab": SHAPE["vocab_size"], "batch": 1, "threads": threads,
               "ns": round(ns), "peer": "transformers", "peer_ns": round(peer_ns),
               "ratio": round(peer_ns / ns, 2)}
        if dtype == "float32" and name == "as-stored":
            row["exact"] = tokens[name] == tokens["transformers"]
        rows.append(row)
        print(f"{dtype:9} {name:10} {threads} threads  {1e9 / ns:7.1f} tokens/s  "
              f"transformers {1e9 / peer_ns:7.1f} tokens/s  x{peer_ns / ns:.2f}"
              + ("" if row.get("exact", True) else "  other tokens"), flush=True)
    return rows


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("sluice")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rows = []
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            make_checkpoint(folder, DTYPES[dtype])
            for threads in (1, 2):
                rows += rows_of(options.sluice, folder, dtype, threads)
    if options.json:
        env = {"cores": os.cpu_count(), "os": f"{platform.system()} {platform.release()}",
               "python": platform.python_version(), "torch": torch.__version__,
               "transformers": transformers.__version__}
        version = subprocess.run([options.sluice, "--version"], capture_output=True, text=True)
        report = {"env": env, "sluice": version.stdout.strip(), "rows": rows}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
