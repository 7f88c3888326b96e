#!/usr/bin/env python3
"""Times selection and sampling of CUDA tensors from Python against peers, in one process.

    python3 bench/cuda_peers.py [--quick] [--batch N]... [--task NAME]... [--distribution NAME]
        [--json FILE] [--vllm DIR] [--flashinfer-modules DIR]

Rows like a model's ("mid"), the same rounded to bfloat16 and so with ties ("rounded"), or N(0, 1)
("normal"), in fp32; times of graph replays, hot and cold (cuda_graphs.py), and one read of
the rows, or one read and write of them, in the same run. A row is wrong when a mask keeps another
set than the reference, or when a draw gives a token outside of its set; Sluice's tokens must be
the reference's. FlashInfer's joint filter means another set, and is held to that one. A peer that
takes probabilities reads those of the same rows, made before. --vllm names a folder with
topk_topp_triton.py and topk_topp_sampler.py of vLLM's package. A peer that is not there is left
out, and named.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

try:
    import numpy as np
    import torch
    from cuda_graphs import Timer, peak_bytes
    from cuda_peer_calls import PEERS, TASKS, Setting, load_peers
except ImportError as error:
    sys.exit(f"cuda_peers: {error.name} is missing; pip install torch numpy")

import sluice

BATCHES = (1, 8, 32, 128, 256, 512)
DISTINCT = 32  # rows beyond are copies
DRAWS = 16     # of a sampler, looked at for tokens outside of the set


def model_row(vocab, index):
    """A body of N(-2, 1.6) and 40 outliers, moved until p = 0.9 of the mass is 30 to 80 tokens."""
    random = np.random.default_rng([11, index])
    row = random.normal(-2, 1.6, vocab)
    at = random.choice(vocab, min(40, vocab // 4), replace=False)
    offsets = np.sort(random.exponential(0.25, len(at)).cumsum())
    wanted = min(random.integers(30, 81), vocab // 8)
    row[at] = -np.inf
    head, body_mass = np.sort(row)[::-1][:4096], np.exp(row).sum()

    def nucleus(shift):
        values = np.sort(np.concatenate([head, shift - offsets]))[::-1]
        mass = np.exp(values)
        total = body_mass + np.exp(shift - offsets).sum()
        return 1 + int(np.searchsorted(mass.cumsum(), 0.9 * total))

    low, high = -2.0, 14.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if nucleus(middle) <= wanted else (middle, high)
    row[at] = high + 0.01 * random.random() - offsets
    return row.astype(np.float32)


def make_rows(distribution, vocab):
    if distribution == "normal":
        normal = np.random.default_rng(12).standard_normal
        return normal((DISTINCT, vocab)).astype(np.float32)
    rows = np.stack([model_row(vocab, r) for r in range(DISTINCT)])
    return torch.from_numpy(rows).bfloat16().float().numpy() if distribution == "rounded" else rows


class Reference:
    """What the first rows must give, computed once for all batches."""

    def __init__(self, rows):
        self.rows = rows
        self.found = {}

    def kept(self, filters, profile="vllm"):
        key = (tuple(filters.items()), profile)
        if key not in self.found:
            words = sluice.kept_bitmask(self.rows, **filters, profile=profile)
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
            self.found[key] = bits[:, :self.rows.shape[1]].astype(bool)
        return self.found[key]

    def wrong_masks(self, masked, filters):
        count = min(len(masked), DISTINCT)
        kept = (masked[:count] > -torch.inf).cpu().numpy()
        return count, int((kept != self.kept(filters)[:count]).any(axis=1).sum())

    def wrong_draws(self, draws, filters, profile):
        """Rows of which any draw is outside of the set."""
        count = min(draws.shape[1], DISTINCT)
        kept = self.kept(filters, profile)[:count]
        inside = np.stack([kept[np.arange(count), ids[:count]] for ids in draws])
        return count, int((~inside.all(axis=0)).sum())

    def wrong_tokens(self, ids, filters, seed):
        count = min(len(ids), DISTINCT)
        expected = sluice.sample(self.rows[:count], **filters, seed=seed, position=np.arange(count))
        return count, int((expected.ids != ids[:count]).sum())


def measure(peer, setting, timer, reference, filters, with_cold):
    logits = timer.logits.copy_(timer.master)
    peer.forget()
    result = {"peak_bytes": peak_bytes(peer.make(setting), logits)}
    outputs = []
    for _ in range(2):
        logits.copy_(timer.master)
        outputs.append(peer.make(setting)(logits).clone())
    result["repeats"] = bool(torch.equal(*outputs))
    if setting.masks:
        checked, wrong = reference.wrong_masks(outputs[0], filters)
    elif peer.name == "sluice":
        checked, wrong = reference.wrong_tokens(outputs[0].cpu().numpy(), filters, setting.seed)
    else:
        draws = []
        for seed in range(DRAWS):
            logits.copy_(timer.master)
            draws.append(peer.make(setting.with_seed(seed))(logits).cpu().numpy())
        checked, wrong = reference.wrong_draws(np.stack(draws), filters, peer.profile)
    call = peer.make(setting)
    result |= {"rows_checked": checked, "wrong_rows": wrong, "us": timer.hot(call)}
    if with_cold:
        result["cold_us"] = timer.cold(call)
    return result


def environment(commit):
    device = torch.cuda.get_device_properties(0)
    versions = {}
    for package in ("torch", "triton", "flashinfer-python", "sglang", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    cpu = next((line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), platform.machine())
    return {"env": {"gpu": device.name, "processors": device.multi_processor_count,
                    "l2_bytes": device.L2_cache_size, "cpu": cpu, "cuda": torch.version.cuda,
                    "python": platform.python_version(),
                    "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                    **versions}, "commit": commit}


def commit_of_sources():
    folder = Path(__file__).parent
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def line(task, vocab, batch, name, result, ours, floor):
    cold = f"{result['cold_us']:9.2f}" if "cold_us" in result else " " * 9
    return (f"{task:16} V={vocab:<7} B={batch:<4} {name:24} {result['us']:9.2f} us {cold} cold  "
            f"{result['us'] / ours:7.2f}x ours {result['us'] / floor:7.2f}x floor  "
            f"wrong {result['wrong_rows']:3}/{result['rows_checked']:<3} "
            f"{result['peak_bytes'] / 2**20:8.1f} MiB  "
            f"{'repeats' if result['repeats'] else 'differs'}")


def json_row(task, distribution, vocab, batch, name, result, ours, floor):
    row = {"bench": "cuda-peers", "task": task, "backend": "cuda", "dtype": "float32",
           "vocab": vocab, "batch": batch, "distribution": distribution, "ns": round(1e3 * ours),
           "floor_ns": round(1e3 * floor), "peer": name, "peer_ns": round(1e3 * result["us"]),
           "ratio": round(result["us"] / ours, 2), "floors": round(result["us"] / floor, 2)}
    if "cold_us" in result:
        row["peer_cold_ns"] = round(1e3 * result["cold_us"])
    return row | {"exact": result["wrong_rows"] == 0, "wrong_rows": result["wrong_rows"],
                  "rows_checked": result["rows_checked"], "peak_bytes": result["peak_bytes"],
                  "repeats": result["repeats"]}


def write_json(path, report, rows):
    text = ",\n".join(json.dumps(row) for row in rows)
    Path(path).write_text(json.dumps(report)[:-1] + ', "rows": [\n' + text + "\n]}\n",
                          encoding="utf-8")


def run(options, out):
    rows, report = [], environment(options.commit or commit_of_sources())
    distinct = make_rows(options.distribution, options.vocab)
    reference = Reference(distinct)
    for batch in options.batch or BATCHES:
        copies = np.resize(np.arange(DISTINCT), batch)
        logits = torch.from_numpy(distinct).cuda()[torch.from_numpy(copies).cuda()]
        timer, probability_timer = Timer(logits), Timer(logits.softmax(dim=-1))
        floors = {False: timer.read_floor(), True: timer.read_write_floor()}
        for task, (masks, filters) in TASKS.items():
            if options.task and task not in options.task:
                continue
            setting = Setting(masks, filters, batch, options.vocab)
            ours = None
            for peer in PEERS:
                if not peer.serves(setting):
                    continue
                try:
                    result = measure(peer, setting,
                                     probability_timer if peer.takes_probabilities else timer,
                                     reference, filters, not options.quick)
                except Exception as error:  # a peer's trouble is a line of the table
                    if peer.name == "sluice":
                        raise
                    print(f"{task:16} B={batch:<4} {peer.name}: {error}", file=out, flush=True)
                    torch.cuda.synchronize()
                    continue
                ours = ours or result["us"]
                print(line(task, options.vocab, batch, peer.name, result, ours, floors[masks]),
                      file=out, flush=True)
                rows.append(json_row(task, options.distribution, options.vocab, batch, peer.name,
                                     result, ours, floors[masks]))
        del timer, probability_timer
        torch.cuda.empty_cache()
        if options.json:
            write_json(options.json, report, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="no cold column")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--distribution", choices=("mid", "rounded", "normal"), default="mid")
    parser.add_argument("--vllm", help="folder with vLLM's source files")
    parser.add_argument("--flashinfer-modules", help="folder with its sampling.so, topk.so and cake_sampling.so")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("cuda_peers: torch sees no CUDA device")
    for reason in load_peers(options.vllm, options.flashinfer_modules):
        print(f"cuda_peers: {reason}", file=sys.stderr)
    run(options, sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("FLASHINFER_LOGGING_LEVEL", "error")
    main()
