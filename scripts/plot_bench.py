#!/usr/bin/env python3
"""Draws rows of a file of results as a bar chart, one bar a row.

    scripts/plot_bench.py bench/results/select-cpu.json --output docs/img/select-cpu.svg

A bar is `--value`, by default the time in reads of the row; its number stands at its end. The axis is
linear, and logarithmic where the largest bar is 50 times the smallest. Colours follow the reader's
light or dark mode. Nothing but Python is needed, so the same file gives the same bytes everywhere.
"""

import argparse
import html
import json
import math
import statistics
import sys
from pathlib import Path

PLOT, VALUE, LETTER = 420, 76, 6.9  # widths in pixels; of a letter of a label
BAR, GAP, TOP, LEGEND = 16, 6, 84, 24
STYLE = """<style>
.page{fill:#ffffff}.ink{fill:#22262b}.quiet{fill:#5d636c}.grid{stroke:#d9dce1}.tick{stroke:#22262b;stroke-width:2}
.ours{fill:#3b6fb6}.missed{fill:#c0443c}.other{fill:#8a8f98}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117}.ink{fill:#e6edf3}.quiet{fill:#9aa4af}.grid{stroke:#30363d}.tick{stroke:#e6edf3}
.ours{fill:#6aa2f0}.missed{fill:#f0766d}.other{fill:#767d87}}
</style>"""
NAMES = {"sluice": "Sluice", "sluice-requests": "Sluice, DeviceSampler",
         "flashinfer-joint": "FlashInfer, joint filter",
         "flashinfer-k-first-rows": "FlashInfer, a k a row", "vllm-triton": "vLLM, Triton",
         "torch-sort": "torch, sort", "skipped": "no sampler",
         "k50 p.95": "k = 50, p = 0.95", "p.95": "p = 0.95", "k50 p.95 seeded": "k = 50, p = 0.95, seeds",
         "penalties, min-p, bias, seeded": "+ penalties, min-p, bias", "logprobs 20": "20 log-probabilities",
         "vLLM, Rust front end": "vLLM's Rust front end"}
SHOWN = {"vocab": "V = ", "batch": "batch ", "threads": "threads: ", "streams": "streams: "}
MAKERS = ("peer", "sampler", "front")  # fields that name what a row was measured with
KEYS = ("task", "backend", "algorithm", "dtype", "distribution", "cache", "vocab", "batch", "threads")


def uses_mean(row):
    """The experiment with all algorithms is ranked by means, because its rows differ."""
    return row.get("target_of") == "mean" or row.get("bench") == "algorithms"


def number(row, value, is_peer=False):
    """A row's bar, or None: its time in reads, or the field or quotient that `value` names."""
    if value == "reads" and is_peer:
        value = "peer_ns/floor_ns"
    elif value == "reads":
        value = "mean_ns/floor_ns" if uses_mean(row) else "ns/floor_ns"
    elif is_peer:
        value = value.replace("ns", "peer_ns", 1)
    over, _, under = value.partition("/")
    below = float(under) if under.replace(".", "").isdigit() else row.get(under) if under else 1.0
    above = row.get(over)
    return above / below if isinstance(above, (int, float)) and below else None


def label_of(row, keys):
    names = [row.get("algorithm") or row.get("peer")] if row["bench"] == "algorithms" else []
    names += [(SHOWN.get(key, "") if key in ("batch", "streams") else "") + str(row[key]) for key in keys
              if row.get(key) not in (None, "")]
    return ", ".join(NAMES.get(name, name) for name in names)


def grouped(rows, keys):
    """The rows by their keys, the first key first: numbers ascend, words keep the order of the file."""
    first = {key: list(dict.fromkeys(row.get(key) for row in rows)) for key in keys}
    return sorted(rows, key=lambda row: [row[key] if isinstance(row.get(key), (int, float)) else
                                         first[key].index(row.get(key)) for key in keys])


