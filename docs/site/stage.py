#!/usr/bin/env python3
"""Makes the sources of the documentation site from the repository: stage.py ROOT BUILD PROGRAM PACKAGE.

Every Markdown page is copied below BUILD/source, and the map docs/README.md decides the navigation: a heading of
it is a section, the links in the first column of its tables are the pages. A link to a page stays a link; one to
another file of the repository leads to that file at SLUICE_DOCS_REPOSITORY, an address that files are appended to,
or without one to a copy of the file in the site. The reference is made by headers.py, python_reference.py and
command_reference.py; notebooks become pages by notebooks.py.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import command_reference  # noqa: E402
import headers  # noqa: E402
import http_reference  # noqa: E402
import notebooks  # noqa: E402
import python_reference  # noqa: E402

FENCE = re.compile(r"^ {0,3}(```+|~~~+|:::+)")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?)([^()\s<>]+)(>?(?:\s+\"[^\"]*\")?\s*\))")
NOT_RUN = re.compile(r"^<!-- not run: (.*) -->\n", re.MULTILINE)  # tests/docs/commands_test.py has the marks
ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$')
ROW = re.compile(r"^\| \[[^\]]*\]\(([^)\s]+)\)")

# Pages with another place in the site than in the repository, less docs/.
PLACES = {"README.md": "start.md", "docs/README.md": "contents.md", "docs/site/index.md": "index.md"}
# Folders that the site has a made page for.
MADE = {"include/sluice": "reference/cpp.md", "include/sluice/c": "reference/c.md",
        "python": "reference/python.md", "cli": "reference/command.md",
        "src/server/api": "reference/http.md"}
TITLES = {"start": "What Sluice is", "reference/command": "Command", "server": "HTTP: the server", "faq": "FAQ",
          "contents": "All pages"}
NESTED = ("Research", "Notes")  # sections with a page of their own, to keep the navigation short
TEXT = {".hpp": "c++", ".h": "c++", ".cc": "c++", ".cu": "c++", ".cuh": "c++", ".def": "c++", ".py": "python",
        ".sh": "bash", ".toml": "toml", ".cff": "yaml", ".service": "ini"}


def git(root, *arguments):
    run = subprocess.run(["git", "-C", root, *arguments], capture_output=True, encoding="utf-8", check=True)
    return [line for line in run.stdout.split("\n") if line]


def place(name):
    return PLACES.get(name) or re.sub(r"\.ipynb$", ".md", name.removeprefix("docs/"))


def sections(text):
    """(heading, links) of the map's second-level headings."""
    parts = re.split(r"(?m)^## (.+)$", text)
    return [(heading, [found[1] for line in body.split("\n") if (found := ROW.match(line))])
            for heading, body in zip(parts[1::2], parts[2::2])]


def outside_code(text, change):
    """Applies `change` to the prose of a page, not to its code."""
    lines, fence = [], ""
    for line in text.split("\n"):
        found = FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence):
                fence = ""
        elif found and found[1][0] != ":":
            fence = found[1]
        elif not line.startswith("    "):
            kept, end = [], 0
            line = CODE.sub(lambda code: kept.append(code[0]) or f"\0{len(kept) - 1}\0", line)
            line = re.sub("\0(\\d+)\0", lambda mark: kept[int(mark[1])], change(line))
        lines.append(line)
    return "\n".join(lines)


