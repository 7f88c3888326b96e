#!/usr/bin/env python3
"""No figure with a unit is typed by hand in README.md or docs/. Usage: typed_figures_test.py ROOT.

A figure is a number of us, ms, s, times, tokens/s, GB/s, mJ or %, in a sentence or in a column of a table
with the unit in its header. It comes from bench/results through the marks that scripts/bench_tables.py fills,
or tests/docs/typed_figures.txt lists it with the reason. docs/notes, the diary of single measurements, code
and fenced blocks are not read.
"""

import re
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "scripts")]
sys.dont_write_bytecode = True

from bench_tables import INLINE, MARKED, pages  # noqa: E402
from markdown_test import CODE, ROOT, RULE, line_of, prose  # noqa: E402

LIST = HERE / "typed_figures.txt"
DIARY = "docs/notes/"
UNITS = (r"%|per cent|[numµ]?s|seconds?|milliseconds?|microseconds?|minutes?|[kKMGT]B/s|[KMG]iB/s|mJ|J|times|"
         r"(?:tokens?|requests?)(?:/s| a second| per second)")
NUMBER = r"(?<![\w.,#/-])\d+(?:,\d{3})*(?:\.\d+)?(?!\d)"
FIGURE = re.compile(rf"{NUMBER}\*{{0,2}}(?:\s?(?:{UNITS})(?![\w/*(])|\s?x(?![\w*]|\s?\d))"  # 5 us, 2 times, 2x
                    rf"|(?<!\d )\bx {NUMBER}")  # x 1.82, and no shape as 8 x 64
IN_HEAD = re.compile(rf"(?:^|[\s,(])(?:{UNITS})(?=$|[\s,):])")
HAS_DIGIT = re.compile(r"\d")


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def plain(text):
    """The text as long as it was, without code and without what bench_tables.py fills."""
    text = INLINE.sub(blank, MARKED.sub(blank, text))
    text = re.sub(r"\]\([^)\s]*\)|<!--.*?-->", blank, text, flags=re.DOTALL)
    lines = [seen or " " * len(line) for seen, line in zip(prose(text).split("\n"), text.split("\n"), strict=True)]
    return CODE.sub(blank, "\n".join(lines))


def in_columns(text):
    """(begin, end) of the cells with a digit, below a header with a unit."""
    heads, before, start = None, [], 0
    for line in text.split("\n"):
        cells = list(re.finditer(r"(?<!\\)\|((?:[^|\\]|\\.)*)(?=\|)", line))
        if heads is None and RULE.fullmatch(line.strip()) and "|" in line:
            heads = [bool(IN_HEAD.search(cell[1].replace(" it times", ""))) for cell in before]
        elif not cells:
            heads = None
        else:
            for cell, has_unit in zip(cells, heads or (), strict=False):
                if has_unit and HAS_DIGIT.search(cell[1]):
                    yield start + cell.start(1), start + cell.end(1)
        before, start = cells, start + len(line) + 1


def figures(text):
    """(begin, end) of every typed figure, each once."""
    text = plain(text)
    found = [match.span() for match in FIGURE.finditer(text)]
    cells = [(begin, end) for begin, end in in_columns(text)
             if not any(begin <= figure[0] < end for figure in found)]
    return sorted(found + cells)


def allowed(text):
    """(page, words, reason) of the list: a reason is a line '# ...', an entry 'page: words around the figure'."""
    reason = ""
    for line in text.split("\n"):
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            page, words = line.split(": ", 1)
            yield page, words.strip(), reason


def places(words, text):
    """(begin, end) wherever the words stand, lines broken or not."""
    pattern = r"\s+".join(re.escape(word) for word in words.split())
    return [match.span() for match in re.finditer(pattern, text)]


