#!/usr/bin/env python3
"""The server's page sends what its form says, and shows that request for a terminal and in Python.

Usage: page_test.py FOLDER. Runs the page's script in node, with elements that hold values alone.
"""

import json
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

FOLDER = Path(sys.argv.pop(1) if len(sys.argv) > 1 else "src/server/page")
PAGE = (FOLDER / "page.html").read_text(encoding="utf-8")
SCRIPT = (FOLDER / "page.js").read_text(encoding="utf-8").replace('"use strict";', "")
PARAMETERS = (FOLDER.parents[2] / "docs/parameters.md").read_text(encoding="utf-8")
STAGE = """
const elements = {}, handlers = {}, sent = [];
const fake = (id) => ({
    value: "", textContent: "", className: "", style: {}, children: [],
    append(...added) { this.children.push(...added); this.textContent += added.map((one) => one.textContent ?? one).join(""); },
    setAttribute() {},
    addEventListener(kind, call) { handlers[id + " " + kind] = call; }});
globalThis.document = {getElementById: (id) => elements[id] ??= fake(id), createElement: fake,
                       querySelectorAll: () => []};
globalThis.location = {origin: "http://127.0.0.1:8080", hash: HASH};
const top = (logprobs) => ({logprobs: {tokens: [" a", " king"], token_logprobs: [-1, -0.5], top_logprobs: logprobs}});
globalThis.fetch = async (path, options) => {
  if (path === "/health") return {ok: true};
  if (path === "/v1/models") return {ok: true, status: 200, json: async () => ({data: [{id: "default"}]})};
  const body = JSON.parse(options.body);
  sent.push({path, body});
  if (!body.stream) {
    if (Array.isArray(body.prompt)) {  // a step of the rules: what is off is left out
      const kept = body.top_k === 0 ? {" queen": -1} : {};
      return {ok: true, json: async () => ({choices: [{logprobs: {tokens: [" king"], token_logprobs: [-0.5],
                                                                  top_logprobs: [{" king": -0.5, ...kept}]}}]})};
    }
    const kept = body.logprobs_mode === "raw_logprobs" ? {" queen": -1} : {};
    return {ok: true, json: async () => ({choices: [{...top([{}, {" king": -0.5, ...kept}]), token_ids: [8, 9],
                                                        prompt_token_ids: [1, 2, 3]}]})};
  }
  const events = [{seed: 7, choices: [{text: "", ...top([{}, {}])}]},
                  {seed: 7, choices: [{text: " a king", delta: {content: " a king"}}]},
                  {choices: [], seed: 7, usage: {completion_tokens: 2}}];
  const text = events.map((event) => "data: " + JSON.stringify(event) + "\\n\\n").join("") + "data: [DONE]\\n\\n";
  return {ok: true, body: new Blob([text]).stream()};
};
for (const [id, value] of Object.entries(VALUES)) document.getElementById(id).value = value;
"""
END = """
const rest = () => new Promise((resolve) => setTimeout(resolve, 20));
await rest();
for (const event of EVENTS) {
  await handlers[event]({preventDefault() {}});
  await rest();
}
const shown = {};
for (const [id, one] of Object.entries(elements)) shown[id] = {text: one.textContent, value: one.value, href: one.href};
const rows = (elements.candidates?.children ?? []).flatMap((table) => table.children.filter((row) => row.className !== "quiet"))
    .map((row) => [row.className, ...row.children.slice(0, 4).map((cell) => cell.textContent)]);
console.log(JSON.stringify({sent, shown, rows, live: Object.keys(handlers).filter((name) => name.endsWith(" input"))}));
"""