class Site:
    def __init__(self, root, source):
        self.root, self.source = root, source
        self.tracked = set(git(root, "ls-files", "-co", "--exclude-standard"))
        self.pages = {name for name in self.tracked if name.endswith((".md", ".ipynb")) and (root / name).exists()
                      and not name.startswith(".")}
        self.repository = os.environ.get("SLUICE_DOCS_REPOSITORY", "")
        self.copied = set()

    def resolve(self, name, target):
        """The path in the repository that a link of page `name` names."""
        return os.path.normpath(target[1:] if target[0] == "/" else os.path.join(os.path.dirname(name), target))

    def site_place(self, path):
        """Where the site has a path of the repository; copies the file where it has to."""
        if path in self.pages:
            return place(path)
        if path in MADE:
            return MADE[path]
        if path.startswith("docs/img/") or path.endswith(".png"):
            return place(path)
        if self.repository:
            return ""
        return self.copy(path)

    def copy_extra(self, path, there):
        """Puts a file into the site as it is."""
        target = self.source.parent / "extra" / there
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / path, target)

    def copy(self, path):
        """A page with the text of a file, or the list of the files of a folder."""
        file, page = self.root / path, f"files/{path}.rst"
        target = self.source / page
        if path.endswith(".json"):  # a browser shows it as it is
            page = f"files/{path}"
        if path in self.copied:
            return page
        self.copied.add(path)
        if path.endswith(".json"):
            self.copy_extra(path, page)
            return page
        target.parent.mkdir(parents=True, exist_ok=True)
        head = f":orphan:\n:nosearch:\n\n{path}\n{'=' * len(path)}\n\n"
        if file.is_dir():
            inside = sorted(name for name in self.tracked if name.startswith(path + "/"))
            body = "\n".join(f"- ``{name}``" for name in inside)
        else:
            copy = target.with_suffix("")
            shutil.copy(file, copy)
            body = (f".. literalinclude:: {copy.name}\n   :language: {TEXT.get(file.suffix, 'text')}\n"
                    "   :linenos:\n")
        target.write_text(head + body + "\n", encoding="utf-8")
        return page

    def link(self, name, here, target):
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("#"):
            return target
        path, mark, anchor = target.partition("#")
        path = self.resolve(name, path)
        there = self.site_place(path)
        if not there:
            return f"{self.repository.rstrip('/')}/{path}"
        relative = os.path.relpath(there, os.path.dirname(here) or ".")
        return relative + mark + anchor

    def stage(self, name, text, here=None):
        here = here or place(name)

        def replaced(found):
            link = self.link(name, here, found[2])
            if link.endswith(".json"):  # no page, so Sphinx would look for a download
                return f'<a href="{link}">{found[1][1:found[1].rindex("](")]}</a>'
            return found[1] + link + found[3]

        text = NOT_RUN.sub(r"*Not run by the tests: \1.*\n\n", text)
        text = outside_code(text, lambda line: ANCHOR.sub(r"(\1)=", LINK.sub(replaced, line)))
        target = self.source / here
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def toctree(self, heading, links, caption=True):
        entries = []
        for link in links:
            page = str(Path(self.site_place(self.resolve("docs/README.md", link))).with_suffix(""))
            entries.append(f"{TITLES[page]} </{page}>" if page in TITLES else "/" + page)
        return self.tree(entries, heading if caption else "")

    def tree(self, entries, caption=""):
        option = [f":caption: {caption}"] if caption else []
        return "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", *option, "", *entries, "```", ""])

    def navigation(self):
        """The toctrees for the end of the first page, in the map's order; writes the pages of nested sections."""
        text, trees = (self.root / "docs/README.md").read_text(encoding="utf-8"), ""
        for heading, links in sections(text):
            if heading in NESTED:
                body = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)[1]
                here = f"{heading.lower()}/index.md"
                self.stage("docs/README.md", f"# {heading}\n{body}\n", here)
                with open(self.source / here, "a", encoding="utf-8") as file:
                    file.write(self.toctree(heading, links, caption=False))
                trees += self.tree(["/" + here.removesuffix(".md")], "Background" if heading == NESTED[0] else "")
            else:
                trees += self.toctree(heading, links)
        return trees + self.tree([f"{TITLES['contents']} </contents>"])


def main():
    root, build, program, package = (Path(argument).resolve() for argument in sys.argv[1:5])
    source = build / "source"
    for folder in (source, build / "include", build / "extra"):
        shutil.rmtree(folder, ignore_errors=True)
    site = Site(root, source)
    headers.write(root, build, source)
    python_reference.write(package, source)
    command_reference.write(root, program, source)
    http_reference.write(program, source)
    trees = site.navigation()
    for name in sorted(site.pages):
        text = (root / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            site.copy_extra(name, place(name).removesuffix(".md") + ".ipynb")
            text = notebooks.as_markdown(name, text)
        site.stage(name, text + (trees if name == "docs/site/index.md" else ""))
    shutil.copytree(root / "docs/img", source / "img", dirs_exist_ok=True)
    for name in sorted(site.tracked):
        if name.startswith("docs/") and name.endswith(".png"):
            target = source / place(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, target)
    print(f"docs: {len(site.pages)} pages, {len(site.copied)} files of the repository that they link to")


if __name__ == "__main__":
    main()
