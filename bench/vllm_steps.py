#!/usr/bin/env python3
"""Decode steps of a real vLLM with and without the plug-in, by kind of request and batch.

    python bench/vllm_steps.py --model FOLDER --commit HASH --json OUT.json
        [--turns 3] [--batch 32 --batch 256] [--kind NAME] [--steps 96] [--limit 600]

Each turn starts an engine process of each sampler, one after the other, so that they alternate.
step_us is what LLM.generate takes for a step: a long generation less a short one. engine_step_us is
the time between two outputs of the engine's process, the median: what Python does in the client's
process is not in it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

SHORT, PROMPT, VOCAB = 8, 32, 100000
_CUT = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}
_PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1,
              "min_p": 0.01}
KINDS = {
    "greedy": {"temperature": 0.0},
    "k50 p.95": _CUT,
    "p.95": {"temperature": 0.8, "top_p": 0.95},
    "k50 p.95 seeded": {**_CUT, "seed": 7},
    "penalties, min-p, bias, seeded": {**_CUT, **_PENALTIES, "seed": 7,
                                       "logit_bias": {at * 97: 1.5 for at in range(8)}},
    "logprobs 20": {**_CUT, "logprobs": 20},
}
SAMPLERS = {"vLLM": {"SLUICE_VLLM": "off"},
            "Sluice": {"SLUICE_VLLM": "top_k_top_p,draw,step,logprobs"}}


def prompts(batch, salt):
    """Other ids for each pair of generations, so that nothing is cached."""
    source = random.Random(salt)
    return [{"prompt_token_ids": [source.randrange(1000, VOCAB) for _ in range(PROMPT)]}
            for _ in range(batch)]


def measure(options):
    """In an engine's process: a row of JSON for each kind and batch."""
    from vllm import LLM, SamplingParams

    llm = LLM(options.model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=1024,
              max_num_seqs=max(options.batch), gpu_memory_utilization=options.memory,
              enable_prefix_caching=False, max_logprobs=20, seed=1, disable_log_stats=True,
              compilation_config={"cudagraph_capture_sizes": sorted(
                  {1, 2, 4, 8, 16, *options.batch})})
    core = llm.llm_engine.engine_core
    get_output, stamps = core.get_output, []

    def stamped():
        outputs = get_output()
        stamps.append((outputs.timestamp, len(outputs.outputs)))
        return outputs

    core.get_output = stamped

    def generate(kind, batch, tokens, salt):
        params = []
        for row in range(batch):
            given = dict(KINDS[kind])
            if "seed" in given:
                given["seed"] += row
            params.append(SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False,
                                         **given))
        stamps.clear()
        begin = time.perf_counter()
        llm.generate(prompts(batch, salt), params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        full = [stamp for stamp, count in stamps if count == batch]
        return seconds, [later - earlier for earlier, later in zip(full, full[1:])]

    salt = 0
    for kind in options.kind:
        for batch in options.batch:
            if time.time() > options.until:
                return
            for _ in range(2):  # compiles what this kind needs
                generate(kind, batch, SHORT, -1)
            salt += 1
            short, _ = generate(kind, batch, SHORT, salt)
            print(f"measures {kind}, {batch} requests", flush=True)  # for a profiler to wait for
            long, gaps = generate(kind, batch, SHORT + options.steps, salt)
            row = {"kind": kind, "batch": batch, "step_us": 1e6 * (long - short) / options.steps,
                   "engine_step_us": 1e6 * statistics.median(gaps)}
            with open(options.rows, "a") as file:
                file.write(json.dumps(row) + "\n")


def environment():
    import importlib.metadata

    env = {"python": sys.version.split()[0], "cores": len(os.sched_getaffinity(0))}
    for name in ("vllm", "torch", "triton", "flashinfer-python", "numpy"):
        try:
            env[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            env[name] = None
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                            "--format=csv,noheader"], capture_output=True, text=True, check=True)
    env["gpu"], env["driver"] = query.stdout.strip().splitlines()[0].split(", ")
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            env["cpu"] = line.split(":")[1].strip()
            break
    return env


def alternate(options):
    rows, logs = {}, Path(options.json).with_suffix("")
    end = time.time() + options.limit
    runs = [(turn, sampler) for turn in range(options.turns) for sampler in options.sampler]
    for at, (turn, sampler) in enumerate(runs):
        name = f"{logs}-{sampler}-{turn}"
        Path(name + ".jsonl").unlink(missing_ok=True)
        share = time.time() + (end - time.time() - 10) / (len(runs) - at)
        command = [sys.executable, os.path.abspath(__file__), "--rows", name + ".jsonl", "--until",
                   str(share), "--model", options.model, "--memory", str(options.memory),
                   "--steps", str(options.steps)]
        for batch in options.batch:
            command += ["--batch", str(batch)]
        for kind in options.kind:
            command += ["--kind", kind]
        env = {key: value for key, value in os.environ.items() if key != "SLUICE_VLLM"}
        env |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_USE_DEEP_GEMM": "0", "HF_HUB_OFFLINE": "1",
                **SAMPLERS[sampler]}
        with open(name + ".log", "wb") as log:
            code = subprocess.run(command, env=env, stdout=log, stderr=log,
                                  timeout=max(30, end - time.time())).returncode
        text = Path(name + ".log").read_text(errors="replace")
        for line in text.splitlines():
            if "Sluice " in line:
                print("   ", line[-160:], flush=True)
        made = Path(name + ".jsonl")
        if code != 0 or not made.exists():
            print(f"{sampler}, turn {turn}: exit {code}\n{text[-3000:]}", flush=True)
            continue
        for line in made.read_text().splitlines():
            row = json.loads(line)
            print(f"{sampler:8} {row['kind']:32} B={row['batch']:<4} {row['step_us']:9.0f} "
                  f"{row['engine_step_us']:9.0f} us", flush=True)
            rows.setdefault((row["kind"], row["batch"], sampler), []).append(row)
        save(options, rows)


def save(options, rows):
    results = []
    for (kind, batch, sampler), some in rows.items():
        result = {"bench": "vllm-steps", "task": kind, "backend": "cuda",
                  "model": options.name, "batch": batch, "sampler": sampler}
        for name in ("step_us", "engine_step_us"):
            # A short generation that compiled a kernel gives a negative step: no figure.
            values = sorted(round(one[name], 1) for one in some if one[name] > 0)
            result[name] = round(statistics.median(values), 1) if values else None
            result[name.replace("_us", "s_us")] = values
        results.append(result)
    chosen = {key: getattr(options, key) for key in ("turns", "steps", "memory")}
    with open(options.json, "w") as file:
        head = json.dumps({"env": environment(), "commit": options.commit, "options": chosen})
        lines = ",\n".join(json.dumps(result) for result in results)
        file.write(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with weights")
    parser.add_argument("--name", default="8b, random weights", help="of the model, in the rows")
    parser.add_argument("--commit", help="of this tree")
    parser.add_argument("--json", help="where the results go")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sampler", action="append", choices=SAMPLERS)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--memory", type=float, default=0.6)
    parser.add_argument("--limit", type=float, default=600, help="seconds for everything")
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batch = options.batch or [1, 32, 128, 256]
    options.kind = options.kind or list(KINDS)
    options.sampler = options.sampler or list(SAMPLERS)
    if options.rows:
        return measure(options)
    if not options.json or not options.commit:
        parser.error("--json and --commit are required")
    alternate(options)


if __name__ == "__main__":
    main()
