#!/usr/bin/env python3
"""The head in clusters over the steps of one long text: certificates, bounds, quality and time by position.

    PYTHONPATH=PACKAGE python3 bench/cluster_steps.py SLUICE [--json FILE] [--quick]    needs numpy, ml_dtypes and sluice

The built-in model writes 1000 tokens (`sluice trace`, the dense head); every hidden state is then a question to 2000
clusters of its output matrix, every fourth one to other numbers of clusters, and to those of a made head of the same size with rows that do lie in clusters, with
hidden states next to them. xi is the tightness that the paper of CSV-Decode defines: (most - least) / (bound - least),
of the logits that were opened and the largest bound. Times are those of the thread's CPU, each question next to the
dense head's, so other work on the machine matters little. Exit code 1: an answer is not the dense head's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
    import sluice
    from sluice.research import ClusterHead
except ImportError as error:
    sys.exit(f"cluster_steps: {error}; it needs numpy, ml_dtypes and sluice")

MODEL = Path(__file__).resolve().parent.parent / "models/default/model.safetensors"
CLUSTERS = (500, 1000, 2000, 4000, 8000)
USUAL = 2000
EPSILONS = (0.01, 0.05, 0.1, 0.2)
FIRST = 4  # questions with the larger budget
PLANTED = 256


def tensor(path, name):
    """One tensor of a safetensors file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(size))[name]
        begin, end = about["data_offsets"]
        file.seek(8 + size + begin)
        data = file.read(end - begin)
    kinds = {"F32": np.float32, "I8": np.int8}
    return np.frombuffer(data, kinds[about["dtype"]]).reshape(about["shape"])


def states_of(command, steps, folder):
    """Hidden states and tokens of a text of the built-in model."""
    subprocess.run([command, "trace", "Once upon a time", "--max-tokens", str(steps), "--ignore-eos", "--seed", "1",
                    "--head", "dense", "--temperature", "1", "--top-p", "1", "--output", folder, "--quiet"], check=True)
    return np.load(folder / "hidden.npy"), np.load(folder / "tokens.npy")


def planted(rows, dim, steps):
    random = np.random.default_rng(7)
    centres = random.normal(size=(PLANTED, dim))
    weight = centres[random.integers(0, PLANTED, rows)] + 0.03 * random.normal(size=(rows, dim))
    hidden = 0.3 * centres[random.integers(0, PLANTED, steps)] + 0.1 * random.normal(size=(steps, dim))
    return weight.astype(ml_dtypes.bfloat16), hidden.astype(np.float32)


def timed(call):
    start = time.thread_time_ns()
    result = call()
    return result, time.thread_time_ns() - start


def share(flags):
    return float(np.mean(flags)) if len(flags) else 0.0


