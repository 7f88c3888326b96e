#!/usr/bin/env python3
"""The pages of the server name every flag, field, route and metric of sluice serve, and no other; the commands
of docs/deploy.md are taken.

Usage: serve_documentation_test.py SLUICE ROOT.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import served
import tiny_model

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, chat_template="{{ messages }}",
                             context=4096))
HELP = subprocess.run([SLUICE, "serve", "--help"], capture_output=True, text=True,
                      timeout=60).stdout


def serve(*args):
    return served.Server(SLUICE, "--model", MODEL, *args)


class ServerPage(unittest.TestCase):
    PAGES = "".join((ROOT / f"docs/{name}.md").read_text() for name in (
        "server", "http-api", "http-parameters", "http-streams", "server-operations", "structured-output"))

    def section(self, name):
        return re.search(rf"^## {name}\n(.*?)(?:^## |\Z)", self.PAGES, re.DOTALL | re.MULTILINE)[1]

    def documented_fields(self):
        """(field, where) of the table, where is "completions", "chats" or both of them."""
        for names, where in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", self.section("Parameters"),
                                       re.MULTILINE):
            names = re.findall(r"`(\w+)`", names)
            places = [place.strip() for place in where.split(",")] * len(names)
            yield from zip(names, places)

    def test_every_flag_is_there_and_no_other(self):
        flags = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", HELP,
                               re.MULTILINE)) - {"--help"}
        self.assertEqual(set(re.findall(r"`(--[\w-]+)", self.section("Flags"))) - {"--max-requests-"},
                         flags)

    def test_every_field_is_there_and_no_other(self):
        source = (ROOT / "src/server/api/request/completion_request.cc").read_text()
        tables = re.findall(r"^constexpr DraftField \w+\[\] = \{$(.*?)^\};$", source,
                            re.DOTALL | re.MULTILINE)
        fields = {name for table in tables for name in re.findall(r'^    \{"(\w+)",', table,
                                                                  re.MULTILINE)}
        self.assertEqual({name for name, _ in self.documented_fields()} | {"temperature", "seed"},
                         fields)
        ignored = re.search(r"kIgnored\[\] = \{(.*?)\}", (
            ROOT / "src/server/api/request/unsupported.cc").read_text(), re.DOTALL)[1]
        paragraph = re.search(r"\n(`user`.*?) are taken and", self.section("Parameters"),
                              re.DOTALL)[1]
        # One that chats read means nothing in the other requests.
        self.assertEqual(set(re.findall(r"`(\w+)`", paragraph)),
                         set(re.findall(r'"(\w+)"', ignored)) - fields)

    def test_every_field_of_other_apis_is_there(self):
        for name, section, least in (("messages", "Messages of Anthropic's API", 10),
                                     ("responses", "Responses", 14)):
            source = (ROOT / f"src/server/api/request/{name}_request.cc").read_text()
            table = re.search(r"^constexpr DraftField \w+\[\] = \{$(.*?)^\};$", source,
                              re.DOTALL | re.MULTILINE)[1]
            rows = re.findall(r'^    \{"(\w+)",\s*(?:R?"([^"]*))', table, re.MULTILINE)
            taken = {field for field, schema in rows if schema}
            self.assertGreater(len(taken), least)
            self.assertEqual(taken - set(re.findall(r"`(\w+)`", self.section(section))), set())

    def test_every_field_of_grammars_is_there_and_no_other(self):
        source = (ROOT / "src/server/api/request/grammar_fields.cc").read_text()
        tables = dict(re.findall(r"^constexpr auto (\w+) = std::to_array<Source>\({$(.*?)^}\);$", source,
                                 re.DOTALL | re.MULTILINE))
        names = {table: set(re.findall(r'\{"(\w+)", ', rows)) for table, rows in tables.items()}
        rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|(.*)\|$", self.section("Fields over HTTP"),
                          re.MULTILINE)
        fields = {field for row in rows for field in re.findall(r"`(\w+)`", row[0])}
        self.assertEqual(fields, names["kGrammarSources"] | {"response_format", "structured_outputs"})
        inner = next(row[2] for row in rows if row[0] == "`structured_outputs`")
        self.assertEqual(set(re.findall(r"`(\w+)`", inner)),
                         names["kStructuredOutputs"] | {"json_object", "disable_any_whitespace"})

    def test_every_field_is_read(self):
        good = {"completions": ("/v1/completions", {"prompt": "a"}),
                "chats": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})}
        with serve() as server:
            for name, where in self.documented_fields():
                for place in good if where == "both" else [where]:
                    path, body = good[place]
                    wrong = 7 if name in ("stream_options", "chat_template_kwargs") else {"a": 7}
                    status, _, answer = server.post(path, {**body, name: wrong})
                    self.assertEqual((name, place, status), (name, place, 400))
                    self.assertEqual(answer["error"]["param"].split(".")[0], name)

    def test_every_route_is_there(self):
        with serve("--name", "tiny") as server:
            for method, path in re.findall(r"`(GET|POST) ([^`]*)`", self.section("Routes")):
                path = path.replace("{id}", "tiny")
                status = server.ask(method, path, "{}" if method == "POST" else None,
                                    {"Content-Type": "application/json"})[0]
                self.assertIn(status, (200, 400), path)

    def test_every_metric_is_there(self):
        with serve() as server:
            metrics = server.get("/metrics")[2].decode()
        for name in re.findall(r"`(sluice_\w+)", self.section("Metrics") + self.section("Parameters")):
            self.assertIn(f"# TYPE {name} ", metrics)


class DeployPage(unittest.TestCase):
    PAGE = (ROOT / "docs/deploy.md").read_text()

    def test_its_commands_would_start_a_server(self):
        commands = re.findall(r"^    (sluice serve .*)$", self.PAGE, re.MULTILINE)
        self.assertGreater(len(commands), 4)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "keys").write_text("one\ntwo\n")
            made = shutil.which("openssl") and subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                 "-keyout", "key.pem", "-out", "chain.pem"], cwd=folder, capture_output=True).returncode == 0
            for command in commands:
                if "--tls-cert" in command and not made:
                    continue
                words = command.replace("/run/sluice", folder).replace("models/default", MODEL).split()[2:]
                words += [] if "--model" in words else ["--model", MODEL]
                words += [] if "--unix-socket" in words else ["--port", "0"]
                words += [] if "--check" in words else ["--check"]
                run = subprocess.run([SLUICE, "serve", *words], cwd=folder, env=served.ENVIRONMENT,
                                     capture_output=True, text=True, timeout=60)
                if "OpenSSL was not found" in run.stderr:
                    continue
                self.assertEqual(run.returncode, 0, command + run.stdout + run.stderr)

    def test_its_flags_and_metrics_are_those_of_the_server(self):
        for flag in re.findall(r"`(--[\w-]+)", self.PAGE):
            self.assertRegex(HELP + "--read-only --tmpfs", re.escape(flag) + r"\b")
        with serve() as server:
            metrics = server.get("/metrics")[2].decode()
        for name in re.findall(r"\b((?:sluice_|vllm:)\w+)", self.PAGE):
            self.assertIn(f"# TYPE {name.removesuffix('_bucket')} ", metrics)


if __name__ == "__main__":
    unittest.main()
