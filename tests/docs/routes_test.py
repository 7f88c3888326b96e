#!/usr/bin/env python3
"""docs/http-api.md has every route of the server's OpenAPI document, and no other; the site's page is made from that
document. Usage: routes_test.py ROOT SLUICE.
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, SLUICE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
del sys.argv[1:3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "docs/site"))

import http_reference  # noqa: E402

ALIASES = {("GET", "/ping"): ("GET", "/health")}  # for load balancers, which the document leaves out


def of_page(text):
    """The routes that the table of the section "Routes" names."""
    table = re.search(r"(?ms)^## Routes$(.*?)^## ", text)[1]
    return {tuple(route) for route in re.findall(r"`(GET|POST|DELETE|PUT) (/[^` ]*)`", table)}


def differences(page, spec):
    documented = {(method, path) for method, path, _ in http_reference.routes(spec)}
    named = of_page(page)
    return ([f"docs/http-api.md lacks {' '.join(route)}" for route in sorted(documented - named)] +
            [f"the server has no {' '.join(route)}" for route in sorted(named - documented)
             if ALIASES.get(route) not in documented])


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.spec = http_reference.document(SLUICE)
        cls.page = (ROOT / "docs/http-api.md").read_text(encoding="utf-8")

    def test_the_page_has_the_routes_of_the_document(self):
        self.assertEqual(differences(self.page, self.spec), [])

    def test_a_route_too_few_or_too_many_is_named(self):
        self.assertEqual(differences(self.page.replace("`POST /tokenize`", "`GET /tokens`"), self.spec),
                         ["docs/http-api.md lacks POST /tokenize", "the server has no GET /tokens"])

    def test_each_post_leads_to_its_section(self):
        """docs.markdown checks that the section exists."""
        for method, path, _ in http_reference.routes(self.spec):
            if method == "POST" and path.startswith("/v1/"):
                (row,) = [line for line in self.page.split("\n") if line.startswith("| ") and f"`POST {path}`" in line]
                self.assertRegex(row, r"\]\((?:http-[\w-]+\.md)?#", path)

    def test_the_page_of_the_site(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            http_reference.write(SLUICE, source)
            text = (source / "reference/http.md").read_text(encoding="utf-8")
            http_reference.write(Path(folder) / "none", source)
            self.assertIn("the list is missing", (source / "reference/http.md").read_text(encoding="utf-8"))
        for method, path, operation in http_reference.routes(self.spec):
            self.assertIn(f"## `{method} {path}`\n\n{operation['summary']}.", text)
        self.assertIn("| `top_p` | null or number | (0, 1] | keep the smallest set", text)
        self.assertIn("| `prompt` | string or array of integer or array of string", text)
        self.assertIn("Required. |", text)


if __name__ == "__main__":
    unittest.main()
