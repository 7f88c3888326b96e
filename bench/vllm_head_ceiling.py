#!/usr/bin/env python3
"""How much faster vLLM decodes if its output matrix costs less: the most that a certified head can bring.

    python bench/vllm_head_ceiling.py --commit HASH --json OUT.json [--shape NAME ...] [--batch 1 --batch 8]

The product of a step reads all of the matrix, a quarter of its rows (about what a certified head reads) or nothing;
the rest of the logits is left from before. The parts alternate within one engine process a shape. Weights are made up.
step_us: a long generation less a short one, as bench/vllm_steps.py has it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
PARTS = {"all": 1.0, "a quarter": 0.25, "nothing": 0.0}
SHORT = 8
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False}
SHAPES = {
    "0.6b, 151936 x 1024": {**LLAMA, "vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 28,
                            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                            "intermediate_size": 3072},
    "1b, 128256 x 2048": {**LLAMA, "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
                          "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
                          "intermediate_size": 8192},
    "1b, 262144 x 1152": {**LLAMA, "vocab_size": 262144, "hidden_size": 1152, "num_hidden_layers": 26,
                          "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
                          "intermediate_size": 6912},
}


class Head:
    """A part of vLLM's worker (worker_extension_cls)."""

    def sluice_read(self, share):
        """From now on a step's product reads this share of the rows of the output matrix."""
        import torch

        model = self.model_runner.model
        if not hasattr(self, "sluice_compute"):
            self.sluice_compute = model.compute_logits
        if share == 1.0:
            model.compute_logits = self.sluice_compute
            return
        weight = model.lm_head.weight
        rows = int(weight.shape[0] * share)
        logits = {}

        def compute_logits(hidden, *_):
            count = hidden.shape[0]
            if count not in logits:
                logits[count] = self.sluice_compute(hidden).clone()
            if rows:
                torch.mm(hidden, weight[:rows].T, out=logits[count][:, :rows])
            return logits[count]

        model.compute_logits = compute_logits


def measure(options):
    import random

    from vllm import LLM, SamplingParams

    llm = LLM(options.model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=1024, load_format="dummy",
              max_num_seqs=max(options.batch), gpu_memory_utilization=0.4, enable_prefix_caching=False, seed=1,
              disable_log_stats=True, worker_extension_cls="vllm_head_ceiling.Head",
              compilation_config={"cudagraph_capture_sizes": sorted({1, 2, 4, 8, *options.batch})})
    source = random.Random(3)

    def generate(batch, tokens):
        prompts = [{"prompt_token_ids": [source.randrange(1000, 100000) for _ in range(32)]} for _ in range(batch)]
        params = [SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, temperature=0.8, top_k=50,
                                 top_p=0.95) for _ in range(batch)]
        begin = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - begin

    for batch in options.batch:
        for part, share in PARTS.items():
            llm.collective_rpc("sluice_read", args=(share,))
            generate(batch, SHORT)
        for _ in range(options.turns):
            for part, share in PARTS.items():
                llm.collective_rpc("sluice_read", args=(share,))
                short = generate(batch, SHORT)
                long = generate(batch, SHORT + options.steps)
                row = {"batch": batch, "part": part, "step_us": 1e6 * (long - short) / options.steps}
                with open(options.rows, "a") as file:
                    file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--commit")
    parser.add_argument("--json")
    parser.add_argument("--limit", type=float, default=400, help="seconds for everything")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batch = options.batch or [1, 8]
    if options.rows:
        return measure(options)
    if not options.json or not options.commit:
        parser.error("--json and --commit are required")
    sys.path.insert(0, str(HERE))
    from engine_steps import environment

    end, results = time.time() + options.limit, []
    for shape in options.shape or list(SHAPES):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(
                {**SHAPES[shape], "torch_dtype": "bfloat16", "tie_word_embeddings": True, "bos_token_id": 0,
                 "eos_token_id": 1, "max_position_embeddings": 4096}))
            rows = Path(folder) / "rows.jsonl"
            command = [sys.executable, os.path.abspath(__file__), "--model", folder, "--rows", str(rows), "--turns",
                       str(options.turns), "--steps", str(options.steps)]
            for batch in options.batch:
                command += ["--batch", str(batch)]
            env = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_USE_DEEP_GEMM": "0",
                   "PYTHONPATH": f"{HERE.resolve()}:{os.environ.get('PYTHONPATH', '')}"}
            log = Path(options.json).with_suffix(f".{shape.split(',')[0]}.{len(results)}.log")
            with open(log, "wb") as file:
                try:
                    code = subprocess.run(command, env=env, stdout=file, stderr=file,
                                          timeout=max(20, end - time.time())).returncode
                except subprocess.TimeoutExpired:
                    code = "out of time"
            if not rows.exists():
                print(f"{shape}: {code}\n{log.read_text(errors='replace')[-3000:]}", flush=True)
                continue
            made = [json.loads(line) for line in rows.read_text().splitlines()]
        for batch in options.batch:
            for part in PARTS:
                times = sorted(round(row["step_us"], 1) for row in made
                               if row["batch"] == batch and row["part"] == part)
                if not times:
                    continue
                results.append({"bench": "vllm-head-ceiling", "model": shape, "batch": batch, "part": part,
                                "step_us": statistics.median(times), "steps_us": times})
                print(results[-1], flush=True)
        Path(options.json).write_text(json.dumps({"env": environment(("vllm", "torch", "triton", "numpy")), "commit": options.commit,
                                                  "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
