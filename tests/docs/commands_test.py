#!/usr/bin/env python3
"""Every command on a page runs here, is named with the test that runs it, or is marked as not run.

    commands_test.py ROOT                           checks the marks
    commands_test.py ROOT SLUICE PYTHON PACKAGES    runs the commands as well

A block of commands, indented or fenced, is a snippet of a tested file (tests/docs/snippets.py), or has one of
these comments in the line above it, with REASON and NAME of its own:

    <!-- run -->               the block runs in a folder that looks like the repository
    <!-- run: --check -->      so, with --check added to every `sluice serve`
    <!-- tested: NAME -->      NAME is a test of tests/all_tests.txt
    <!-- not run: REASON -->   the site prints the reason below the block
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
arguments = [Path(word).absolute() for word in sys.argv[1:5]]
ROOT = arguments[0]
SLUICE, PYTHON, PACKAGES = arguments[1:4] if len(arguments) == 4 else (None, None, None)
del sys.argv[1:5]

PROGRAMS = ("sluice|python3?|pip|cmake|ctest|make|curl|vllm|hf|tar|podman|docker|cp|c\\+\\+|systemctl|mkdir|"
            "scripts/\\S+|build/release/sluice|bench/\\S+\\.py|examples/\\S+\\.py|tests/\\S+\\.py")
COMMAND = re.compile(rf"^\s*(?:\$ )?(?:[A-Z_]+=\S* )*(?:{PROGRAMS}) (?![-=]?[>*=:])", re.MULTILINE)
MARK = re.compile(r"<!-- (run|run: --check|tested: (\S+)|not run: \S.*) -->")
SNIPPET = re.compile(r"<!-- \S+ \[\w+\] -->")
LANGUAGES = ("", "sh", "bash", "console")


def blocks(text):
    """(line, what stands above, the block) of every fenced and every indented block."""
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        fence = re.match(r"(```+)(\w*)$", lines[index])
        above = lines[index - 1] if index else ""
        if fence:
            end = next(at for at in range(index + 1, len(lines)) if lines[at].strip() == fence[1])
            yield index + 1, above, "\n".join(lines[index + 1:end]), fence[2]
            index = end + 1
        elif lines[index].startswith("    ") and (not above.strip() or MARK.fullmatch(above)):
            end = index
            while end < len(lines) and (lines[end].startswith("    ") or
                                        not lines[end].strip() and lines[end + 1:end + 2] and
                                        lines[end + 1].startswith("    ")):
                end += 1
            yield index + 1, above, "\n".join(line[4:] for line in lines[index:end]), ""
            index = end
        else:
            index += 1


def is_of_commands(block, language):
    return language in LANGUAGES and bool(COMMAND.search(block))


def faults(text, tests):
    """Blocks of commands without a mark, and marks of tests that do not exist."""
    said = []
    for line, above, block, language in blocks(text):
        mark = MARK.fullmatch(above)
        if mark and mark[2] and mark[2] not in tests:
            said.append(f"{line}: no test is named {mark[2]}")
        elif not mark and not SNIPPET.fullmatch(above) and is_of_commands(block, language):
            said.append(f"{line}: no mark says whether this runs: {block.splitlines()[0]}")
    return said


def to_run(text):
    """(line, the script) of the blocks that run."""
    for line, above, block, _ in blocks(text):
        mark = MARK.fullmatch(above)
        if mark and mark[1] == "run":
            yield line, block
        elif mark and mark[1] == "run: --check":
            yield line, re.sub(r"(?m)^(sluice serve .*)$", r"\1 --check", block)


def pages():
    names = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in names
            if not {"notes", "research"} & set(path.parts)}


class Marks(unittest.TestCase):
    def test_every_block_of_commands_has_one(self):
        tests = set((ROOT / "tests/all_tests.txt").read_text(encoding="utf-8").split("\n"))
        said = [f"{name}:{one}" for name, text in pages().items() for one in faults(text, tests)]
        self.assertEqual(said, [], "\n" + "\n".join(said))

    def test_starts_are_short(self):
        for name, text in pages().items():
            if name.startswith("docs/start/"):
                prose = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", "", text)
                self.assertLessEqual(len(prose.split()), 300, name)

    def test_starts_are_those_of_the_readers(self):
        self.assertEqual(sorted(Path(name).stem for name in pages() if name.startswith("docs/start/")),
                         ["cpp", "llama-cpp", "python", "server", "sglang", "transformers", "vllm"])


@unittest.skipIf(SLUICE is None, "no build was given")
class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for path in ROOT.iterdir():
            if path.name not in ("build", ".git"):
                (self.folder / path.name).symlink_to(path)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/python").write_text(f'#!/bin/sh\nexec {PYTHON} -B "$@"\n')
        (self.folder / "bin/python").chmod(0o755)
        (self.folder / "bin/sluice").symlink_to(SLUICE)
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/sluice").symlink_to(SLUICE)

    def run_block(self, script):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        environment |= {"PATH": f"{self.folder}/bin:{environment['PATH']}", "HOME": str(self.folder / "home"),
                        "PYTHONPATH": str(PACKAGES)}
        (self.folder / "home").mkdir(exist_ok=True)
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=environment,
                              capture_output=True, encoding="utf-8", timeout=600, stdin=subprocess.DEVNULL)

    def test_what_is_marked_runs(self):
        scripts = {script: f"{name}:{line}" for name, text in pages().items() for line, script in to_run(text)}
        self.assertGreater(len(scripts), 5)
        for script, place in scripts.items():
            with self.subTest(place):
                result = self.run_block(script)
                self.assertEqual(result.returncode, 0, f"{script}\n{result.stdout}{result.stderr}")

    def test_a_command_that_fails_fails(self):
        self.assertNotEqual(self.run_block("sluice generat Once\ntrue").returncode, 0)


class Planted(unittest.TestCase):
    def test_commands_without_a_mark(self):
        self.assertEqual(faults("a\n\n    sluice serve\n", set()), ["3: no mark says whether this runs: sluice serve"])
        self.assertEqual(faults("```\n$ A=1 python x.py\n```\n", set()),
                         ["1: no mark says whether this runs: $ A=1 python x.py"])
        self.assertEqual(faults("a\n\n    logits -> sluice -> tokens\n```cpp\nmake x\n```\n", set()), [])

    def test_commands_with_one(self):
        for mark in ("<!-- run -->", "<!-- not run: no GPU -->", "<!-- tested: a.b -->", "<!-- a/b.txt [c] -->"):
            self.assertEqual(faults(f"{mark}\n```\nmake x\n```\n", {"a.b"}), [], mark)
        self.assertEqual(faults("<!-- tested: a.c -->\n    make x\n", {"a.b"}), ["2: no test is named a.c"])
        self.assertEqual(len(faults("<!-- not run: -->\n\n    make x\n", set())), 1)

    def test_blocks_that_run(self):
        text = "<!-- run -->\n    a\n\n    b\n\n<!-- run: --check -->\n    c\n    sluice serve --port 0\n"
        self.assertEqual(list(to_run(text)), [(2, "a\n\nb"), (7, "c\nsluice serve --port 0 --check")])


if __name__ == "__main__":
    unittest.main()