def bars_of(rows, options):
    """(label, value, target or None, is of others), each figure once, in the file's order or by groups; and
    what all of them have in common."""
    is_ranking = rows[0]["bench"] == "algorithms"
    keys = [key for key in KEYS if not (is_ranking and key == "algorithm")]
    differing = options.label.split(",") if options.label else [
        key for key in keys if len({row.get(key) for row in rows}) > 1]
    if not is_ranking and not differing:
        differing = ["task"]
    if options.grouped:
        rows = grouped(rows, differing)
    bars, repeated = {}, {}
    for row in rows:
        label = label_of(row, differing)
        is_other = is_ranking and "algorithm" not in row or (
            any(key in differing and not str(row.get(key)).lower().startswith("sluice") for key in MAKERS))
        target = row.get("target") if options.targets else None
        repeated.setdefault(label, []).append(number(row, options.value))
        bars.setdefault(label, (repeated[label][0], target, is_other))
        if options.median:
            bars[label] = (statistics.median(repeated[label]), target, is_other)
        if options.peers and row.get("peer_ns"):
            bars[f"{label}: {row['peer']}"] = (number(row, options.value, True), None, True)
    common = [f"{SHOWN.get(key, '')}{rows[0][key]}" for key in keys
              if len({row.get(key) for row in rows}) == 1 and rows[0].get(key) is not None]
    return [(label, *bar) for label, bar in bars.items()], ", ".join(common)


def short(value, decimals=None):
    size = abs(value)
    if decimals is not None:
        return f"{value:,.{decimals}f}"
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"


def text(x, y, words, kind="ink", anchor="start", size=12):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'class="{kind}">{html.escape(words)}</text>')


class Axis:
    """Where a value lies between 0 and 1, and the marks."""

    def __init__(self, values, linear):
        self.low, self.high = min(values), max(values)
        self.is_log = not linear and self.low > 0 and self.high >= 50 * self.low
        if self.is_log:
            self.first = math.floor(math.log10(self.low / 2))
            self.last = math.ceil(math.log10(self.high))
            self.marks = [10.0**power for power in range(self.first, self.last + 1)]
        else:
            step = 10.0**math.floor(math.log10(max(self.high, -self.low, 1e-9)))
            reach = self.high - min(self.low, 0)
            step = next(s for s in (step / 5, step / 2, step, 2 * step) if reach / s <= 8)
            begin = math.floor(min(self.low, 0) / step)
            self.marks = [i * step for i in range(begin, math.ceil(self.high / step) + 1)]

    def at(self, value):
        if self.is_log:
            return max(0.0, math.log10(max(value, 1e-30)) - self.first) / (self.last - self.first)
        return (value - self.marks[0]) / (self.marks[-1] - self.marks[0])

    def zero(self):
        return 0.0 if self.is_log else self.at(0.0)


def legend_of(bars, options):
    """(class, words) of every colour that is in use."""
    has_target = any(bar[2] for bar in bars)
    ours = [bar for bar in bars if not bar[3]]
    missed = [bar for bar in ours if bar[2] and bar[1] > bar[2]]
    parts = []
    if len(missed) < len(ours):
        parts.append(("ours", options.ours + (", target met or none" if has_target else "")))
    parts += [("missed", options.ours + ", target missed")] if missed else []
    parts += [("other", options.others)] if any(bar[3] for bar in bars) else []
    return parts, has_target


