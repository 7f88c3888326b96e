#!/usr/bin/env python3
"""Draws commands and what they printed as a picture of a terminal.

    scripts/terminal_svg.py tests/cli/golden.txt serve serve_stream --output docs/img/serve.svg

The text is that of the named sections of golden.txt, which are real runs: tests/cli/golden_test.py
writes them, and repeats them in every test run. A line of `$ command` is a prompt; what every section
begins with is drawn once. Lines are cut at 100 characters, as a terminal does it. With nothing but
Python, so the same text gives the same bytes everywhere.
"""

import argparse
import html
import re
import sys
from pathlib import Path

COLUMNS = 100
WIDTH, HEIGHT, MARGIN, BAR = 7.8, 18, 16, 30  # of a character, a line, and the frame, in pixels
BACK, FRAME, INK, PROMPT, OUTPUT = "#1d2126", "#2b3138", "#f2f4f7", "#7fc08a", "#b9c0c9"
BUTTONS = ("#e0675f", "#dfb34a", "#6bb36f")


def section(text, name):
    found = re.search(rf"^# \[{name}\]\n(.*?)^# \[{name}\]\n", text, re.DOTALL | re.MULTILINE)
    if found is None:
        sys.exit(f"terminal_svg: there is no section [{name}]")
    return found[1].rstrip("\n").split("\n")


def together(sections):
    """All lines, those that a later section has in common with the first at its beginning left out."""
    lines = list(sections[0])
    for later in sections[1:]:
        same = 0
        while same < min(len(later), len(sections[0])) and later[same] == sections[0][same]:
            same += 1
        lines += later[same:]
    return lines


def rows_of(lines):
    """(is a command, is its first row, text) of every row of the screen."""
    for line in lines:
        is_command = line.startswith("$ ")
        for at in range(0, max(len(line), 1), COLUMNS):
            yield is_command, is_command and at == 0, line[at:at + COLUMNS]


def span(text, colour, is_bold=False):
    weight = ' font-weight="bold"' if is_bold else ""
    return f'<tspan fill="{colour}"{weight}>{html.escape(text, quote=False)}</tspan>'


def picture(lines, title):
    rows = list(rows_of(lines))
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    height = BAR + len(rows) * HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img">',
           f"<title>{html.escape(title, quote=False)}</title>",
           f'<rect width="{width}" height="{height}" rx="8" fill="{BACK}"/>',
           f'<path d="M0 {BAR}V8a8 8 0 0 1 8-8h{width - 16}a8 8 0 0 1 8 8v{BAR - 8}z" '
           f'fill="{FRAME}"/>']
    out += [f'<circle cx="{MARGIN + 18 * i}" cy="{BAR // 2}" r="5" fill="{colour}"/>'
            for i, colour in enumerate(BUTTONS)]
    out.append("<style>text,tspan{white-space:pre}</style>")  # Chromium takes no xml:space from a parent
    out.append('<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
               'font-size="13" xml:space="preserve">')
    for number, (is_command, is_first, text) in enumerate(rows):
        if not text:
            continue
        spans = span(text, INK, True) if is_command else span(text, OUTPUT)
        if is_first:
            spans = span("$", PROMPT, True) + span(text[1:], INK, True)
        y = BAR + MARGIN + number * HEIGHT + 13
        # Whatever the font, a column is a column.
        length = f"{len(text) * WIDTH:.1f}"
        out.append(f'<text x="{MARGIN}" y="{y}" textLength="{length}" lengthAdjust="spacing">'
                   f"{spans}</text>")
    return "\n".join([*out, "</g>", "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("golden", type=Path)
    parser.add_argument("sections", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    text = args.golden.read_text(encoding="utf-8")
    lines = together([section(text, name) for name in args.sections])
    title = next(line[2:] for line in lines if line.startswith("$ "))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(picture(lines, title), encoding="utf-8")


if __name__ == "__main__":
    main()
