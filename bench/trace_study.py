#!/usr/bin/env python3
"""Rows of real decoding: how large kept sets are and how they overlap, how often guesses hold, what
certificates leave, and the algorithms of selection ranked on them.

    python3 bench/trace_study.py SLUICE [--json FILE] [--quick]    needs numpy

`sluice trace` decodes some prompts with some seeds, for each setting of the parameters; `sluice
bench algorithms` runs every algorithm and peer on 100 of the rows, in turns: the experiment of
J. Rudolph, "Finding the top-p elements" (2023), which took 100 rows of a small model. Only its
ratios mean something, unless the machine does nothing else. Exit code 1: a kept set is not what its
Cut says, or a token of the certified head is not the dense head's.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("trace_study: no numpy; pip install numpy")

from trace_rows import Trace, Truncation, histogram, room_of

# The model's own come first; the others say all that they are.
SETTINGS = {
    "the model's own": [],
    "k=50": ["--temperature", "1", "--top-p", "1", "--top-k", "50"],
    "p=0.9": ["--temperature", "1", "--top-p", "0.9"],
    "k=50 p=0.9": ["--temperature", "1", "--top-p", "0.9", "--top-k", "50"],
    "T=1.2 p=0.9": ["--temperature", "1.2", "--top-p", "0.9"],
    "min_p=0.05": ["--temperature", "1", "--top-p", "1", "--min-p", "0.05"],
}
# The certified head serves where top-k or min-p comes first.
CERTIFIED = ("k=50", "k=50 p=0.9", "min_p=0.05")
HEADS = ("dither4", "strict")
PROMPTS = ("Once upon a time", "The king said to his youngest daughter,",
           "In the middle of the forest there stood", "\"Who are you?\" asked the")
ARTICLE = ("sort", "filter_sort", "filter_scan", "quick_find_max", "histogram", "quickselect")
SIZES = (5, 29, 80, 999)  # the kinds of rows of bench/support/rows.h, and what lies between them
FAR = 8  # tokens: what overlaps there is the language's, not the sentence's
BATCH = 128  # rows that a truncation's workspace is shared by


class Progress:
    """A line on standard error that is written over, if that is a terminal."""

    def __init__(self):
        self.is_shown = sys.stderr.isatty()

    def show(self, text):
        if self.is_shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self):
        self.show("")


class Study:
    def __init__(self, sluice, folder, is_quick):
        self.sluice, self.folder, self.is_quick = sluice, Path(folder), is_quick
        self.tokens, self.seeds = (10, (1,)) if is_quick else (128, (1, 2, 3))
        self.prompts = PROMPTS[:2] if is_quick else PROMPTS
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        self.progress = Progress()
        self.rows, self.differing = [], 0

    def run(self, *arguments):
        try:
            done = subprocess.run([self.sluice, *arguments], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, env=self.environment)
        except OSError as error:
            sys.exit(f"trace_study: {self.sluice} cannot be run: {error.strerror}")
        if done.returncode != 0:
            self.progress.clear()
            sys.exit(f"trace_study: sluice {arguments[0]}: {done.stderr.strip()}")

    def traces(self, setting, head):
        read = []
        for prompt in self.prompts:
            for seed in self.seeds:
                self.progress.show(f"tracing {setting}, {head}: {prompt} (seed {seed})")
                output = self.folder / "trace"
                self.run("trace", prompt, "--output", str(output), "--seed", str(seed), "--quiet",
                         "--threads", "1", "--max-tokens", str(self.tokens), "--head", head,
                         *SETTINGS[setting])
                read.append(Trace.read(output))
        return read

    def add(self, task, setting, traces, **figures):
        self.rows.append({"bench": "traces", "task": task, "setting": setting,
                          "vocab": traces[0].logits.shape[1],
                          "rows": sum(len(trace.tokens) for trace in traces), **figures})

    # How large kept sets are, and how much of one was kept a token earlier.
    def sets(self, setting, traces):
        self.differing += sum(trace.cuts_differ() for trace in traces)
        sizes = np.concatenate([trace.sizes() for trace in traces])
        self.add("kept", setting, traces, mean=float(sizes.mean()), least=int(sizes.min()),
                 median=float(np.median(sizes)), p90=float(np.quantile(sizes, 0.9)),
                 most=int(sizes.max()), single=float((sizes == 1).mean()), up_to=SIZES,
                 shares=(np.bincount(np.searchsorted(SIZES, sizes), minlength=len(SIZES) + 1)
                         / len(sizes)).tolist())
        far = np.concatenate([trace.overlaps(FAR) for trace in traces])
        shares = np.concatenate([trace.overlaps() for trace in traces])
        self.add("overlap", setting, traces, mean=float(shares.mean()),
                 mean_far=float(far.mean()), far=FAR, median=float(np.median(shares)),
                 histogram=histogram(shares))

    # How much of the mass would have to move for top-p to keep another set.
    def mass_margins(self, setting, traces):
        masses = [token["mass"] for trace in traces for token in trace.about["tokens"]]
        shares = [m["margin"] / m["total"] for m in masses if m["margin"] is not None]
        if shares:
            self.add("mass_margin", setting, traces, median=float(np.median(shares)),
                     least=min(shares))

    # The CPU's guess: rows that `certified` decides from one read.
    def guess(self, setting, traces):
        for row in self.ranking(f"guesses, {setting}", traces, 512, traces[0].parameters, True):
            if row["algorithm"] == "certified" and row.get("ran") == "certified":
                self.add("guess", setting, traces, backend=row["backend"], asked=row["calls_rows"],
                         holds=float(row["read_once"]), reads=row["reads"])

    # The GPU's: what a threshold in deviations finds, alone and with a table that learns. The first
    # half of the rows is the table's to learn from; all are judged on the second.
    def truncation(self, setting, traces):
        top_p = traces[0].parameters["top_p"]
        if top_p == 1.0 or traces[0].parameters["top_k"] > 0:
            return
        logits = np.concatenate([trace.logits for trace in traces])
        boundaries = np.concatenate([trace.boundaries() for trace in traces])
        half = len(logits) // 2
        room = room_of(BATCH, logits.shape[1])
        order = np.random.default_rng(1).permutation(len(logits))
        for name, guess in (("gaussian", Truncation(top_p, room, False)),
                            ("table", Truncation(top_p, room, True)),
                            ("formula", Truncation(top_p, None, False))):  # without a bound
            judged = [guess.holds(logits[i], boundaries[i]) for i in order][half:]
            self.add("truncation", setting, traces, guess=name,
                     room=None if guess.room is None else room, asked=len(judged),
                     holds=float(np.mean([holds for holds, _ in judged])),
                     gathered=float(np.mean([gathered for _, gathered in judged])))

    def certificates(self, setting, dense):
        for head in HEADS:
            traces = self.traces(setting, head)
            is_same = all(np.array_equal(a.tokens, b.tokens) and np.array_equal(a.kept, b.kept)
                          for a, b in zip(dense, traces, strict=True))
            said = [t["certificate"] for trace in traces for t in trace.about["tokens"]]
            certified = [c for c in said if c["path"] == "planes"]
            reasons = [c["reason"] for c in said if c["path"] != "planes"]
            survivors = [c["survivors"] for c in certified] or [0]
            # None was left out: null, which is no margin at all.
            margins = [c["margin"] for c in certified if c["margin"] is not None] or [0.0]
            self.differing += not is_same
            self.add("certificate", setting, traces, head=head,
                     certified=len(certified) / len(said),
                     dense={reason: reasons.count(reason) for reason in sorted(set(reasons))},
                     survivors_mean=float(np.mean(survivors)),
                     survivors_p90=float(np.quantile(survivors, 0.9)),
                     survivors_most=max(survivors), margin_least=float(min(margins)),
                     margin_median=float(np.median(margins)), exact=is_same)

    def ranking(self, what, traces, most, parameters=None, is_quick=False):
        """The rows of `sluice bench algorithms`, on rows spread over the traces."""
        self.progress.show(what)
        logits = np.concatenate([trace.logits for trace in traces])
        np.save(self.folder / "rows.npy", logits)
        flags = []
        if parameters is not None:
            (self.folder / "params.json").write_text(json.dumps(parameters), encoding="utf-8")
            flags += ["--params", str(self.folder / "params.json")]
        if is_quick or self.is_quick:
            flags.append("--quick")
        self.run("bench", "algorithms", "--rows-file", str(self.folder / "rows.npy"), "--rows",
                 str(most), "--json", str(self.folder / "rows.json"), *flags)
        result = json.loads((self.folder / "rows.json").read_text(encoding="utf-8"))
        self.about = {"env": result["env"], "commit": result["commit"]}
        return [{"algorithm": None, **row, "calls_rows": min(most, len(logits))}
                for row in result["rows"]]

    # The article's experiment, and one with the model's own parameters.
    def algorithms(self, setting, traces):
        for parameters in (None, traces[0].parameters):
            for row in self.ranking("ranking algorithms", traces, 100, parameters):
                row["distribution"] = f"{row.pop('calls_rows')} rows of traces, {setting}"
                row["task"] = setting if row["task"] == "params" else row["task"]
                if row["algorithm"] is None:
                    del row["algorithm"]
                self.rows.append(row)

    def run_all(self):
        for setting in SETTINGS:
            traces = self.traces(setting, "dense")
            self.sets(setting, traces)
            self.mass_margins(setting, traces)
            self.guess(setting, traces)
            self.truncation(setting, traces)
            if setting in CERTIFIED:
                self.certificates(setting, traces)
            if setting == next(iter(SETTINGS)):
                self.algorithms(setting, traces)
        self.progress.clear()


def table(title, heading, lines):
    cells = [heading, *[[text(cell) for cell in line] for line in lines]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heading))]
    print(f"\n{title}")
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip())


def text(cell):
    if not isinstance(cell, float):
        return str(cell)
    if 0 < cell < 0.001:
        return f"{cell:.1e}"
    return f"{cell:.3f}" if cell < 1 else f"{cell:.2f}" if cell < 10 else f"{cell:.0f}"


def report(rows):
    def of(task):
        return [row for row in rows if row["bench"] == "traces" and row["task"] == task]

    table("Sizes of kept sets, and % of them by size",
          ["", "rows", "mean", "least", "median", "p90", "most", "1", *[f"-{n}" for n in SIZES],
           "more"],
          [[r["setting"], r["rows"], r["mean"], r["least"], r["median"], r["p90"], r["most"],
            *[f"{100 * share:.0f}" for share in (r["single"], *r["shares"])]] for r in of("kept")])
    table("Overlap: the share of a kept set that was kept one token earlier, % of the sets",
          ["", "mean", f"{FAR} earlier", *[f"{i / 10}-" for i in range(10)], "1"],
          [[r["setting"], r["mean"], r["mean_far"],
            *[f"{100 * n / max(sum(r['histogram']), 1):.0f}" for n in r["histogram"]]]
           for r in of("overlap")])
    table("Margin of top-p: the share of the mass that separates it from another set",
          ["", "median", "least"],
          [[r["setting"], r["median"], r["least"]] for r in of("mass_margin")])
    table("The CPU's guess: rows that certified decides from one read",
          ["", "backend", "rows", "holds", "reads"],
          [[r["setting"], r["backend"], r["asked"], r["holds"], r["reads"]] for r in of("guess")])
    table(f"Truncation by deviations, with the room of a batch of {BATCH} (formula: no bound)",
          ["", "guess", "room", "rows", "holds", "gathers"],
          [[r["setting"], r["guess"], r["room"] or "any", r["asked"], r["holds"], r["gathered"]]
           for r in of("truncation")])
    table("The certified head",
          ["", "head", "rows", "certified", "dense for", "survivors", "p90", "most", "margin",
           "least", "exact"],
          [[r["setting"], r["head"], r["rows"], r["certified"],
            ", ".join(f"{reason} {n}" for reason, n in r["dense"].items()), r["survivors_mean"],
            r["survivors_p90"], r["survivors_most"], r["margin_median"], r["margin_least"],
            "yes" if r["exact"] else "NO"] for r in of("certificate")])
    ranked = [row for row in rows if row["bench"] == "algorithms"]
    for backend, task in dict.fromkeys((r["backend"], r["task"]) for r in ranked):
        own = [r for r in ranked if (r["backend"], r["task"]) == (backend, task)]
        best = min(r["mean_ns"] for r in own if "algorithm" in r)
        lines = [[f"({r['peer']})" if "peer" in r else
                  r["algorithm"] + (" *" if r["algorithm"] in ARTICLE else ""),
                  r["mean_ns"] / 1e3, r["mean_ns"] / best, r["reads"] or "-",
                  {True: "yes", False: "NO"}.get(r.get("exact"), "-")]
                 for r in sorted(own, key=lambda r: r["mean_ns"])]
        table(f"{task}, {backend}, {own[0]['distribution']} (* of the article, () peers)",
              ["", "us", "times", "reads", "exact"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true",
                        help="few tokens and a run of seconds, whose times mean nothing")
    arguments = parser.parse_args()
    if arguments.json:  # better now than after minutes
        try:
            Path(arguments.json).open("a", encoding="utf-8").close()
        except OSError as error:
            sys.exit(f"trace_study: {arguments.json} cannot be written: {error.strerror}")
    with tempfile.TemporaryDirectory() as folder:
        study = Study(arguments.sluice, folder, arguments.quick)
        study.run_all()
    report(study.rows)
    if arguments.json:
        about = {**study.about, "env": {**study.about["env"], "load": os.getloadavg()[0],
                                        "os": platform.platform()}}
        lines = ",\n".join("  " + json.dumps(row) for row in study.rows)
        Path(arguments.json).write_text(
            json.dumps(about)[:-1] + f', "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    if study.differing > 0:
        sys.exit(f"trace_study: {study.differing} rows are not what they should be")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
