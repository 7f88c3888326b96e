#!/usr/bin/env python3
"""The map of the pages has every page, the site links to what a page links to, and the messages of
docs/troubleshooting.md are those of the code. Usage: site_test.py ROOT.
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "docs/site"))

import declarations  # noqa: E402
import headers  # noqa: E402
import notebooks  # noqa: E402
import python_reference  # noqa: E402
import stage  # noqa: E402

UNLISTED = {"docs/README.md", "docs/site/index.md"}  # the map, and the first page
CODE = ("src", "cli", "python", "include", "scripts", "CMakeLists.txt")


def unlisted(names, text):
    """Pages that no table of the map has in its first column."""
    there = {stage.os.path.normpath("docs/" + link) for _, links in stage.sections(text) for link in links}
    return sorted(set(names) - there - UNLISTED)


def pieces(text):
    """The parts of the messages in the first column of tables, between their dots."""
    for row in re.findall(r"(?m)^\| (.*?) \|", text):
        message = re.match(r"`([^`]+)`(?:, then `([^`]+)`)?$", row)
        for part in message.groups() if message else ():
            yield from (piece.strip() for piece in (part or "").split("...") if len(piece.strip()) > 7)


class Pages(unittest.TestCase):
    def test_the_map_has_every_page(self):
        names = [name for name in stage.git(ROOT, "ls-files", "-co", "--exclude-standard", "*.md", "*.ipynb")
                 if not name.startswith(".") and (ROOT / name).exists()]
        self.assertGreater(len(names), 40)
        self.assertEqual(unlisted(names, (ROOT / "docs/README.md").read_text(encoding="utf-8")), [])

    def test_a_page_that_the_map_lacks_is_named(self):
        text = "## One\n| page | |\n|---|---|\n| [a](a.md) | [b](b.md) |\n"
        self.assertEqual(unlisted(["docs/a.md", "docs/b.md"], text), ["docs/b.md"])

    def test_the_sidebar_has_every_kind_of_page(self):
        with tempfile.TemporaryDirectory() as folder:
            trees = stage.Site(ROOT, Path(folder) / "source").navigation()
        wanted = (":caption: Start\n", ":caption: Guides\n", ":caption: Concepts\n", ":caption: Reference\n",
                  ":caption: Benchmarks\n", "/research/index\n", "/notes/index\n", ":caption: Contributing\n",
                  "/glossary\n", "FAQ </faq>\n", "/troubleshooting\n", "/SECURITY\n")
        self.assertEqual([name for name in wanted if name not in trees], [])
        self.assertEqual(sorted(wanted, key=trees.index), list(wanted))

    def test_messages_of_troubleshooting_are_those_of_the_code(self):
        files = stage.git(ROOT, "ls-files", *CODE)
        # A message is often several literals, one after the other.
        code = re.sub(r'"\s*\n\s*f?"', "", "\n".join((ROOT / name).read_text(encoding="utf-8", errors="replace")
                                                   for name in files))
        code = code.replace('\\"', '"')
        text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
        found = list(pieces(text))
        self.assertGreater(len(found), 15)
        by_parts = {  # what a message is made of, where that is no one literal
            "cannot listen at": "cannot listen at ",
            "(Address already in use): end what listens there, or choose another --port":
                ": end what listens there, or choose another --port",
            "--temperature =": " is not allowed: ", "is not allowed: [0, 2]": " is not allowed: ",
            '--backend = "cuda" is not allowed': " is not allowed: ",
            "logits.dtype = float64 is not allowed": " is not allowed: ",
            "pip install sluice": "", "'; did you mean '": "did you mean", "unknown flag '": "unknown flag",
            "this build of sluice has no text, so there is no sluice": ", so there is no sluice.",
        }
        self.assertEqual([piece for piece in found if by_parts.get(piece, piece) not in code], [])


class Links(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = stage.Site(ROOT, Path(folder.name) / "source")

    def staged(self, text, name="docs/python.md"):
        self.site.stage(name, text)
        return (self.site.source / stage.place(name)).read_text(encoding="utf-8")

    def test_pages_stay_pages(self):
        self.assertEqual(self.staged("[a](plugins/vllm.md#measured) [b](../README.md) [c](https://a.b/c.md)"),
                         "[a](plugins/vllm.md#measured) [b](start.md) [c](https://a.b/c.md)")
        self.assertEqual(self.staged("[a](docs/python.md)", "README.md"), "[a](python.md)")

    def test_files_and_folders_get_a_page(self):
        self.assertEqual(self.staged("[a](../include/sluice/cut.hpp) [b](../src/semantics/)"),
                         "[a](files/include/sluice/cut.hpp.rst) [b](files/src/semantics.rst)")
        self.assertIn("literalinclude", (self.site.source / "files/include/sluice/cut.hpp.rst").read_text())
        self.assertIn("semantics/rules.h", (self.site.source / "files/src/semantics.rst").read_text())

    def test_headers_lead_to_the_reference(self):
        self.assertEqual(self.staged("[a](../include/sluice/)"), "[a](reference/cpp.md)")

    def test_results_are_files(self):
        self.assertEqual(self.staged("[`a`](../bench/results/select-cpu.json)"),
                         '<a href="files/bench/results/select-cpu.json">`a`</a>')

    def test_an_address_of_the_repository_is_used(self):
        self.site.repository = "https://a.b/c"
        self.assertEqual(self.staged("[a](../include/sluice/cut.hpp)"), "[a](https://a.b/c/include/sluice/cut.hpp)")

    def test_anchors_are_those_of_the_site(self):
        self.assertEqual(self.staged('<a id="measured"></a>\nText\n'), "(measured)=\nText\n")

    def test_the_reader_sees_what_is_not_run(self):
        self.assertEqual(self.staged("a\n\n<!-- not run: no GPU -->\n    make x\n"),
                         "a\n\n*Not run by the tests: no GPU.*\n\n    make x\n")

    def test_code_stays_as_it_is(self):
        text = "`[a](../README.md)`\n```\n[a](../README.md)\n```\n"
        self.assertEqual(self.staged(text), text)


class Notebooks(unittest.TestCase):
    def test_cells_and_outputs_become_markdown(self):
        text = '''{"cells": [{"cell_type": "markdown", "source": ["# One\\n", "[a](../python.md)"]},
            {"cell_type": "code", "source": ["print(2)"], "outputs": [{"text": ["2\\n"]}]},
            {"cell_type": "code", "source": ["x = 3"], "outputs": []}]}'''
        self.assertEqual(notebooks.as_markdown("docs/notebooks/one.ipynb", text),
                         "# One\n[a](../python.md)\n\n```python\nprint(2)\n```\n\n```text\n2\n```\n\n"
                         "```python\nx = 3\n```\n\n"
                         '<a href="one.ipynb">This page as a notebook of Jupyter</a>\n')

    def test_a_link_to_a_notebook_is_one_to_its_page(self):
        with tempfile.TemporaryDirectory() as folder:
            site = stage.Site(ROOT, Path(folder) / "source")
            self.assertEqual(site.link("docs/README.md", "contents.md", "notebooks/audit.ipynb"), "notebooks/audit.md")


class PythonReference(unittest.TestCase):
    def test_what_the_package_does_not_export_is_no_name_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            package, source = Path(folder) / "package", Path(folder) / "source"
            (package / "sluice").mkdir(parents=True)
            (package / "sluice/_sluice.pyi").write_text(
                'def sample(): """Draws."""\ndef build_report() -> str: """For python -m sluice."""\n'
                'class ClusterHead: """Of research."""\nclass Cut: """A cut."""\n')
            python_reference.write(package, source)
            pages = {path.stem: path.read_text() for path in (source / "reference/python").glob("*.rst")}
        self.assertIn(":: sluice.sample\n", pages["functions"])
        self.assertNotIn("build_report", pages["functions"])
        self.assertIn(":: sluice.research.ClusterHead\n", pages["research"])
        self.assertNotIn("ClusterHead", pages["results"])


class Headers(unittest.TestCase):
    def test_comments_above_and_after_declarations_are_marked(self):
        text = "// Opens.\n#pragma once\n\n// Apart.\n\n// Of f, <b>.\nvoid f();\nint x;  // of x\n        // more\n"
        self.assertEqual(headers.marked_cpp(text),
                         "/// @file\n/// Opens.\n\n#pragma once\n\n// Apart.\n\n/// Of f, \\<b\\>.\nvoid f();\n"
                         "int x;  ///< of x\n        ///< more\n")

    def test_comments_of_c(self):
        text = "/* Opens. */\n#pragma once\n/* Of s. */\ntypedef struct s {\n  int x; /* of x */\n} s;\n"
        self.assertEqual(headers.marked_c(text),
                         "/** @file\n * Opens. */\n#pragma once\n/** Of s. */\nstruct s {\n  int x; /**< of x */\n};\n")

    def test_a_default_argument_is_one_that_sphinx_reads(self):
        node = ElementTree.fromstring("<memberdef kind='function'><type>int</type><name>F</name>"
                                      "<argsstring>(A a={.b=false})</argsstring></memberdef>")
        self.assertEqual(declarations.Declarations.member(None, node, "cpp")[0], ".. cpp:function:: int F(A a={})")

    def test_what_restructured_text_marks_is_escaped(self):
        self.assertEqual(declarations.as_rst("a * b_ `c` d_e"), "a \\* b\\_ ``c`` d_e")


if __name__ == "__main__":
    unittest.main()