class Study:
    def __init__(self, name, weight, hidden, folder):
        self.name, self.weight, self.hidden = name, weight, hidden
        self.file = folder / f"{name}.clusters"
        self.logits = sluice.dense_head(weight, hidden)
        self.rows, self.wrong = [], 0

    def add(self, task, **values):
        self.rows.append({"bench": "cluster_steps", "task": task, "head": self.name, "vocab": len(self.weight),
                          "dim": self.weight.shape[1], **values})

    def build(self, clusters):
        """Times building and reading; every question then starts from the file, with a budget of its own."""
        start = time.process_time()
        head = ClusterHead(self.weight, clusters=clusters)
        built = time.process_time() - start
        head.save(self.file)
        loads = [timed(self.head)[1] for _ in range(5)]
        self.add("file", clusters=clusters, bytes=head.nbytes, weight_bytes=self.weight.nbytes, build_s=built,
                 load_ms=float(np.median(loads)) / 1e6)

    def head(self):
        return ClusterHead(self.weight, file=self.file)

    def questions(self, clusters):
        steps = range(0, len(self.hidden), 1 if clusters == USUAL else 4)
        for name, call in (("k50", lambda head, h: head.topk(h, 50)), ("p0.9", lambda head, h: head.topp(h, 0.9)),
                           ("softmax0.05", lambda head, h: head.softmax(h, 0.05))):
            head, found, times, dense = self.head(), [], [], []
            for step in steps:
                h = self.hidden[step]
                answer, took = timed(lambda: call(head, h))
                times.append(took)
                dense.append(timed(lambda: sluice.topk(sluice.dense_head(self.weight, h), 50))[1])
                found.append(answer)
                self.check(name, answer, self.logits[step])
            self.summary(clusters, name, found, times, dense)
            if name == "softmax0.05":
                self.tightness(clusters, head, [self.hidden[step] for step in steps], found)
            if clusters == USUAL:
                self.positions(name, found)

    def check(self, name, answer, logits):
        order = np.argsort(-logits, kind="stable")
        if name == "softmax0.05":
            weights = np.exp(logits.astype(np.float64) - logits.max())
            kept = weights[answer["ids"]].sum() / weights.sum()
            self.wrong += not (1.0 - kept <= answer["epsilon"] + 1e-9)
        else:
            first = order[:len(answer["ids"])]
            self.wrong += not (np.array_equal(answer["ids"], first) and np.array_equal(answer["logits"], logits[first]))

    def summary(self, clusters, question, found, times, dense):
        paths = np.array([answer["path"] for answer in found])
        opened = np.array([answer["rows_opened"] for answer in found]) / len(self.weight)
        quantiles = {f"p{q}": [float(np.quantile(t, q / 100)) / 1e3 for t in (times, dense)] for q in (50, 95, 99)}
        self.add("steps", clusters=clusters, question=question, steps=len(found), budget=share(paths == "budget"),
                 expanded=share(paths == "expanded"), fallback=share(paths == "dense"), rows_opened=float(opened.mean()),
                 **{f"{q}_us": own for q, (own, _) in quantiles.items()},
                 **{f"dense_{q}_us": other for q, (_, other) in quantiles.items()})

    def positions(self, question, found):
        bounds = [0, FIRST, *range(100, len(found) + 1, 100)]
        for begin, end in zip(bounds, bounds[1:]):
            part = found[begin:end]
            self.add("position", clusters=USUAL, question=question, first=begin, last=end - 1,
                     fallback=share([answer["path"] == "dense" for answer in part]),
                     rows_opened=float(np.mean([answer["rows_opened"] for answer in part])) / len(self.weight))

    def tightness(self, clusters, head, hidden, found):
        xi = []
        for h, answer in zip(hidden, found, strict=True):
            least, most = answer["logits"].min(), answer["logits"].max()
            xi.append(float((most - least) / (head.bounds(h).max() - least)))
        bounds = [0, FIRST, *range(100, len(found) + 1, 100)]
        self.add("xi", clusters=clusters, steps=len(xi), mean=float(np.mean(xi)), least=min(xi), most=max(xi))
        if clusters == USUAL:
            for begin, end in zip(bounds, bounds[1:]):
                self.add("xi_position", clusters=clusters, first=begin, last=end - 1,
                         mean=float(np.mean(xi[begin:end])))

    def quality(self, tokens):
        """The law of an opened set in place of the softmax: perplexity of the text, and the first token."""
        logits = self.logits.astype(np.float64)
        exact = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        for epsilon in EPSILONS:
            head, scores, lost, agree, variation = self.head(), [], 0, 0, []
            for step, h in enumerate(self.hidden):
                answer = head.softmax(h, epsilon)
                own = answer["logits"].astype(np.float64)
                place = np.flatnonzero(answer["ids"] == tokens[step])
                agree += answer["ids"][own.argmax()] == logits[step].argmax()
                variation.append(1.0 - np.exp(exact[step][answer["ids"]]).sum())
                lost += len(place) == 0
                scores.append((exact[step][tokens[step]], own[place[0]] - np.logaddexp.reduce(own))
                              if len(place) else (0.0, 0.0))
            dense, open_set = (float(np.exp(-np.mean(column))) for column in zip(*scores))
            self.add("quality", clusters=USUAL, epsilon=epsilon, perplexity=open_set, dense_perplexity=dense,
                     lost_tokens=lost, top1=agree / len(self.hidden), most_variation=float(max(variation)))

    def run(self, clusters, tokens):
        for count in clusters:
            self.build(count)
            self.questions(count)
            if count == USUAL and tokens is not None:
                self.quality(tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="few steps, one number of clusters")
    arguments = parser.parse_args()
    steps, clusters = (8, (USUAL,)) if arguments.quick else (1000, CLUSTERS)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        hidden, tokens = states_of(arguments.sluice, steps, folder)
        embeddings = "model.embed_tokens.weight"  # tied, and bfloat16 in memory
        weight = (tensor(MODEL, embeddings) * tensor(MODEL, f"{embeddings}_scale")).astype(ml_dtypes.bfloat16)
        studies = [Study("built-in", weight, hidden, folder), Study("planted", *planted(*weight.shape, steps), folder)]
        studies[0].run(clusters, tokens)
        studies[1].run(clusters if arguments.quick else (USUAL,), None)
        subprocess.run([arguments.sluice, "bench", "rows", "--quick", "--output", folder / "rows", "--json",
                        folder / "about"], check=True, stdout=subprocess.DEVNULL)
        env = json.loads((folder / "about").read_text(encoding="utf-8"))["env"]
    rows = [row for study in studies for row in study.rows]
    for row in rows:
        print(" ".join(f"{value:.3f}" if isinstance(value, float) else str(value)
                       for name, value in row.items() if name not in ("bench", "vocab", "dim")))
    if arguments.json:
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                                cwd=MODEL.parent, capture_output=True, text=True, check=False).stdout.strip()
        Path(arguments.json).write_text(json.dumps({"env": env, "commit": commit})[:-1] + f', "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    wrong = sum(study.wrong for study in studies)
    if wrong:
        sys.exit(f"cluster_steps: {wrong} answers are not the dense head's")


if __name__ == "__main__":
    main()
