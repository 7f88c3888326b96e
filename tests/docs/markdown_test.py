#!/usr/bin/env python3
"""Tables, links, paths and commits of every Markdown file are sound. Usage: markdown_test.py ROOT.

The checks are functions on strings; the tests below plant each fault once.
"""

import json
import re
import statistics
import subprocess
import sys
import unittest
from itertools import product
from pathlib import Path

ROOT = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]"  # the text, which may be an image
                  r"\(\s*<?([^()\s<>]*(?:\([^()\s]*\))?[^()\s<>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
ODD = re.compile(r"\b(?:behind(?! a proxy)|beside|in front of|nobody|somebody|whoever|tells?|told|anew)\b",
                 re.IGNORECASE)
RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")  # below the header of a table
HEX = re.compile(r"(?<![\w.#/-])[0-9a-f]{7,40}(?![\w-])")
PATH = re.compile(r"[\w.+-]+(?:/[\w.+*{},-]+)+/?")

# A path is looked up from the root, from src/, include/ and python/, and from the folder of its page.
STARTS = ("", "src", "include", "python")
# What a page may name although the tree lacks it: outputs of commands, and the rule that
# CONTRIBUTING.md adds as an example.
MADE = ("build/", "docs/_build/")
MADE_PATHS = {"src/semantics/top_a.h", "python/sluice/reference/top_a.py"}
# Commits that were folded into others before they were published; the pages that name them say so.
FOLDED = {"1d10847", "1d108471d27a", "5be1c70"}
# Pages to look up in, which are not read from top to bottom.
LONG = {"docs/README.md", "docs/plugins/vllm-engine.md", "docs/plugins/vllm.md", "docs/server.md",
        "docs/server-operations.md", "docs/structured-output.md", "docs/tools.md"}
MEASURED = {"traces-cpu.json", "head-peers-cpu.json", "cuda-h200-lists.json"}  # docs/reproduce.md says so


def prose(text):
    """The text with the lines of fenced blocks empty, so that line numbers stay."""
    lines, fence = [], ""
    for line in text.split("\n"):
        found = FENCE.match(line)
        if fence:
            lines.append("")
            if found and line.strip().startswith(fence) and line.strip().strip(fence[0]) == "":
                fence = ""
        elif found:
            fence = found[1]
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def cells(line):
    """The cells of a table's row as GitHub splits them: a bar inside code splits unless escaped."""
    inner = re.sub(r"(?<!\\)\|\s*$", "", re.sub(r"^\s*\|", "", line))
    return len(re.split(r"(?<!\\)\|", inner))


def bad_tables(text):
    lines = prose(text).split("\n")
    faults, index = [], 0
    while index + 1 < len(lines):
        rule = lines[index + 1].strip()
        if "|" not in lines[index] or "|" not in rule or not RULE.fullmatch(rule):
            index += 1
            continue
        width = cells(lines[index])
        row = index + 1
        while row < len(lines) and lines[row].strip() and "|" in lines[row]:
            if cells(lines[row]) != width:
                faults.append(f"{row + 1}: {cells(lines[row])} cells, the header has {width}")
            row += 1
        index = row
    return faults


