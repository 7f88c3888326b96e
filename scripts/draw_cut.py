#!/usr/bin/env python3
"""Draws a logits row with its Cut, docs/img/cut.svg, from what `sluice explain --json` reports.

    scripts/draw_cut.py build/release/sluice --write
    scripts/draw_cut.py build/release/sluice --check    fails where the picture is not that of the command

Every bar is a token, in the total order, and every number in the picture is one of the command's. Colours
follow the reader's light or dark mode.
"""

import argparse
import html
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/img/cut.svg"
ROW = "tests/fixtures/logits.npy"
VOCAB, SHOWN = 48, 12  # tokens of the row, and how many of them are drawn
FLAGS = ["--top-k", "8", "--top-p", "0.7"]
STEP, BAR, LEFT, TOP, HIGH = 56, 40, 108, 96, 150  # pixels: of a column, its bar, margins, the plot
FLOOR = TOP + HIGH
ROWS = ("token id", "logit", "mass before it", "outcome")
STYLE = """<style>
.page{fill:#ffffff}.ink{fill:#22262b}.quiet{fill:#5d636c}.kept{fill:#3b6fb6}.dropped{fill:#c7ccd4}.cut{stroke:#c0443c}
.said{fill:#c0443c}.grid{stroke:#d9dce1}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117}.ink{fill:#e6edf3}.quiet{fill:#9aa4af}.kept{fill:#6aa2f0}.dropped{fill:#3d444d}.cut{stroke:#f0766d}
.said{fill:#f0766d}.grid{stroke:#30363d}}
</style>"""


def explained(sluice, token):
    command = [sluice, "explain", ROW, "--id", str(token), *FLAGS, "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout)


def stage(report, name):
    return next(one for one in report["stages"] if one["name"] == name)


def text(x, y, words, kind="ink", anchor="middle", size=12):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def picture(reports):
    """The row's first tokens, from left to right in the total order."""
    cut, drawn = reports[0]["cut"], reports[0]["token"]
    tokens = sorted(reports, key=lambda report: report["rank"])[:SHOWN]
    width, height = LEFT + SHOWN * STEP + 12, FLOOR + 136
    least, most = min(one["adjusted"] for one in tokens) - 1, max(one["adjusted"] for one in tokens)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="system-ui, sans-serif">', STYLE,
             "<title>The first tokens of a logits row and the Cut of top-k 8 and top-p 0.7</title>",
             f'<rect width="{width}" height="{height}" class="page"/>',
             text(16, 26, f"sluice explain {ROW} --id ID {' '.join(FLAGS)}", "quiet", "start", 13)]
    for index, name in enumerate(ROWS):
        lines.append(text(16, FLOOR + 22 + 24 * index, name, "quiet", "start"))
    for column, one in enumerate(tokens):
        middle = LEFT + column * STEP + STEP / 2
        tall = round(HIGH * (one["adjusted"] - least) / (most - least), 1)
        top_p = stage(one, "top-p")
        is_drawn = one["id"] == drawn
        lines += [f'<rect x="{middle - BAR / 2:g}" y="{FLOOR - tall:g}" width="{BAR}" height="{tall:g}" rx="2" '
                  f'class="{"kept" if one["kept"] else "dropped"}"/>',
                  text(middle, FLOOR + 22, str(one["id"])), text(middle, FLOOR + 46, f"{one['adjusted']:g}"),
                  text(middle, FLOOR + 70, "" if top_p["quantity"] is None else f"{top_p['quantity']:.3f}"),
                  text(middle, FLOOR + 94, one["dropped_by"] or "kept", "ink" if one["kept"] else "quiet")]
        if is_drawn:
            lines.append(text(middle, FLOOR - tall - 8, "drawn"))
    edge = LEFT + cut["count"] * STEP
    lines += [f'<line x1="{LEFT}" y1="{FLOOR}" x2="{width - 12}" y2="{FLOOR}" class="grid"/>',
              f'<line x1="{edge}" y1="{TOP - 44}" x2="{edge}" y2="{FLOOR + 100}" class="cut" stroke-width="2" '
              'stroke-dasharray="6 4"/>',
              text(edge + 10, TOP - 30, f"Cut: lower = {cut['lower']:g}, ties kept = {cut['ties_kept']}, "
                   f"count = {cut['count']}", "said", "start", 13),
              text(16, FLOOR + 124, f"{SHOWN} of {VOCAB} tokens, in the total order: the larger logit first, and of equal "
                   "logits the lower id. The limit of the mass is 0.7.", "quiet", "start")]
    return "\n".join(lines) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sluice", type=Path, help="the command")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    options = parser.parse_args()
    drawn = picture([explained(options.sluice.resolve(), token) for token in range(VOCAB)])
    if options.write:
        PICTURE.write_text(drawn, encoding="utf-8")
        return 0
    if PICTURE.read_text(encoding="utf-8") != drawn:
        print("docs/img/cut.svg is not what sluice explain reports; run scripts/draw_cut.py SLUICE --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
