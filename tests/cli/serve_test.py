#!/usr/bin/env python3
"""sluice serve, run as a user runs it, on a model of random weights and on the built-in model.

Usage: serve_test.py SLUICE ROOT.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import served
import terminal
import tiny_model
from served import ENVIRONMENT, PATIENCE, text_of

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
FOLDER = tempfile.TemporaryDirectory()
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, chat_template=TEMPLATE, context=4096))
HAS_BUILT_IN_MODEL = subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode == 0
SAMPLED = {"max_tokens": 24, "seed": 5}
PROMPT = {"prompt": "It was", **SAMPLED}


def run(*args, environment=None):
    return subprocess.run([SLUICE, "serve", *args], env={**ENVIRONMENT, **(environment or {})},
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def serve(*args, **options):
    return served.Server(SLUICE, "--model", MODEL, *args, **options)


class Mock:
    """An engine elsewhere, slow enough to be caught in the middle of a text."""

    def __init__(self, *args, listen="tcp://127.0.0.1:*"):
        self.process = subprocess.Popen(
            [SLUICE, "mock-engine", "--listen", listen, "--tokenizer", MODEL + "/tokenizer.json",
             "--echo", "--rate", "100", "--quiet", *args], env=ENVIRONMENT, stdout=subprocess.PIPE)

    def __enter__(self):
        self.endpoint = self.process.stdout.readline().decode().split()[-1]
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class Answers(unittest.TestCase):
    def test_a_completion_is_the_text_that_generate_gives(self):
        expected = subprocess.run(
            [SLUICE, "generate", "It was", "--model", MODEL, "--max-tokens", "24", "--seed", "5",
             "--quiet"], env=ENVIRONMENT, capture_output=True, check=True).stdout.decode()
        for flags in ([], ["--stop-at", "frontend"], ["--threads", "2", "--steps-in-flight", "1"]):
            with serve(*flags) as server:
                status, _, answer = server.post("/v1/completions", PROMPT)
                self.assertEqual(status, 200)
                text = answer["choices"][0]["text"]
                self.assertEqual(text.rstrip("\n"), expected.rstrip("\n"))
                self.assertEqual(answer["usage"]["completion_tokens"], 24)
                events = list(server.stream("/v1/completions", PROMPT))
                self.assertEqual((text_of(events), events[-1]), (text, "[DONE]"))

    def test_a_chat_is_what_the_template_makes_of_it(self):
        messages = [{"role": "user", "content": "It was"}]
        with serve() as server:
            chat = server.post("/v1/chat/completions", {**SAMPLED, "messages": messages})[2]
            alone = server.post("/v1/completions", {**PROMPT, "prompt": "<user>It was",
                                                    "add_special_tokens": False})[2]
        self.assertEqual(chat["choices"][0]["message"]["content"], alone["choices"][0]["text"])
        other = Path(FOLDER.name) / "other.jinja"
        other.write_text("{{ messages[0].content }}")
        with serve("--chat-template", str(other)) as server:
            chat = server.post("/v1/chat/completions", {**SAMPLED, "messages": messages})[2]
            alone = server.post("/v1/completions", {**PROMPT, "add_special_tokens": False})[2]
        self.assertEqual(chat["choices"][0]["message"]["content"], alone["choices"][0]["text"])

    @unittest.skipUnless(HAS_BUILT_IN_MODEL, "this build has no built-in model")
    def test_without_a_flag_it_serves_the_model_inside(self):
        with served.Server(SLUICE) as server:
            self.assertEqual(server.start["model"], "default")
            answer = server.post("/v1/completions", {**PROMPT, "prompt": "Once upon a time"})[2]
            messages = [{"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Once upon a time"}]
            chat = server.post("/v1/chat/completions", {**SAMPLED, "messages": messages})[2]
            self.assertEqual(chat["choices"][0]["message"]["content"], answer["choices"][0]["text"])
            self.assertEqual(chat["usage"]["prompt_tokens"], 4)

    def test_what_is_wrong_with_a_request_is_named(self):
        with serve() as server:
            for path, body, status, param in [
                    ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature"),
                    ("/v1/completions", {"prompt": "a", "model": "none"}, 404, "model"),
                    ("/v1/completions", {"prompt": [427]}, 400, None),
                    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
                    ("/v1/completions", {"prompt": "a" * 9000}, 400, None)]:
                answer = server.post(path, body)
                self.assertEqual(answer[0], status, answer)
                if param is not None:
                    self.assertEqual(answer[2]["error"]["param"], param)
            self.assertEqual(server.get("/nowhere")[0], 404)
            self.assertEqual(server.get("/v1/completions")[0], 405)

    def test_a_model_without_a_name_has_that_of_its_folder(self):
        for folder in (MODEL, MODEL + "/", MODEL + "/../tiny/."):
            with served.Server(SLUICE, "--model", folder) as server:
                models = json.loads(server.get("/v1/models")[2])["data"]
                self.assertEqual([model["id"] for model in models], ["tiny"])
                self.assertEqual(server.post("/v1/completions", PROMPT)[2]["model"], "tiny")

    def test_names_are_those_that_were_given(self):
        with serve("--name", "first", "--name", "second") as server:
            self.assertEqual(server.start["model"], "first")
            models = json.loads(server.get("/v1/models")[2])["data"]
            self.assertEqual([model["id"] for model in models], ["first", "second"])
            self.assertEqual(server.post("/v1/completions", {**PROMPT, "model": "second"})[0], 200)
            self.assertEqual(server.post("/v1/completions", {**PROMPT, "model": MODEL})[0], 404)

    def test_keys_come_from_flags_a_file_and_the_environment(self):
        file = Path(FOLDER.name) / "keys"
        file.write_text("# of the tests\n\n  two \nthree\n")
        for flags, environment, good in [(["--api-key", "one", "--api-key-file", str(file)], {},
                                          ["one", "two", "three"]),
                                         ([], {"SLUICE_API_KEY": "four"}, ["four"])]:
            with serve(*flags, environment=environment) as server:
                self.assertEqual(server.post("/v1/completions", PROMPT)[0], 401)
                self.assertEqual(server.get("/health")[0], 200)
                for key in [*good, "wrong", "# of the tests"]:
                    status = server.get("/v1/models", Authorization=f"Bearer {key}")[0]
                    self.assertEqual(status, 200 if key in good else 401, key)
                environ = Path(f"/proc/{server.start['engine_pid']}/environ").read_bytes()
                self.assertNotIn(b"SLUICE_API_KEY", environ)

    def test_a_key_that_is_empty_is_no_key(self):
        empty = {"SLUICE_API_KEY": ""}
        for flags in [["--check"], ["--port", "0"]]:
            refused = run(*flags, environment=empty)
            self.assertEqual((refused.returncode, refused.stdout), (2, b""), refused)
            self.assertIn(b"SLUICE_API_KEY", refused.stderr)
        with serve("--api-key", "one", environment=empty) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)

    def test_other_origins_are_told_what_they_may(self):
        with serve("--cors-origin", "https://example.org") as server:
            headers = server.get("/health", Origin="https://example.org")[1]
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://example.org")
            headers = server.get("/health", Origin="https://example.com")[1]
            self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_more_requests_than_may_be_are_refused(self):
        with Mock() as mock, serve("--engine", mock.endpoint, "--max-requests", "1") as server:
            stream = server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 100000})
            next(stream)
            status, headers, answer = server.post("/v1/completions", PROMPT)
            self.assertEqual((status, answer["error"]["type"]), (503, "service_unavailable"))
            self.assertIn("Retry-After", headers)
            stream.close()

    def test_it_listens_at_a_path(self):
        path = str(Path(FOLDER.name) / "socket")
        with serve(listens=("--unix-socket", path)) as server:
            self.assertEqual(server.url, "unix:" + path)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE)
                connection.connect(path)
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 200"))


class Starts(unittest.TestCase):
    def test_it_says_where_and_how_to_ask(self):
        with subprocess.Popen([SLUICE, "serve", "--port", "0", "--model", MODEL], env=ENVIRONMENT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            line = process.stdout.readline().decode()
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate(timeout=PATIENCE)
        self.assertRegex(line, r"^listening on http://127\.0\.0\.1:\d+\n$")
        self.assertEqual((process.returncode, rest), (0, b""))
        url = line.split()[-1]
        for words in (f"curl {url}/v1/chat/completions", "from openai import OpenAI",
                      f'base_url="{url}/v1"'):
            self.assertIn(words, errors.decode())
        self.assertNotIn(b"\x1b", errors)

    def test_the_examples_work_as_they_stand(self):
        with serve("--quiet") as quiet:
            self.assertEqual(quiet.end()[1], "")
        with serve() as server:
            deadline = time.monotonic() + PATIENCE
            text = b""
            while b"choices[0].text" not in text and time.monotonic() < deadline:
                text += os.read(server.process.stderr.fileno(), 1 << 16)
            curl = re.search(r"^  (curl .*?\}')$", text.decode(), re.DOTALL | re.MULTILINE)[1]
            if subprocess.run(["which", "curl"], capture_output=True).returncode != 0:
                self.skipTest("no curl")
            # A model that ends nothing: as many tokens as it has room for.
            curl = curl.replace('"stream": true', '"stream": true, "max_tokens": 5')
            answer = subprocess.run(["sh", "-c", curl + " -sSN"], capture_output=True, timeout=60)
            self.assertEqual(answer.stderr, b"")
            self.assertTrue(answer.stdout.endswith(b"data: [DONE]\n\n"), answer.stdout)

    def test_on_a_terminal_it_is_coloured(self):
        process = subprocess.Popen(
            [SLUICE, "serve", "--check", "--port", "0", "--model", MODEL, "--chat-template",
             "/nowhere"], env={**ENVIRONMENT, "TERM": "xterm"}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.assertNotIn(b"\x1b", process.communicate(timeout=60)[0])
        _, text = terminal.run_on_terminal(
            [SLUICE, "serve", "--check", "--port", "0", "--model", MODEL, "--chat-template",
             "/nowhere"], {**ENVIRONMENT, "TERM": "xterm"}, stderr=subprocess.DEVNULL)
        self.assertIn("\x1b[", text)

    def test_the_line_of_json_has_what_a_program_needs(self):
        with serve() as server:
            start = server.start
            self.assertEqual(set(start), {"url", "pid", "model", "engine", "engine_pid"})
            self.assertEqual((start["pid"], start["model"]), (server.process.pid, "tiny"))
            [endpoint] = start["engine"]
            path = Path(endpoint.removeprefix("ipc://"))
            self.assertEqual(path.parent.stat().st_mode & 0o777, 0o700)
            command = Path(f"/proc/{start['engine_pid']}/cmdline").read_bytes().split(b"\0")
            self.assertIn(endpoint.encode(), command)
            self.assertEqual(server.end()[0], 0)
        self.assertFalse(path.parent.exists())
        with Mock() as mock, serve("--engine", mock.endpoint) as server:
            self.assertEqual((server.start["engine"], server.start["engine_pid"]),
                             ([mock.endpoint], None))

    def test_the_engine_gets_its_flags(self):
        with serve("--engine-threads", "2", "--engine-requests", "3", "--head", "dense",
                   "--weights", "int8", "--threads", "2", "--max-requests", "9") as server:
            command = Path(f"/proc/{server.start['engine_pid']}/cmdline").read_text().split("\0")
        self.assertEqual(command[5:-1], [MODEL, "--weights", "int8", "--threads", "2", "--head",
                                         "dense", "--max-requests", "3", "--quiet"])

    def test_strangers_without_a_key_are_warned_of(self):
        words = "other machines may reach 0.0.0.0, without a key"
        with serve("--host", "0.0.0.0") as server:
            self.assertIn(words, server.end()[1])
        with serve("--host", "0.0.0.0", "--api-key", "k") as server:
            self.assertNotIn(words, server.end()[1])

    def test_what_is_wrong_is_named(self):
        keys = Path(FOLDER.name) / "no-keys"
        keys.write_text("# none\n")
        spaced = Path(FOLDER.name) / "spaced"
        spaced.write_text("good\nmy secret\n")
        broken = Path(FOLDER.name) / "broken.jinja"
        broken.write_text("{% if %}")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            for args, code, words in [
                    (("--port", "65536"), 2, "--port = 65536 is not allowed: a "),
                    (("--port", port), 1,
                     f"cannot listen at 127.0.0.1:{port} (Address already in use): end what listens "
                     "there, or choose another --port"),
                    (("--host", "192.0.2.1"), 1, "192.0.2.1:0 (Cannot assign"),
                    (("--host", "no such host"), 2, "host = no such host ("),
                    (("--unix-socket", "/nowhere/s"), 1, "listen at /nowhere/s (No such"),
                    (("--unix-socket", MODEL + "/config.json"), 1, "(Address already in use)"),
                    (("--unix-socket", "x" * 108), 1, "of at most 107 bytes"),
                    (("--unix-socket", "s", "--port", "1"), 2, "--port excludes --unix-socket"),
                    (("--engine", "80"), 2, '--engine = "80" is not allowed: ipc://PATH'),
                    (("--engine", "vllm+tcp://80"), 2, '--engine = "tcp://80" is not allowed'),
                    (("--engine", "vllm+tcp://0.0.0.0:1"), 2, "vllm+tcp://ADDRESS:PORT"),
                    (("--engine", "vllm+tcp://127.0.0.1:1?ranks=65"), 2, "ranks is from 1 to 64"),
                    (("--engine", "vllm+tcp://127.0.0.1:1?rank=2"), 2, "only ranks and max_logprobs may follow"),
                    (("--engine", "ipc://@x", "--head", "dense"), 2, "--engine excludes --head"),
                    (("--threads", "0"), 2, "--threads = 0 is not allowed: a "),
                    (("--max-requests", "0"), 2, "--max-requests = 0 is not allowed: a "),
                    (("--max-requests-per-key", "2"), 2, "--max-requests-per-key = 2 is not allowed"),
                    (("--api-key", "my secret"), 2, "--api-key = one of them is not allowed"),
                    (("--api-key-file", str(keys)), 2, "without a key"),
                    (("--api-key-file", str(spaced)), 2, "api-key-file: line 2 = a key that is not"),
                    (("--cors-origin", "example.org"), 2, '--cors-origin = "example.org"'),
                    (("--chat-template", "/nowhere"), 2, "no such file: /nowhere"),
                    (("--chat-template", str(broken)), 2, "template"),
                    (("--drain-timeout", "-1"), 2, "--drain-timeout = -1 is not allowed: a "),
                    (("--stop-at", "client"), 2, '--stop-at = "client" is not allowed'),
                    (("--model", "/nowhere"), 2, "no such folder: /nowhere"),
                    (("--head", "big"), 2, '--head = "big" is not allowed')]:
                model = () if "--model" in args else ("--model", MODEL)
                result = run(*args, *model, *(() if {"--port", "--unix-socket"} & set(args)
                                              else ("--port", "0")))
                self.assertEqual((args, result.returncode), (args, code), result.stderr.decode())
                self.assertIn(words, result.stderr.decode())
                self.assertNotIn("secret", result.stderr.decode())
                self.assertEqual(result.stdout, b"")

    def test_an_engine_that_cannot_load_is_told(self):
        folder = tiny_model.write(Path(FOLDER.name) / "broken", ROOT)
        (folder / "model.safetensors").write_bytes(b"no weights")
        result = run("--model", str(folder), "--port", "0")
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn("the engine did not start", result.stderr.decode())
        self.assertIn("model.safetensors", result.stderr.decode())

    def test_a_signal_while_it_loads_ends_it(self):
        with tempfile.NamedTemporaryFile() as file:  # nobody listens there
            with subprocess.Popen([SLUICE, "serve", "--port", "0", "--model", MODEL],
                                  env={**ENVIRONMENT, "TMPDIR": str(Path(file.name).parent)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=PATIENCE)
        self.assertIn(process.returncode, (0, -signal.SIGTERM))  # before it looks, or behind it


class Check(unittest.TestCase):
    def test_what_it_found_when_all_is_well(self):
        result = run("--check", "--model", MODEL, "--port", "0", "--api-key", "k")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        lines = [line for line in result.stdout.decode().splitlines()
                 if "grammars" not in line[:20]]  # which may be off
        self.assertEqual([line[:20].strip() for line in lines],
                         ["model          ok", "chat template  ok", "engine         ok",
                          "address        ok", "API keys       ok"])
        self.assertIn('makes "<user>Hello" of "Hello"', lines[1])
        answer = json.loads(run("--check", "--json", "--model", MODEL, "--port", "0").stdout)
        self.assertTrue(answer["ok"])
        self.assertTrue(all(check["ok"] for check in answer["checks"]))

    def test_it_goes_on_behind_what_is_wrong(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            result = run("--check", "--json", "--port", port, "--chat-template", "/nowhere",
                         "--model", MODEL)
        self.assertEqual(result.returncode, 2)
        checks = [check for check in json.loads(result.stdout)["checks"]
                  if check["name"] != "grammars"]
        self.assertEqual([check["ok"] for check in checks], [True, False, True, False, True])
        self.assertIn("already in use", checks[3]["found"])
        self.assertIn("no such file: /nowhere", result.stderr.decode())

    def test_weights_that_cannot_be_read_are_found(self):
        folder = tiny_model.write(Path(FOLDER.name) / "spoilt", ROOT)
        (folder / "model.safetensors").write_bytes(b"no weights")
        result = run("--check", "--model", str(folder), "--port", "0")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout.decode(), r"model +WRONG +model\.safetensors")

    def test_engines_elsewhere_are_asked(self):
        with Mock() as mock:
            result = run("--check", "--model", MODEL, "--port", "0", "--engine", mock.endpoint)
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            self.assertIn("mock of 1 engine", result.stdout.decode())

    def test_an_engine_of_vllm_is_left_alone(self):
        result = run("--check", "--model", MODEL, "--port", "0", "--engine", "vllm+tcp://127.0.0.1:1")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertIn("connects when this server runs", result.stdout.decode())

    def test_it_leaves_the_port_alone(self):
        with serve() as server:
            result = run("--check", "--model", MODEL, "--port", str(server.port))
            self.assertEqual(result.returncode, 1)
            self.assertIn("in use", result.stdout.decode())
            self.assertEqual(server.get("/health")[0], 200)


class Ends(unittest.TestCase):
    LONG = {"prompt": "It was", "max_tokens": 150}  # 1.5 s of a mock

    def test_a_stream_is_finished_before_it_ends(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Mock() as mock, serve("--engine", mock.endpoint) as server:
                stream = server.stream("/v1/completions", self.LONG)
                events = [next(stream)]
                server.process.send_signal(number)
                events += list(stream)
                self.assertEqual(events[-1], "[DONE]")
                self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
                server.process.communicate(timeout=PATIENCE)
                self.assertEqual(server.process.returncode, 0)

    def test_new_requests_are_refused_while_it_ends(self):
        with Mock() as mock, serve("--engine", mock.endpoint) as server:
            kept = server.connect()
            kept.request("GET", "/health")
            self.assertEqual(kept.getresponse().read(), b'{"status":"ok"}')
            stream = server.stream("/v1/completions", self.LONG)
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(list(stream)[-1], "[DONE]")
            with self.assertRaises(OSError):
                server.get("/health")
            kept.close()

    def test_what_takes_longer_ends_with_an_error(self):
        for flags, signals in (["--drain-timeout", "0"], 1), ([], 2):
            with Mock() as mock, serve("--engine", mock.endpoint, *flags) as server:
                stream = server.stream("/v1/completions", {**self.LONG, "max_tokens": 100000})
                events = [next(stream)]
                for _ in range(signals):
                    server.process.send_signal(signal.SIGTERM)
                    server.wait_until_it_refuses()  # two that come together are one
                events += list(stream)
                self.assertEqual(events[-1], "[DONE]")
                self.assertIn("error", events[-2])
                server.process.communicate(timeout=PATIENCE)
                self.assertEqual(server.process.returncode, 0)

    def test_the_engine_ends_with_it_however_it_ends(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with serve() as server:
                process = os.pidfd_open(server.start["engine_pid"])
                server.end(number)
                self.assertTrue(select.select([process], [], [], PATIENCE)[0], number)
                os.close(process)

    def test_a_killed_engine_is_an_error_and_is_started_again(self):
        with serve("--engine-requests", "1") as server:
            body = {"prompt": "It was", "max_tokens": 4000, "ignore_eos": True, "n": 2}
            stream = server.stream("/v1/completions", body)
            events = [next(stream)]
            os.kill(server.start["engine_pid"], signal.SIGKILL)
            events += list(stream)
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(events[-2]["error"]["type"], "service_unavailable")
            server.wait_for_health(200)
            status, _, answer = server.post("/v1/completions", PROMPT)
            self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 24))
            errors = server.end()[1]
        self.assertIn("is connecting: the connection was lost", errors)  # and not: it said nothing
        self.assertIn("the engine ended (signal 9 (Killed)); it is started again", errors)
        self.assertIn("the engine is there again", errors)

    def test_a_log_that_takes_nothing_holds_nothing_up(self):
        with open("/dev/full", "wb") as full, serve(errors=full) as server:
            stream = server.stream("/v1/completions", {**PROMPT, "max_tokens": 4000,
                                                       "ignore_eos": True})
            next(stream)
            os.kill(server.start["engine_pid"], signal.SIGKILL)  # of which it says some lines
            self.assertEqual(list(stream)[-1], "[DONE]")
            server.wait_for_health(200)
            self.assertEqual(server.post("/v1/completions", PROMPT)[0], 200)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=2 * PATIENCE), 0)

    def test_engines_elsewhere_are_taken_up_again(self):
        endpoint = f"ipc://{FOLDER.name}/mock"
        with Mock(listen=endpoint) as mock, serve("--engine", endpoint) as server:
            mock.process.kill()
            server.wait_for_health(503)
            status, headers, answer = server.post("/v1/completions", PROMPT)
            self.assertEqual((status, answer["error"]["type"]), (503, "service_unavailable"))
            with Mock(listen=endpoint):
                server.wait_for_health(200)
                self.assertEqual(server.post("/v1/completions", PROMPT)[0], 200)


if __name__ == "__main__":
    unittest.main()
