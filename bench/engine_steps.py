"""What bench/vllm_steps.py and bench/sglang_steps.py share: processes that alternate, and their rows."""

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
CUT = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}
PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1,
             "min_p": 0.01}
KINDS = {
    "greedy": {"temperature": 0.0},
    "k50 p.95": CUT,
    "p.95": {"temperature": 0.8, "top_p": 0.95},
    "k50 p.95 seeded": {**CUT, "seed": 7},
    "logprobs 20": {**CUT, "logprobs": 20},
}


def prompts(batch, salt):
    """Other ids for each pair of generations, so that nothing is cached."""
    source = random.Random(salt)
    return [{"prompt_token_ids": [source.randrange(1000, VOCAB) for _ in range(PROMPT)]}
            for _ in range(batch)]


def measure_all(options, generate):
    """A row of JSON for each kind and batch. `generate(kind, batch, tokens, salt)`: seconds, and the
    times between the steps of the engine where they can be had."""
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
            row = {"kind": kind, "batch": batch, "step_us": 1e6 * (long - short) / options.steps}
            if gaps:
                row["engine_step_us"] = 1e6 * statistics.median(gaps)
            with open(options.rows, "a") as file:
                file.write(json.dumps(row) + "\n")


def environment(packages):
    import importlib.metadata

    env = {"python": sys.version.split()[0], "cores": len(os.sched_getaffinity(0))}
    for name in packages:
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


def alternate(program, options, bench, samplers, packages):
    """Processes of each sampler in turns. `samplers`: by name, what the environment has for it."""
    rows, logs = {}, Path(options.json).with_suffix("")
    end = time.time() + options.limit
    runs = [(turn, sampler) for turn in range(options.turns) for sampler in options.sampler]
    for at, (turn, sampler) in enumerate(runs):
        name = f"{logs}-{sampler}-{turn}"
        Path(name + ".jsonl").unlink(missing_ok=True)
        share = time.time() + (end - time.time() - 10) / (len(runs) - at)
        command = [sys.executable, os.path.abspath(program), "--rows", name + ".jsonl", "--until",
                   str(share), "--model", options.model, "--memory", str(options.memory),
                   "--steps", str(options.steps)]
        for batch in options.batch:
            command += ["--batch", str(batch)]
        for kind in options.kind:
            command += ["--kind", kind]
        env = {key: value for key, value in os.environ.items() if key != "SLUICE_VLLM"}
        env |= {"HF_HUB_OFFLINE": "1", **samplers[sampler]}
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
                  f"{row.get('engine_step_us', 0):9.0f} us", flush=True)
            rows.setdefault((row["kind"], row["batch"], sampler), []).append(row)
        save(options, rows, bench, environment(packages))


def save(options, rows, bench, env):
    results = []
    for (kind, batch, sampler), some in rows.items():
        result = {"bench": bench, "task": kind, "backend": "cuda",
                  "model": options.name, "batch": batch, "sampler": sampler}
        for name in ("step_us", "engine_step_us"):
            # A short generation that compiled a kernel gives a negative step: no figure.
            values = sorted(round(one[name], 1) for one in some if one.get(name, 0) > 0)
            result[name] = round(statistics.median(values), 1) if values else None
            result[name.replace("_us", "s_us")] = values
        results.append(result)
    chosen = {key: getattr(options, key) for key in ("turns", "steps", "memory")}
    with open(options.json, "w") as file:
        head = json.dumps({"env": env, "commit": options.commit, "options": chosen})
        lines = ",\n".join(json.dumps(result) for result in results)
        file.write(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')


def options_of(description, samplers, kinds):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with weights")
    parser.add_argument("--name", default="8b, random weights", help="of the model, in the rows")
    parser.add_argument("--commit", help="of this tree")
    parser.add_argument("--json", help="where the results go")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sampler", action="append", choices=samplers)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--kind", action="append", choices=kinds)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--memory", type=float, default=0.6)
    parser.add_argument("--limit", type=float, default=600, help="seconds for everything")
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batch = options.batch or [1, 32, 128, 256]
    options.kind = options.kind or list(kinds)
    options.sampler = options.sampler or list(samplers)
    if not options.rows and not (options.json and options.commit):
        parser.error("--json and --commit are required")
    return options