def svg(title, subtitle, bars, options):
    axis = Axis([bar[1] for bar in bars] + [bar[2] for bar in bars if bar[2]], options.linear)
    left = math.ceil(max(len(bar[0]) for bar in bars) * LETTER) + 24
    width = max(left + PLOT + VALUE, math.ceil(len(title) * 8.6) + 24, math.ceil(len(subtitle) * 6.3) + 24)
    bottom = TOP + len(bars) * (BAR + GAP)
    height = bottom + 40

    def at(value):
        return left + PLOT * axis.at(value)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif">', STYLE,
             f'<rect width="{width}" height="{height}" class="page"/>',
             text(12, 22, title, size=15), text(12, 42, subtitle, "quiet", size=11)]
    legend, has_target = legend_of(bars, options)
    x = 12
    for kind, words in legend:
        parts.append(f'<rect x="{x}" y="{LEGEND + 32}" width="10" height="10" class="key {kind}"/>')
        parts.append(text(x + 15, LEGEND + 41, words, "quiet", size=11))
        x += 15 + math.ceil(len(words) * 6.3) + 18
    if has_target:
        parts.append(f'<line x1="{x + 4}" y1="{LEGEND + 31}" x2="{x + 4}" y2="{LEGEND + 43}" class="tick"/>')
        parts.append(text(x + 15, LEGEND + 41, "target", "quiet", size=11))
    for mark in axis.marks:
        parts.append(f'<line x1="{at(mark):.1f}" y1="{TOP - 4}" x2="{at(mark):.1f}" y2="{bottom}" class="grid"/>')
        parts.append(text(round(at(mark), 1), bottom + 16, f"{mark:,.10g}", "quiet", "middle", 11))
    for index, (label, value, target, is_other) in enumerate(bars):
        y = TOP + index * (BAR + GAP)
        kind = "other" if is_other else "missed" if target and value > target else "ours"
        begin, end = sorted((left + PLOT * axis.zero(), at(value)))
        parts.append(text(left - 8, y + 12, label, "ink label", "end"))
        parts.append(f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{BAR}" '
                     f'class="bar {kind}"/>')
        if target:
            parts.append(f'<line x1="{at(target):.1f}" y1="{y - 2}" x2="{at(target):.1f}" y2="{y + BAR + 2}" '
                         f'class="tick"/>')
        parts.append(text(round(max(end, at(target) if target else end) + 6, 1), y + 12,
                          short(value, options.decimals) + options.unit, size=11))
    scale = options.axis + (", logarithmic" if axis.is_log else "")
    parts.append(text(left + PLOT, bottom + 33, scale, "quiet", "end", 11))
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="JSON of a bench")
    parser.add_argument("--output", required=True, help="the SVG")
    parser.add_argument("--title", help="instead of the bench's name")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE[,VALUE...]",
                        help="rows with these values alone, as in --only cache=hot")
    parser.add_argument("--value", default="reads", help="a field, or a quotient as ns/1000; reads: of the row")
    parser.add_argument("--label", help="the fields that name a bar, with commas; else those that differ")
    parser.add_argument("--median", action="store_true", help="of the rows with one label; else the first row")
    parser.add_argument("--grouped", action="store_true", help="bars by the fields of --label, not in the file's order")
    parser.add_argument("--decimals", type=int, help="of each number; else three digits")
    parser.add_argument("--axis", help="what the axis shows")
    parser.add_argument("--unit", default="", help="after each number, as in %%")
    parser.add_argument("--ours", default="Sluice", help="the words for blue bars")
    parser.add_argument("--others", default="others", help="the words for grey bars")
    parser.add_argument("--linear", action="store_true", help="a linear axis whatever the bars")
    parser.add_argument("--peers", action="store_true", help="with a grey bar for every peer")
    parser.add_argument("--targets", action="store_true", help="with a tick for every target")
    args = parser.parse_args()
    args.axis = args.axis or ("times one read of the row" if args.value == "reads" else args.value)
    try:
        report = json.loads(Path(args.result).read_text(encoding="utf-8"))
        rows = [row for row in report["rows"] if number(row, args.value) is not None and
                (args.value != "reads" or row.get("ns"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"result: {args.result} is no JSON of sluice bench: {error}")
    for condition in args.only:
        key, _, values = condition.partition("=")
        if not any(key in row for row in rows):
            known = ", ".join(sorted({key for row in rows for key in row}))
            parser.error(f"--only: {condition} names no key of the rows: {known}")
        rows = [row for row in rows if str(row.get(key)) in values.split(",")]
    if not rows:
        parser.error(f"result: {args.result} has no timed rows" +
                     (f" with {' '.join(args.only)}" if args.only else ""))
    bars, common = bars_of(rows, args)
    machine = report["env"].get("gpu") or report["env"]["cpu"]
    subtitle = ", ".join(part for part in (common, machine, "commit " + report["commit"][:12]) if part)
    title = args.title or f"sluice bench {rows[0]['bench']}"
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(svg(title, subtitle, bars, args), encoding="utf-8")
    print(f"{args.output}: {len(bars)} bars")


if __name__ == "__main__":
    sys.exit(main())
