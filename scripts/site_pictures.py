#!/usr/bin/env python3
"""Takes the pictures of the documentation site that docs/ shows, with Chromium: light, dark and on a phone.

    make docs && scripts/site_pictures.py       writes docs/img/site*.png and docs/img/readme.png

The browser is that of tests/server/browser.py. A picture has at most 150 KB: its colours are reduced to a palette
where Pillow is installed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/server"))

import browser  # noqa: E402

SITE, IMAGES, LIMIT = ROOT / "build/docs/html", ROOT / "docs/img", 150_000
# name: page, width, height, theme
PICTURES = {
    "site": ("index.html", 1280, 800, "light"),
    "site-dark": ("cut.html", 1280, 800, "dark"),
    "site-phone": ("start/python.html", 390, 800, "light"),
    "site-reference": ("reference/http.html", 1280, 800, "light"),
    "readme": ("start.html", 1000, 1000, "light"),
}


def smaller(path):
    """The picture in 128 colours, where Pillow can do that."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


def take(name, target):
    page, width, height, theme = PICTURES[name]
    one = browser.Browser(width, height)
    try:
        one.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 600)
        one.set_theme(theme)
        one.open((SITE / page).as_uri())
        # The theme of the site's own switch follows the system's only where nothing was chosen.
        one.run(f"document.body.dataset.theme = '{theme}'; document.fonts.ready.then(() => true)")
        one.screenshot(target)
    finally:
        one.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(PICTURES), help="of " + ", ".join(PICTURES))
    names = parser.parse_args().names
    if browser.find() is None or not (SITE / "index.html").exists():
        sys.exit("site_pictures: Chromium or build/docs/html is missing: apt-get install chromium, make docs")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / f"{name}.png"
            take(name, made)
            smaller(made)
            if made.stat().st_size > LIMIT:
                sys.exit(f"site_pictures: {name}.png has {made.stat().st_size} bytes, more than {LIMIT}")
            (IMAGES / made.name).write_bytes(made.read_bytes())
            print(f"docs/img/{name}.png: {made.stat().st_size} bytes")


if __name__ == "__main__":
    main()
