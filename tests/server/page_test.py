#!/usr/bin/env python3
"""The server's page sends what its form says, and its curl line is that request.

Usage: page_test.py PAGE. Runs the page's script in node, with elements that hold values alone.
"""

import json
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

PAGE = Path(sys.argv.pop(1) if len(sys.argv) > 1 else "src/server/page.html").read_text(encoding="utf-8")
STAGE = """
const elements = {}, handlers = {}, sent = [];
const element = (id) => ({value: "", textContent: "", hidden: true, append(text) { this.textContent += text; },
                          addEventListener(kind, call) { handlers[id + " " + kind] = call; }});
globalThis.document = {getElementById: (id) => elements[id] ??= element(id)};
globalThis.location = {origin: "http://127.0.0.1:8080"};
globalThis.fetch = async (path, options) => {
  if (path === "/health") return {ok: true};
  if (path === "/v1/models") return {ok: true, status: 200, json: async () => ({data: [{id: "default"}]})};
  sent.push(options.body);
  const events = [{choices: [{text: " a king"}]}, {choices: [], seed: 7, usage: {completion_tokens: 2}}];
  const text = events.map((event) => "data: " + JSON.stringify(event) + "\\n\\n").join("") + "data: [DONE]\\n\\n";
  return {ok: true, body: new Blob([text]).stream()};
};
for (const [id, value] of Object.entries(VALUES)) document.getElementById(id).value = value;
"""
END = """
setTimeout(async () => {
  handlers["form submit"]({preventDefault() {}});
  setTimeout(() => console.log(JSON.stringify({
      sent, curl: elements.curl.textContent, text: elements.text.textContent, note: elements.note.textContent,
      live: Object.keys(handlers).filter((name) => name.endsWith(" input")).sort()})), 50);
}, 20);
"""


@unittest.skipUnless(shutil.which("node"), "there is no node")
class Page(unittest.TestCase):
    def run_page(self, **values):
        script = re.search(r"<script[^>]*>(.*)</script>", PAGE, re.DOTALL)[1].replace('"use strict";', "")
        code = STAGE.replace("VALUES", json.dumps(values)) + script + END
        result = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True,
                                encoding="utf-8", timeout=60)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def test_curl_is_what_the_button_sends(self):
        ran = self.run_page(prompt="It's so", tokens="20", temperature="0.7", seed="7")
        expected = {"model": "default", "prompt": "It's so", "max_tokens": 20, "temperature": 0.7, "seed": 7,
                    "stream": True, "stream_options": {"include_usage": True}}
        self.assertEqual([json.loads(body) for body in ran["sent"]], [expected])
        quoted = re.search(r"-d '(.*)'$", ran["curl"], re.DOTALL)[1]
        self.assertEqual(json.loads(quoted.replace("'\\''", "'")), expected)
        self.assertIn("http://127.0.0.1:8080/v1/completions", ran["curl"])

    def test_every_field_changes_the_curl_line(self):
        inputs = re.findall(r'<(?:input|textarea) id="(\w+)"', PAGE)
        live = [name.split()[0] for name in self.run_page(tokens="1")["live"]]
        self.assertEqual(live, sorted(set(inputs) - {"key"}))

    def test_the_seed_is_shown_and_may_be_left_out(self):
        ran = self.run_page(prompt="Once", tokens="2", temperature="0")
        self.assertNotIn("seed", json.loads(ran["sent"][0]))
        self.assertEqual(ran["text"], " a king")
        self.assertRegex(ran["note"], r"2 tokens in .*; seed 7$")


if __name__ == "__main__":
    unittest.main()
