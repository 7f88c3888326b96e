#!/usr/bin/env python3
"""`make docs` builds without a warning, and every link within the site leads somewhere: site_build_test.py ROOT TREE.

Exits with 77, which skips the test, where the tools of the site are missing (scripts/setup.sh docs).
"""

import html
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT, TREE = (Path(argument).resolve() for argument in sys.argv[1:3])
LINK = re.compile(r'<(?:a|img|script|link|iframe)\b[^>]*?\b(?:href|src)="([^"]*)"')
ID = re.compile(r'\b(?:id|name)="([^"]*)"')


def dead(folder):
    """(page, link) of each link to a file or an anchor that the site lacks, or to another host's picture or font."""
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    ids = {path: {html.unescape(name) for name in ID.findall(text)} for path, text in texts.items()}
    for page, text in texts.items():
        for link in map(html.unescape, LINK.findall(text)):
            if re.match(r"(?:[a-z]+:|//)", link) or link in ("", "#"):
                continue
            path, _, anchor = link.partition("#")
            target = page if not path else (page.parent / urllib.parse.unquote(path.split("?")[0])).resolve()
            if not target.exists():
                yield page.relative_to(folder), link
            elif anchor and target in ids and urllib.parse.unquote(anchor) not in ids[target]:
                yield page.relative_to(folder), link


def loaded(folder):
    """What a page would load from elsewhere: the site works without a network."""
    pattern = re.compile(r'<(?:script|img|iframe)\b[^>]*?\bsrc="((?:https?:)?//[^"]*)"|<link\b[^>]*?rel="stylesheet"'
                         r'[^>]*?href="((?:https?:)?//[^"]*)"')
    for path in folder.rglob("*.html"):
        for found in pattern.finditer(path.read_text(encoding="utf-8")):
            yield path.relative_to(folder), found[1] or found[2]


def main():
    if not shutil.which("doxygen") or not (ROOT / "build/docs-venv/bin/sphinx-build").exists():
        print("skipped: the tools of the site are missing: scripts/setup.sh docs")
        return 77
    run = subprocess.run([ROOT / "scripts/docs.sh"], cwd=ROOT, env={**os.environ, "BUILD": str(TREE)},
                         encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(run.stdout)
    if run.returncode != 0:
        return 1
    folder = ROOT / "build/docs/html"
    faults = [f"{page}: {what} {link}" for find, what in ((dead, "no"), (loaded, "loads"))
              for page, link in find(folder)]
    print("\n".join(faults[:100]))
    count = len(list(folder.rglob("*.html")))
    print(f"{count} pages, {len(faults)} faults")
    return 1 if faults or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
