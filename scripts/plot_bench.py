#!/usr/bin/env python3
"""Draws the JSON of `sluice bench` as a bar chart: how many times the floor each task takes.

    scripts/plot_bench.py bench/results/select-cpu.json --output docs/img/select-cpu.svg

One bar a figure, on a logarithmic axis; a tick across a bar is its target, and a bar that misses it
is red. The floor is one streaming read of the row. Only what is in the file is drawn, with nothing
but Python, so the same file gives the same bytes everywhere.
"""

import argparse
import html
import json
import math
import sys
from pathlib import Path

LABEL, PLOT, VALUE = 330, 420, 70  # widths in pixels
BAR, GAP, TOP = 16, 6, 58
BLUE, RED, GREY, INK, PALE = "#3b6fb6", "#c0443c", "#8a8f98", "#22262b", "#d9dce1"


def times_floor(row):
    """A row's multiple of the floor: by its mean where the target is one, else by the median."""
    # The experiment with all algorithms is ranked by means, because its rows differ.
    is_mean = row.get("target_of") == "mean" or row.get("bench") == "algorithms"
    return row["mean_ns" if is_mean else "ns"] / row["floor_ns"]


def label_of(row, differing):
    names = [row.get("algorithm") or row.get("peer")] if row["bench"] == "algorithms" else []
    names += [str(row[key]) for key in differing if row.get(key) not in (None, "")]
    return ", ".join(names)


def bars_of(rows, with_peers):
    """(label, times the floor, target or None, is a peer), each figure once, in the file's order;
    and what all of them have in common."""
    is_ranking = rows[0]["bench"] == "algorithms"
    keys = ("task", "backend", "algorithm", "dtype", "distribution", "cache", "vocab", "batch",
            "threads")
    if is_ranking:
        keys = tuple(key for key in keys if key != "algorithm")
    differing = [key for key in keys if len({row.get(key) for row in rows}) > 1]
    if not is_ranking and not differing:
        differing = ["task"]
    bars = {}
    for row in rows:
        label = label_of(row, differing)
        is_peer = is_ranking and "algorithm" not in row
        bars.setdefault(label, (times_floor(row), row.get("target"), is_peer))
        if with_peers and row.get("peer_ns"):
            bars[f"{label}: {row['peer']}"] = (row["peer_ns"] / row["floor_ns"], None, True)
    shown = {"vocab": "V=", "batch": "batch ", "threads": "threads: "}
    common = [f"{shown.get(key, '')}{rows[0][key]}" for key in keys
              if key not in differing and rows[0].get(key) is not None]
    return [(label, *bar) for label, bar in bars.items()], ", ".join(common)


def short(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def text(x, y, words, anchor="start", size=12, colour=INK):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(words)}</text>')


def svg(title, environment, bars, common):
    decades = max(1, math.ceil(math.log10(max(max(b[1], b[2] or 1.0) for b in bars))))
    width = LABEL + PLOT + VALUE
    height = TOP + len(bars) * (BAR + GAP) + 34
    bottom = TOP + len(bars) * (BAR + GAP)

    def at(value):  # nothing is faster than one read, but a measurement may say so
        return LABEL + PLOT * math.log10(max(value, 1.0)) / decades

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(12, 22, title, size=15),
        text(12, 42, ", ".join(part for part in (common, environment) if part), colour=GREY,
             size=11),
    ]
    for decade in range(decades + 1):
        x = at(10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" '
                     f'stroke="{PALE}"/>')
        parts.append(text(round(x, 1), bottom + 16, f"x{10**decade}", "middle", 11, GREY))
    for index, (label, times, target, is_peer) in enumerate(bars):
        y = TOP + index * (BAR + GAP)
        colour = GREY if is_peer else RED if target and times > target else BLUE
        parts.append(text(LABEL - 8, y + 12, label, "end"))
        parts.append(f'<rect x="{LABEL}" y="{y}" width="{max(at(times) - LABEL, 1):.1f}" '
                     f'height="{BAR}" fill="{colour}"/>')
        if target:
            x = at(target)
            parts.append(f'<line x1="{x:.1f}" y1="{y - 2}" x2="{x:.1f}" y2="{y + BAR + 2}" '
                         f'stroke="{INK}" stroke-width="2"/>')
        parts.append(text(round(max(at(times), at(target or 1.0)) + 6, 1), y + 12,
                          "x" + short(times), size=11))
    legend = ["times one read of the row"]
    legend += ["black: the target"] if any(bar[2] for bar in bars) else []
    legend += ["grey: others"] if any(bar[3] for bar in bars) else []
    parts.append(text(LABEL + PLOT, bottom + 30, "; ".join(legend), "end", 11, GREY))
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="JSON of sluice bench")
    parser.add_argument("--output", required=True, help="the SVG")
    parser.add_argument("--title", help="instead of the bench's name")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE[,VALUE...]",
                        help="rows with these values alone, as in --only cache=hot")
    parser.add_argument("--peers", action="store_true", help="with a grey bar for every peer")
    args = parser.parse_args()
    try:
        report = json.loads(Path(args.result).read_text(encoding="utf-8"))
        rows = [row for row in report["rows"] if row.get("ns") and row.get("floor_ns")]
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
    bars, common = bars_of(rows, args.peers)
    environment = report["env"]["cpu"] + ", commit " + report["commit"][:12]
    title = args.title or f"sluice bench {rows[0]['bench']}"
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(svg(title, environment, bars, common), encoding="utf-8")
    print(f"{args.output}: {len(bars)} bars")


if __name__ == "__main__":
    sys.exit(main())
