#!/usr/bin/env python3
"""Draws the ways of data through the source, and writes their tables, from docs/ways.toml.

    scripts/draw_ways.py --write    docs/img/way-*.svg and the tables in docs/architecture*.md
    scripts/draw_ways.py --check    says what --write would change, and names every hop whose file or function is gone
"""
import argparse
import html
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs/architecture.md", ROOT / "docs/architecture-tokens.md"]
COLUMNS = 4
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 218, 62, 26, 34, 12
LIGHT = ["#dbeafe", "#dcfce7", "#fef3c7", "#fae8ff", "#fee2e2", "#e0e7ff", "#cffafe", "#f3e8d8", "#e5e7eb"]
DARK = ["#1e3a5f", "#14432a", "#4a3a10", "#44204f", "#4f1f1f", "#2a2f66", "#124049", "#40331f", "#30363d"]
STYLE = "\n".join([
    "<style>",
    ".page{fill:#ffffff}.ink{fill:#0f172a}.quiet{fill:#475569}.line{stroke:#475569}.edge{stroke:#94a3b8}",
    "".join(f".f{index}{{fill:{colour}}}" for index, colour in enumerate(LIGHT)),
    "@media (prefers-color-scheme:dark){",
    ".page{fill:#0d1117}.ink{fill:#e6edf3}.quiet{fill:#9aa4af}.line{stroke:#9aa4af}.edge{stroke:#57606a}",
    "".join(f".f{index}{{fill:{colour}}}" for index, colour in enumerate(DARK)) + "}",
    "</style>"])


def ways():
    with open(ROOT / "docs/ways.toml", "rb") as file:
        return tomllib.load(file)["way"]


def folder_of(hop):
    parts = pathlib.PurePosixPath(hop["file"]).parts
    return parts[1] if parts[0] == "src" else parts[0]


def missing(way):
    """Sentences about hops whose file or function the source does not have."""
    for number, hop in enumerate(way["hop"], 1):
        path = ROOT / hop["file"]
        name = hop["function"].split("::")[-1]
        if not path.is_file():
            yield f"{way['name']}, hop {number}: there is no file {hop['file']}"
        elif not re.search(rf"\b{re.escape(name)}\b", path.read_text()):
            yield f"{way['name']}, hop {number}: {hop['file']} has no {name}"


def place_of(index):
    """Rows go from left to right and back, so that an arrow always leads to a neighbour."""
    row, column = divmod(index, COLUMNS)
    if row % 2 == 1:
        column = COLUMNS - 1 - column
    return MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)


def arrow(start, end):
    (x1, y1), (x2, y2) = place_of(start), place_of(end)
    if y1 != y2:
        middle = x1 + BOX_WIDTH / 2
        return f'<path d="M{middle} {y1 + BOX_HEIGHT} V{y2 - 5}"/>'
    y = y1 + BOX_HEIGHT / 2
    return f'<path d="M{x1 + BOX_WIDTH} {y} H{x2 - 5}"/>' if x2 > x1 else f'<path d="M{x1} {y} H{x2 + BOX_WIDTH + 5}"/>'


def picture(way):
    hops = way["hop"]
    folders = list(dict.fromkeys(map(folder_of, hops)))
    rows = -(-len(hops) // COLUMNS)
    width = 2 * MARGIN + COLUMNS * BOX_WIDTH + (COLUMNS - 1) * GAP_X
    height = 2 * MARGIN + rows * BOX_HEIGHT + (rows - 1) * GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif">',
        STYLE,
        f"<title>{html.escape(way['title'])}</title>",
        '<defs><marker id="head" viewBox="0 0 6 6" refX="3" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 L6 3 L0 6 z" class="quiet"/></marker></defs>',
        f'<rect width="{width}" height="{height}" class="page"/>',
        '<g class="line" stroke-width="1.5" fill="none" marker-end="url(#head)">',
        *(arrow(index, index + 1) for index in range(len(hops) - 1)),
        "</g>",
    ]
    for index, hop in enumerate(hops):
        x, y = place_of(index)
        kind = f"f{folders.index(folder_of(hop)) % len(LIGHT)} edge"
        file = hop["file"].removeprefix("src/")
        label = f"{index + 1}. {hop['function']}"
        size = min(13, 330 // len(label))  # a letter is at most 0.6 of the size wide
        lines += [
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" class="{kind}"/>',
            f'<text x="{x + 10}" y="{y + 20}" font-size="{size}" font-weight="600" class="ink">'
            f"{html.escape(label)}</text>",
            f'<text x="{x + 10}" y="{y + 37}" font-size="10" class="quiet">{html.escape(file)}</text>',
            f'<text x="{x + 10}" y="{y + 53}" font-size="11" class="ink">{html.escape(hop["short"])}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def table(way):
    files = len({hop["file"] for hop in way["hop"]})
    folders = len({folder_of(hop) for hop in way["hop"]})
    lines = [f"{len(way['hop'])} hops, {files} files, {folders} folders.", "", "| | function | what it does |", "|---|---|---|"]
    for number, hop in enumerate(way["hop"], 1):
        link = f"[`{hop['function']}`](../{hop['file']})"
        lines.append(f"| {number} | {link} | {hop['does']} |")
    return "\n".join(lines)


def filled(texts, all_ways):
    """The pages with the table of each way between its marks."""
    for way in all_ways:
        begin, end = f"<!-- way: {way['name']} -->", "<!-- end -->"
        pages = [page for page, text in texts.items() if begin in text]
        if len(pages) != 1:
            sys.exit(f"{len(pages)} pages have the mark {begin}")
        head, rest = texts[pages[0]].split(begin, 1)
        texts[pages[0]] = head + begin + "\n" + table(way) + "\n" + end + rest.split(end, 1)[1]
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the pictures and the tables")
    what.add_argument("--check", action="store_true", help="end with 1 where something is out of date")
    options = parser.parse_args()
    all_ways = ways()
    faults = [fault for way in all_ways for fault in missing(way)]
    outputs = {ROOT / f"docs/img/way-{way['name']}.svg": picture(way) for way in all_ways}
    outputs |= filled({page: page.read_text() for page in PAGES}, all_ways)
    for path, text in outputs.items():
        if path.is_file() and path.read_text() == text:
            continue
        if options.write:
            path.write_text(text)
        else:
            faults.append(f"{path.relative_to(ROOT)} is out of date: run scripts/draw_ways.py --write")
    print("\n".join(faults) or "the ways are those of the source")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