def slugs(text):
    """The anchors of a page: GitHub's rule for headings, and <a id="...">."""
    found, seen = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)), {}
    for heading in re.findall(r"^#{1,6}[ \t]+(.*?)[ \t]*#*$", prose(text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def links(text):
    """(line, target) of every link and image outside code."""
    plain = CODE.sub(lambda code: "`" + re.sub(r"[^\n]", " ", code[2]) + "`", prose(text))
    for found in LINK.finditer(plain):
        yield line_of(plain, found.start()), found[1]


def bad_links(text, page, read):
    """`read` maps a path to its text, "" for what exists and is no page, None for what is missing."""
    faults = []
    for line, target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        there = text if not path else read((page.parent / path) if path[0] != "/" else ROOT / path[1:])
        if there is None:
            faults.append(f"{line}: no file {target}")
        elif anchor and anchor not in slugs(there):
            faults.append(f"{line}: no anchor #{anchor} in {path or page.name}")
    return faults


def paths(text):
    """(line, path) of code that looks like a path: folders and a name, nothing else."""
    plain = prose(text)
    for found in CODE.finditer(plain):
        code = re.sub(r":\d+(-\d+)?$", "", found[2].strip())
        if PATH.fullmatch(code) and "//" not in code:
            yield line_of(plain, found.start()), code


def variants(path):
    """a/{b,c}.h gives a/b.h and a/c.h."""
    parts = [part[1:-1].split(",") if part[:1] == "{" else [part]
             for part in re.split(r"(\{[^}]*\})", path)]
    return ["".join(choice) for choice in product(*parts)]


def bad_paths(text, folders, exists):
    """`folders`: first names that make a path one of the repository. `exists` looks one up."""
    return [f"{line}: no path {path}" for line, path in paths(text)
            if path.split("/")[0] in folders and not path.startswith(MADE) and path not in MADE_PATHS
            and not all(exists(one) for one in variants(path))]


def bad_commits(text, history):
    """Hexadecimal words of 7 digits and more with a letter and a digit, that no commit begins with."""
    faults = []
    for found in HEX.finditer(text):
        name = found[0]
        if (re.search(r"\d", name) and re.search(r"[a-f]", name) and name not in FOLDED
                and not any(commit.startswith(name) for commit in history)):
            faults.append(f"{line_of(text, found.start())}: no commit {name}")
    return faults


def words_of(text):
    """The words of a page without its tables, code blocks and comments."""
    plain = re.sub(r"<!--.*?-->", "", prose(text), flags=re.DOTALL)
    return [word for line in plain.split("\n") if not re.match(r"\||    ", line)
            for word in line.split()]


def odd_words(text):
    """Words that a reader of English stumbles over where code is the subject."""
    plain = CODE.sub(lambda code: " " * len(code[0]), re.sub(r"\]\([^)]*\)", "]", prose(text)))
    return [f"{line_of(plain, found.start())}: {found[0]}" for found in ODD.finditer(plain)]


def git(*args):
    result = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, encoding="utf-8")
    return result.stdout if result.returncode == 0 else None


def pages():
    listed = git("ls-files", "-co", "--exclude-standard", "*.md")
    if listed is None:
        return [path for path in sorted(ROOT.rglob("*.md"))
                if not re.match(r"(build|\.)", path.relative_to(ROOT).parts[0])]
    names = sorted(set(listed.split("\n")) - {""})
    return [ROOT / name for name in names if (ROOT / name).exists()]


def read(path):
    if not path.exists():
        return None
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else ""


class Repository(unittest.TestCase):
    def check(self, fault):
        said = [f"{page.relative_to(ROOT)}:{one}" for page in pages()
                for one in fault(page.read_text(encoding="utf-8"), page)]
        self.assertEqual(said, [], "\n" + "\n".join(said))

    def test_there_are_pages(self):
        self.assertGreater(len(pages()), 20)

    def test_rows_have_the_cells_of_their_header(self):
        self.check(lambda text, page: bad_tables(text))

    def test_links_lead_somewhere(self):
        self.check(lambda text, page: bad_links(text, page, read))

    def test_paths_exist(self):
        folders = {path.name for start in STARTS for path in (ROOT / start).iterdir()
                   if path.is_dir() and not path.name.startswith(".")}

        def fault(text, page):
            places = [ROOT / start for start in STARTS] + [page.parent]
            return bad_paths(text, folders,
                             lambda path: any(any(place.glob(path.rstrip("/"))) for place in places))
        self.check(fault)

    def test_commits_are_in_the_history(self):
        if git("rev-parse", "--is-shallow-repository") != "false\n":
            self.skipTest("no whole history here: commits are not looked up")
        history = git("rev-list", "HEAD").split()
        unknown = {file.name for file in (ROOT / "bench/results").glob("*.json")
                   if json.loads(file.read_text(encoding="utf-8"))["commit"] not in history}
        self.assertEqual(unknown, MEASURED)
        self.assertEqual([name for name in MEASURED if name not in read(ROOT / "docs/reproduce.md")], [])
        self.check(lambda text, page: bad_commits(text, history))


    def test_pages_of_results_are_short(self):
        for name in ("benchmarks", "benchmarks-gpu", "certified-head", "topk"):
            words = words_of((ROOT / f"docs/{name}.md").read_text(encoding="utf-8"))
            self.assertLessEqual(len(words), 1500, f"docs/{name}.md: move some to docs/notes/")

    def test_pages_are_short(self):
        """Of every word but those of comments: half of the pages have at most 900, and few more than 1,400."""
        counts = {str(page.relative_to(ROOT)): len(re.sub(r"(?s)<!--.*?-->", "", page.read_text(encoding="utf-8")).split())
                  for page in sorted((ROOT / "docs").rglob("*.md")) if not {"notes", "research"} & set(page.parts)}
        self.assertLessEqual(statistics.median(counts.values()), 900)
        long = {name: count for name, count in counts.items() if count > 1400 and name not in LONG}
        self.assertEqual(long, {}, "split the page, or move some to docs/notes/")
        self.assertEqual({name: count for name, count in counts.items() if name in LONG and count > 3000}, {})

    def test_words_of_the_pages(self):
        for page in sorted((ROOT / "docs").glob("*.md")):
            if page.name != "style.md":  # which shows what not to write
                self.assertEqual(odd_words(page.read_text(encoding="utf-8")), [], page)


class Planted(unittest.TestCase):
    def test_a_row_with_a_cell_too_few_or_too_many(self):
        table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
        self.assertEqual(bad_tables(table), [])
        self.assertEqual(bad_tables(table + "| 3 |\n"), ["4: 1 cells, the header has 2"])
        self.assertEqual(bad_tables(table + "| `x|y` | 2 |\n"), ["4: 3 cells, the header has 2"])
        self.assertEqual(bad_tables(table + "| `x\\|y` | 2 |\n"), [])
        self.assertEqual(bad_tables("```\n" + table + "| 3 |\n```\n"), [])

    def test_a_link_to_nothing(self):
        def reads(path):
            return {"docs/b.md": "# One *two*, `three`\n## Same\n## Same\n", "docs/c.png": ""}.get(str(path))
        page = Path("docs/a.md")
        good = "[x](b.md) [x](b.md#one-two-three) ![p](c.png) [x](b.md#same-1) [x](https://a.b/c#d) `[x](no.md)`"
        self.assertEqual(bad_links(good, page, reads), [])
        self.assertEqual(bad_links("a\n[x](no.md)", page, reads), ["2: no file no.md"])
        self.assertEqual(bad_links("[x](b.md#four)", page, reads), ["1: no anchor #four in b.md"])
        self.assertEqual(bad_links("# Here\n[x](#there)", page, reads), ["2: no anchor #there in a.md"])
        self.assertEqual(bad_links("[![p](c.svg)](b.md)", page, reads), [])  # the outer link is read

    def test_a_path_to_nothing(self):
        def exists(path):
            return path in ("src/a.cc", "src/a.h")
        self.assertEqual(bad_paths("`src/a.cc` `src/a.{cc,h}` `src/a.cc:12` `build/x/y` `its/hers`",
                                   {"src", "build"}, exists), [])
        self.assertEqual(bad_paths("\n`src/b.cc`", {"src"}, exists), ["2: no path src/b.cc"])
        self.assertEqual(bad_paths("`src/a.{cc,hpp}`", {"src"}, exists), ["1: no path src/a.{cc,hpp}"])

    def test_words(self):
        self.assertEqual(words_of("a b\n| c | d |\n```\ne\n```\n    f\n<!-- g -->h"), ["a", "b", "h"])
        self.assertEqual(odd_words("it tells `told` [it](#beside-it)\nBehind"), ["1: tells", "2: Behind"])

    def test_a_commit_that_never_was(self):
        history = ["0123abc" + 33 * "0"]
        self.assertEqual(bad_commits("`0123abc` 1234567 defaced #0fedcba", history), [])
        self.assertEqual(bad_commits("at commit 0fedcba", history), ["1: no commit 0fedcba"])


if __name__ == "__main__":
    unittest.main()