@unittest.skipUnless(shutil.which("node"), "there is no node")
class Page(unittest.TestCase):
    def run_page(self, *events, hash="", **values):
        code = STAGE.replace("VALUES", json.dumps(values)).replace("HASH", json.dumps(hash))
        code += SCRIPT + END.replace("EVENTS", json.dumps(events))
        result = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True,
                                encoding="utf-8", timeout=60)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def test_what_is_shown_is_what_the_button_sends(self):
        values = dict(prompt="It's so", max_tokens="20", temperature="0.7", top_k="5", seed="7", stop_text='"')
        expected = {"model": "default", "prompt": "It's so", "max_tokens": 20, "temperature": 0.7, "top_k": 5,
                    "seed": 7, "stop": '"', "stream": True}
        ran = self.run_page("form submit", **values)
        candidates = {"logprobs": 20, "stream_options": {"include_usage": True}}
        self.assertEqual(ran["sent"], [{"path": "/v1/completions", "body": {**expected, **candidates}}])
        command = ran["shown"]["request"]["text"]
        quoted = re.search(r"-d '(.*)'$", command, re.DOTALL)[1]
        self.assertEqual(json.loads(quoted.replace("'\\''", "'")), expected)
        self.assertIn("http://127.0.0.1:8080/v1/completions", command)

        code = self.run_page("as_python click", **values)["shown"]["request"]["text"]
        calls = []
        client = type("Client", (), {"__init__": lambda self, **settings: calls.append(settings)})
        client.completions = type("Completions", (), {"create": staticmethod(lambda **own: calls.append(own) or [])})
        exec(code.replace("from openai import OpenAI", ""), {"OpenAI": client})
        self.assertEqual(calls[0]["base_url"], "http://127.0.0.1:8080/v1")
        own = calls[1]
        self.assertEqual({**own, **own.pop("extra_body")}, {**expected, "extra_body": {"top_k": 5}})

    def test_every_field_changes_what_is_shown(self):
        fields = re.findall(r'<(?:input|textarea) id="(\w+)"', PAGE)
        live = [name.split()[0] for name in self.run_page(max_tokens="1")["live"]]
        self.assertEqual(sorted(live), sorted(set(fields) - {"key"}))

    def test_the_ranges_are_those_of_the_parameters(self):
        checked = 0
        for name, attributes in re.findall(r'<input id="(\w+)" type="number" ([^>]*)>', PAGE):
            row = re.search(rf"^\| `{name}` \|[^|]*\|[^|]*\| *([\[(])(\S+), (\S+)[\])]", PARAMETERS, re.MULTILINE)
            if row is None or name == "seed":  # max_tokens has no row; JavaScript's numbers end below 2^64
                continue
            self.assertEqual(float(re.search('min="([^"]*)"', attributes)[1]), float(row[2]), name)
            limit = re.search(rf"^\| `{name}`.* above (\d+) only where the limit is lifted", PARAMETERS, re.MULTILINE)
            most = re.search('max="([^"]*)"', attributes)
            self.assertEqual(float(most[1]) if most else 3.4028235e38, float((limit or row)[1 if limit else 3]), name)
            checked += 1
        self.assertEqual(checked, 7)

    def test_the_seed_is_shown_and_may_be_left_out_or_kept(self):
        ran = self.run_page("form submit", "again click", prompt="Once", max_tokens="2", temperature="0")
        self.assertNotIn("seed", ran["sent"][0]["body"])
        self.assertEqual(ran["shown"]["text"]["text"], " a king")
        self.assertRegex(ran["shown"]["note"]["text"], r"2 tokens in .*; seed 7$")
        self.assertEqual(ran["shown"]["seed"]["value"], 7)

    def test_a_token_shows_its_candidates_before_and_after_the_cut(self):
        ran = self.run_page("form submit", "span click", prompt="Once", max_tokens="9")
        bodies = [one["body"] for one in ran["sent"][1:]]
        again = [body for body in bodies if body["prompt"] == "Once"]
        self.assertEqual([body["logprobs_mode"] for body in again], ["raw_logprobs", "processed_logprobs"])
        for body in again:  # the same draw: both tokens came with one text
            self.assertEqual((body["seed"], body["max_tokens"], body["stream"]), (7, 2, False))
        # The rules one after another, each for the tokens before the one that was chosen.
        steps = [body for body in bodies if body not in again]
        self.assertEqual([(body["prompt"], body.get("top_k"), body.get("top_p")) for body in steps],
                         [([1, 2, 3, 8], 0, 1), ([1, 2, 3, 8], None, 1), ([1, 2, 3, 8], None, None)])
        self.assertIn(["drawn", "\u2423king", "60.65 %", "60.65 %", ""], ran["rows"])
        self.assertIn(["lost", "\u2423queen", "36.79 %", "\u2013", "dropped by top_k"], ran["rows"])

    def test_a_chat_has_its_turns(self):
        ran = self.run_page("chat click", "form submit", "form submit", system="Be kind.", prompt="Hello")
        self.assertEqual([one["path"] for one in ran["sent"]], ["/v1/chat/completions"] * 2)
        system, hello = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}
        self.assertEqual(ran["sent"][0]["body"]["messages"], [system, hello])
        self.assertEqual(ran["sent"][0]["body"]["top_logprobs"], 20)
        self.assertEqual(ran["sent"][1]["body"]["messages"],
                         [system, hello, {"role": "assistant", "content": " a king"}, {"role": "user", "content": ""}])

    def test_a_link_fills_the_form_and_runs_nothing(self):
        link = self.run_page("chat click", prompt="A & B", top_p="0.5")["shown"]["link"]["href"]
        ran = self.run_page(hash=link, prompt="Once", temperature="0.8")
        self.assertEqual([ran["shown"][id]["value"] for id in ("prompt", "top_p", "temperature")], ["A & B", "0.5", ""])
        self.assertIn("/v1/chat/completions", ran["shown"]["request"]["text"])
        self.assertEqual(ran["sent"], [])


if __name__ == "__main__":
    unittest.main()
