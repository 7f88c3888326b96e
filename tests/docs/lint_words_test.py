#!/usr/bin/env python3
"""scripts/lint_words.py: what it finds, what it lets pass, and when a folder fails."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import lint_words  # noqa: E402


def words(text, is_c=True):
    return [f"{line}: {word}" for line, word in lint_words.findings(text, is_c)]


class Found(unittest.TestCase):
    def test_people(self):
        self.assertEqual(words("int a;  // who asks\n/* It tells\n * nobody. */ int b;"),
                         ["1: who", "1: asks", "2: tells", "3: nobody"])
        self.assertEqual(words("// Known bounds, an unknown id, a task, tall, unwanted, besides."), [])

    def test_places(self):
        self.assertEqual(words("// Read behind the stop,\n// in front\n// of it, beside it; when it is there."),
                         ["1: behind", "2: in front of", "3: beside", "3: is there"])
        self.assertEqual(words("// Runs behind a reverse proxy. There is one. Is there a stop? There are two."), [])

    def test_nouns(self):
        self.assertEqual(words("// The same for rows. Takes the same. So many of these, or so many."),
                         ["1: The same", "1: the same", "1: So many", "1: so many"])
        self.assertEqual(words("// The same token; both are the same. So many rows that it waits."), [])

    def test_relative_clauses(self):
        self.assertEqual(words("// Of that the mean, and what is left."), ["1: Of that the", "1: what is left"])
        self.assertEqual(words("// The rest of the row. A list of those that match."), [])


class Places(unittest.TestCase):
    def test_strings_are_read(self):
        self.assertEqual(words('Fail("nobody " "asks");\nauto s = R"x(who "is"\nbehind)x";'),
                         ["1: nobody", "1: asks", "2: who", "3: behind"])

    def test_code_is_not(self):
        self.assertEqual(words("bool who = ask(behind) && told;\n#include \"behind.h\"\n"), [])
        self.assertEqual(words("char c = '\"'; int who; char d = '\"';  // 1'000 who"), ["1: who"])
        self.assertEqual(words("// `who`, memory.asked, Ask(row), Wants::kAll and kWho are names."), [])

    def test_a_slash_in_a_string_begins_no_comment(self):
        self.assertEqual(words('Get("http://x"); int who;'), [])

    def test_python(self):
        self.assertEqual(words('"""It tells."""\nwho = "a # b"  # asks\nx = \'\'\'a\nbehind\'\'\'\n', is_c=False),
                         ["1: tells", "2: asks", "4: behind"])


class Pages(unittest.TestCase):
    def seen(self, text):
        return [f"{line}: {word}" for line, word in lint_words.findings(text, False, True)]

    def test_prose_is_read(self):
        self.assertEqual(self.seen("# It\ntells\n- Read behind it.\n"), ["2: tells", "3: behind"])

    def test_code_comments_and_links_are_not(self):
        self.assertEqual(self.seen("```\nwho\n```\n\n    who\n\n`who` <!-- who --> [a](#who)\n"), [])


class Counts(unittest.TestCase):
    def test_a_folder_that_grows_fails_and_says_where(self):
        found = {"include": [], "src/link": ["src/link/a.h:3: who", "src/link/a.h:9: told"]}
        self.assertEqual(lint_words.compare(found, {"src/link": 2}), ([], []))
        self.assertEqual(lint_words.compare(found, {"src/link": 3}), ([], ["src/link"]))
        grown, _ = lint_words.compare(found, {"src/link": 1})
        self.assertEqual(grown, [*found["src/link"], "src/link: 2 words of the list, at most 1 are allowed"])
        self.assertEqual(lint_words.compare(found, {})[0][-1],
                         "src/link: 2 words of the list, at most 0 are allowed")

    def test_what_is_written_is_read(self):
        counts = {"include": 0, "src/link": 12, "tests": 3}
        self.assertEqual(lint_words.read_baseline(lint_words.write_baseline(counts)), {"src/link": 12, "tests": 3})

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / "src" / "draw"
            folder.mkdir(parents=True)
            (Path(root) / "scripts").mkdir()
            subprocess.run(["git", "init", "-q", root], check=True)
            command = [sys.executable, ROOT / "scripts/lint_words.py", "--root", root]

            def lint(text, *arguments):
                (folder / "a.h").write_text(text)
                return subprocess.run([*command, *arguments], capture_output=True, text=True)
            self.assertEqual(lint("// who\n", "--write").returncode, 0)
            self.assertEqual(lint("// who\n").returncode, 0)
            grown = lint("// who\n// asks\n")
            self.assertEqual(grown.returncode, 1)
            self.assertIn("src/draw/a.h:2: asks", grown.stderr)
            fewer = lint("// nothing\n")
            self.assertEqual(fewer.returncode, 0)
            self.assertIn("src/draw", fewer.stdout)


if __name__ == "__main__":
    unittest.main()
