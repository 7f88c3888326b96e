#!/usr/bin/env python3
"""Counts words that do not belong into comments, string literals and pages, per folder.

    scripts/lint_words.py            fails when a folder has more than scripts/lint_words.txt allows
    scripts/lint_words.py --list     prints every finding of the folders given, or of all folders
    scripts/lint_words.py --write    writes the counts of today as the allowed ones

docs/style.md says what to write instead. Code is no person (who, tells, asks, knows, wants), a moment
is no place (behind, in front of, beside), and a sentence names its subject. An identifier is no word:
`memory.asked` and `Ask(` pass, and so does everything within back quotes.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "scripts" / "lint_words.txt"
TREES = ("include", "src", "cli", "python", "bench", "tests", "docs", "README.md")
C_FILES = (".h", ".hpp", ".cuh", ".cc", ".cu", ".c", ".def", ".inc")
HASH_FILES = (".py", ".txt", ".cmake")
OWN_TEST = Path("tests/docs/lint_words_test.py")  # made of such words
OWN_PAGES = ("docs/notes/", "docs/style.md")  # the diary, and what shows such words

END = r"(?=\s*(?:[.,;:)]|\Z))"
# In front of "the same", which then is an adjective or an adverb.
ADJECTIVE = "".join(rf"(?<!\b{word}\s)" for word in (
    "is", "are", "be", "was", "were", "not", "stay", "stays", "remain", "look", "looks", "work", "works", "all",
    "exactly", "much"))
WORDS = (
    # People.
    r"who|whose|whom|whoever|whomever",
    r"tell|tells|telling|told",
    r"ask|asks|asking|asked",
    r"know|knows|knew",
    r"want|wants|wanting|wanted",
    r"nobody|somebody|anybody|everybody",
    # Places. A server may well run behind a proxy.
    r"behind(?!\s+(?:a|the|its)\s+(?:reverse\s+)?proxy)",
    r"in\s+front\s+of(?!\s+(?:the\s+server|it\s+as\s+a\s+proxy))",
    r"beside",
    r"(?:is|are|was|were)(?:\s+not)?\s+there" + END,
    # Nouns that are none.
    ADJECTIVE + r"the\s+same(?=\s*(?:[.,;)]|\Z)|\s+(?:of|for|on|in|with|by|from|at)\b)",
    r"so\s+many(?=\s*(?:[.,;:)]|\Z)|\s+(?:of|as|at|are|is|in|to|for|on|from|and)\b)",
    # Relative clauses without a head.
    r"of\s+(?:that|this|these|those|which)\s+the",
    r"what(?:ever)?\s+(?:is|was|are|were|be)\s+left",
)
FOUND = re.compile(r"(?<![\w.>:/-])(?:" + "|".join(WORDS) + r")(?![\w(/]|::|->)", re.IGNORECASE)

# A token that matters: a comment, a string, or a character literal, which may look like the start of one.
C_TOKEN = re.compile(
    r"""(?P<include>^[ \t]*\#[ \t]*include[^\n]*)
      | (?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw>R"(?P<end>[^()\s\\]{0,16})\(.*?\)(?P=end)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<other>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')""", re.VERBOSE | re.DOTALL | re.MULTILINE)
HASH_TOKEN = re.compile(
    r"""(?P<line>\#[^\n]*)
      | (?P<raw>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3})
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*')""", re.VERBOSE | re.DOTALL)
MARKER = re.compile(r"(?m)^[ \t]*(?:/{2,}[!<]?|/\*+|\*/|\*(?!/)|\#+)")
CODE = re.compile(r"`[^`\n]*`")


def blank(match):
    return " " * len(match.group())


def chunks(text, is_c):
    """(offset, prose) of every comment and string; neighbours of one kind are one piece of prose.

    The prose is as long as the source it stands for, so that offsets carry over.
    """
    begin = end = None
    kind = None
    for token in (C_TOKEN if is_c else HASH_TOKEN).finditer(text):
        now = token.lastgroup if token.lastgroup != "end" else "raw"
        if now in ("include", "other"):
            continue
        joins = kind == now and now in ("line", "string") and not text[end:token.start()].strip()
        if joins and "\n\n" not in text[end:token.start()]:
            end = token.end()
            continue
        if kind is not None:
            yield kind, begin, text[begin:end]
        kind, begin, end = now, token.start(), token.end()
    if kind is not None:
        yield kind, begin, text[begin:end]


def prose(kind, source):
    """`source` with everything that is no word of a sentence blanked."""
    if kind == "page":
        pass
    elif kind in ("line", "block"):
        source = MARKER.sub(blank, source)
        source = re.sub(r"\*/$", blank, source)
    else:
        source = source.replace("\\n", "  ").replace('"', " ")
    return CODE.sub(lambda code: "`" + "_" * (len(code.group()) - 2) + "`", source)


def page(text):
    """A page of Markdown with blocks of code, comments and the targets of links blanked."""
    text = re.sub(r"(?ms)^(```+|~~~+).*?^\1", lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    text = re.sub(r"(?m)^ {4,}(?![-*] |\d+\. ).*$", blank, text)
    return re.sub(r"(?s)<!--.*?-->|\]\([^)\s]*\)", lambda part: re.sub(r"[^\n]", " ", part[0]), text)


def findings(text, is_c, is_page=False):
    """(line, word) of every word of the list in the comments and strings of a file, or in a page."""
    for kind, offset, source in [("page", 0, page(text))] if is_page else chunks(text, is_c):
        for match in FOUND.finditer(prose(kind, source)):
            line = text.count("\n", 0, offset + match.start()) + 1
            yield line, " ".join(match.group().split())


def folder_of(path):
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "src" and len(parts) > 2 else parts[0]


def source_files(root):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *TREES],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    for name in sorted(filter(None, listed.split("\0"))):
        path = Path(name)
        is_c = path.suffix in C_FILES
        if path == OWN_TEST or name.startswith(OWN_PAGES) or path.suffix == ".txt" and path.name != "CMakeLists.txt":
            continue
        if (is_c or path.suffix in HASH_FILES or path.suffix == ".md" and path.parts[0] in ("docs", "README.md")) and (root / path).is_file():
            yield path, is_c


def scan(root):
    """{folder: ["file:line: word", ...]} of the tree, folders without a finding included."""
    found = {}
    for path, is_c in source_files(root):
        lines = found.setdefault(folder_of(path), [])
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        lines += [f"{path}:{line}: {word}" for line, word in findings(text, is_c, path.suffix == ".md")]
    return found


def read_baseline(text):
    rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {folder: int(count) for count, folder in rows}


def write_baseline(counts):
    rows = "".join(f"{count:5} {folder}\n" for folder, count in sorted(counts.items()) if count)
    return ("# How many words scripts/lint_words.py allows in the comments and strings of a folder; one that is\n"
            "# not listed has none. These figures only fall: scripts/lint_words.py --write.\n" + rows)


MOST_LISTED = 20  # of a folder


def compare(found, allowed):
    """(what has grown, in lines to print; the folders that have fewer than they may)."""
    grown, fewer = [], []
    for folder, lines in sorted(found.items()):
        limit = allowed.get(folder, 0)
        if len(lines) > limit:
            grown += lines[:MOST_LISTED]
            if len(lines) > MOST_LISTED:
                grown.append(f"{folder}: {len(lines) - MOST_LISTED} more; scripts/lint_words.py --list {folder}")
            grown.append(f"{folder}: {len(lines)} words of the list, at most {limit} are allowed")
        elif len(lines) < limit:
            fewer.append(folder)
    return grown, fewer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", help="folders to list, such as src/link")
    parser.add_argument("--list", action="store_true", help="print the findings and succeed")
    parser.add_argument("--write", action="store_true", help="write the counts as the allowed ones")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    found = scan(options.root)
    baseline = options.root / BASELINE.relative_to(ROOT)
    counts = Counter({folder: len(lines) for folder, lines in found.items()})
    if options.list:
        for folder, lines in sorted(found.items()):
            if not options.folders or folder in options.folders:
                print("\n".join([*lines, f"{folder}: {len(lines)}"]))
        return 0
    if options.write:
        baseline.write_text(write_baseline(counts))
    grown, fewer = compare(found, read_baseline(baseline.read_text() if baseline.exists() else ""))
    for line in grown:
        print(f"lint: {line}", file=sys.stderr)
    if grown:
        print("lint: docs/style.md says what to write instead", file=sys.stderr)
        return 1
    if fewer:
        print(f"lint: fewer words than allowed in {', '.join(fewer)}; scripts/lint_words.py --write notes that")
    print(f"lint: {counts.total()} words of the list in comments and strings, none more than allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
