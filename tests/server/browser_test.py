#!/usr/bin/env python3
"""The server's page works in a browser: text, candidates, chats, links, and nothing that its policy forbids.

Usage: browser_test.py PROGRAM [--write FOLDER], which writes the pictures of the docs into FOLDER.
"""

import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import browser

PROGRAM = sys.argv.pop(1)
PICTURES = Path(sys.argv[2]) if sys.argv[1:2] == ["--write"] else None
del sys.argv[1:]
READY = "document.getElementById('state').className === 'good'"
DONE = "document.getElementById('note').textContent.includes('seed')"


def fill(**values):
    return "".join(f"document.getElementById({id!r}).value = {value!r};"
                   f"document.getElementById({id!r}).dispatchEvent(new Event('input'));" for id, value in values.items())


def click(id):
    return f"document.getElementById({id!r}).click();"


def text(id):
    return f"document.getElementById({id!r}).textContent"


@unittest.skipUnless(browser.find(), "there is no Chromium")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--quiet"], stdout=subprocess.PIPE,
                                      encoding="utf-8")
        cls.url = cls.server.stdout.readline().split()[-1]
        cls.browser = browser.Browser(height=1250)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.terminate()
        cls.server.wait(timeout=60)
        cls.server.stdout.close()

    def setUp(self):
        self.browser.open("about:blank")  # a page of the same address would only follow the link
        self.browser.open(self.url)
        self.browser.wait(READY)

    def tearDown(self):
        self.assertEqual(self.browser.log, [])  # neither errors nor violations of the policy
        self.browser.log.clear()

    def picture(self, name, theme):
        if PICTURES is None:
            return
        self.browser.set_theme(theme)
        self.browser.screenshot(PICTURES / f"{name}.png")
        self.browser.set_theme("")

    def test_a_seed_gives_its_text_and_a_token_its_candidates(self):
        page = self.browser
        texts = []
        for _ in range(2):
            page.run(fill(max_tokens="30", seed="3", temperature="0.9", top_k="8", top_p="1", min_p="0") + click("go"))
            page.wait(DONE)
            texts.append(page.run(text("text")))
            page.run("document.getElementById('note').textContent = ''")
        self.assertGreater(len(texts[0]), 20)
        self.assertEqual(texts[0], texts[1])

        tokens = page.run("document.querySelectorAll('.token').length")
        self.assertGreater(tokens, 20)
        for number in (tokens - 1, tokens // 2, 0):
            page.run("document.getElementById('candidates').textContent = '';"
                     f"document.querySelectorAll('.token')[{number}].click()")
            page.wait("document.querySelectorAll('#candidates td').length > 1")
            rows = page.run("""[...document.querySelectorAll('#candidates tr:has(td)')]
                .map((row) => [row.className, ...[...row.cells].map((cell) => cell.textContent)])""")
            kept = [row for row in rows if row[0] != "lost"]
            self.assertEqual(len(kept), 8)  # top_k
            self.assertGreater(len(rows), 8)
            self.assertAlmostEqual(sum(float(row[3].removesuffix(" %")) for row in kept), 100, delta=0.05)  # 8 roundings
            drawn = [row[1] for row in rows if row[0] == "drawn"]
            shown = page.run(f"document.querySelectorAll('.token')[{number}].textContent")
            self.assertEqual(drawn, [shown.replace(" ", "\u2423").replace("\n", "\u21b5")])
            self.assertEqual({row[4] for row in rows if row[0] == "lost"}, {"dropped by top_k"})
        self.picture("serve-page", "light")

    def test_a_token_that_was_dropped_has_its_rule(self):
        page = self.browser
        page.run(fill(max_tokens="12", seed="4", temperature="1", top_k="5", top_p="0.6", min_p="0.05") + click("go"))
        page.wait(DONE)
        found = set()
        for number in range(page.run("document.querySelectorAll('.token').length")):
            page.run("document.getElementById('candidates').textContent = '';"
                     f"document.querySelectorAll('.token')[{number}].click()")
            page.wait("document.querySelectorAll('#candidates td').length > 1")
            rows = page.run("""[...document.querySelectorAll('#candidates tr:has(td)')]
                .map((row) => [row.className, ...[...row.cells].map((cell) => cell.textContent)])""")
            shares = [float(row[2].removesuffix(" %")) for row in rows]
            for rank, (row, share) in enumerate(zip(rows, shares)):
                is_near = abs(share - 0.05 * shares[0]) < 0.02  # within the rounding of what is shown
                if row[0] != "lost" or is_near or shares.count(share) > 1:
                    continue
                rule = "min_p" if share < 0.05 * shares[0] else "top_k" if rank >= 5 else "top_p"
                self.assertEqual(row[4], f"dropped by {rule}", rows)
                found.add(rule)
        self.assertEqual(found, {"min_p", "top_k", "top_p"})

    def test_a_chat_goes_on(self):
        page = self.browser
        page.run(click("chat") + fill(prompt="A story, please.", max_tokens="12", seed="1") + click("go"))
        page.wait(DONE)
        page.run("document.getElementById('note').textContent = '';" + fill(prompt="And then?") + click("go"))
        page.wait(DONE)
        turns = page.run("[...document.querySelectorAll('.turn')].map((turn) => turn.className)")
        self.assertEqual(turns, ["turn user", "turn assistant", "turn user"])
        self.picture("serve-page-chat", "dark")

    def test_an_error_of_the_server_is_shown(self):
        page = self.browser
        page.run(fill(max_tokens="5") + "document.getElementById('form').noValidate = true;"
                 + fill(top_p="7") + click("go"))
        page.wait("document.getElementById('note').textContent.includes('top_p')")
        self.assertEqual(len(page.log), 1)  # the browser notes the status 400
        self.assertIn("400", page.log.pop()["entry"]["text"])

    def test_a_link_brings_the_form_back(self):
        page = self.browser
        page.run(fill(prompt="A & <b>", top_p="0.5"))
        link = page.run("document.getElementById('link').href")
        page.open("about:blank")
        page.open(link)
        page.wait(READY)
        self.assertEqual(page.run("document.getElementById('prompt').value"), "A & <b>")
        self.assertEqual(page.run("document.getElementById('top_p').value"), "0.5")
        self.assertEqual(page.run(text("text")), "")


if __name__ == "__main__":
    unittest.main()