def faults(texts, entries):
    """`texts`: {page: text}. Figures that neither a mark nor the list has, and entries that no page has."""
    found = []
    entries = list(entries)
    for name, text in texts.items():
        listed = []
        for page, words, _ in entries:
            if page != name:
                continue
            spans = places(words, text)
            if not any(begin <= figure[0] and figure[1] <= end for begin, end in spans for figure in figures(text)):
                found.append(f"{name}: the list has '{words}', the page has no such figure")
            listed += spans
        found += [f"{name}:{line_of(text, begin)}: '{' '.join(text[begin:end].split())}' is typed: "
                  f"take it from bench/results, or list it in {LIST.name}"
                  for begin, end in figures(text)
                  if not any(first <= begin and end <= last for first, last in listed)]
    found += [f"the list has a page {page}, which does not exist" for page, _, _ in entries if page not in texts]
    return found


def read_pages():
    names = {str(page.relative_to(ROOT)): page for page in pages(ROOT)}
    return {name: page.read_text(encoding="utf-8") for name, page in names.items() if not name.startswith(DIARY)}


class Repository(unittest.TestCase):
    def test_no_figure_is_typed(self):
        said = faults(read_pages(), allowed(LIST.read_text(encoding="utf-8")))
        self.assertEqual(said, [], "\n" + "\n".join(said))

    def test_each_entry_has_a_reason(self):
        self.assertEqual([entry for entry in allowed(LIST.read_text(encoding="utf-8")) if not entry[2]], [])

    def test_a_figure_planted_into_a_page_is_found(self):
        entries = list(allowed(LIST.read_text(encoding="utf-8")))
        for name, text in read_pages().items():
            planted = faults({name: text + "\nIt takes 4711 us.\n"}, [one for one in entries if one[0] == name])
            self.assertEqual([one.split("'")[1] for one in planted], ["4711 us"], name)


class Found(unittest.TestCase):
    def seen(self, text):
        return [text[begin:end].strip() for begin, end in figures(text)]

    def test_units(self):
        self.assertEqual(self.seen("It takes 1.5 us, 12,000 ms or\n3\ns; 7 to 9 % and **4.2** times, 2x, (x 1.82), "
                                   "800 GB/s, 5 mJ, 1,140 tokens/s, 9 tokens a second, 15 seconds."),
                         ["1.5 us", "12,000 ms", "3\ns", "9 %", "4.2** times", "2x", "x 1.82", "800 GB/s", "5 mJ",
                          "1,140 tokens/s", "9 tokens a second", "15 seconds"])

    def test_what_is_no_figure(self):
        self.assertEqual(self.seen("128256 x 1024, `5 ms`, sm_90, 16 rows, page-2 x, 8 MiB\n```\n5 ms\n```\n"
                                   "[a](b-5%20s.md) <!-- 5 us -->"), [])

    def test_what_a_file_has(self):
        self.assertEqual(self.seen("<!-- table: t -->\n| us |\n|---|\n| 5 us |\n<!-- end -->\n"
                                   "a <!-- figure: f -->5<!-- / --> us, <!-- figure: f -->6<!-- / --> to 7 us"),
                         ["7 us"])

    def test_cells_below_a_unit(self):
        self.assertEqual(self.seen("| rows | us | time, ms |\n|---|---|---|\n| 8 | 1.5 | - |\n| 9 | `x` | 3 ms |\n\n"
                                   "| 8 | 5 |\n"), ["1.5", "3 ms"])


class Listed(unittest.TestCase):
    def test_words_of_the_list_across_lines(self):
        text = "It waits\n30 s at most.\nOr 30 s."
        self.assertEqual(faults({"a.md": text}, [("a.md", "waits 30 s", "a limit")]),
                         ["a.md:3: '30 s' is typed: take it from bench/results, or list it in typed_figures.txt"])

    def test_an_entry_that_is_not_used(self):
        self.assertEqual(faults({"a.md": "`30 s`"}, [("a.md", "30 s", "a limit"), ("b.md", "1 s", "a limit")]),
                         ["a.md: the list has '30 s', the page has no such figure",
                          "the list has a page b.md, which does not exist"])

    def test_reasons(self):
        self.assertEqual(list(allowed("# limits\n\na.md: 30 s\n# others\nb.md: x: 1 s\n")),
                         [("a.md", "30 s", "limits"), ("b.md", "x: 1 s", "others")])


if __name__ == "__main__":
    unittest.main()
