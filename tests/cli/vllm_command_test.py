#!/usr/bin/env python3
"""`sluice vllm` with a stand-in for vLLM: an engine of the standard library alone.

Usage: vllm_command_test.py SLUICE ROOT.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402

MODEL = str(ROOT / "models/default")
STAND_IN = str(ROOT / "tests/link/vllm/bare_vllm.py")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds, what):
    end = time.monotonic() + served.PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.02)


class Vllm(served.Server):
    """The command as a process. What it writes on standard error is kept as it comes."""

    def __init__(self, *words, mode="", environment=None, **options):
        super().__init__(SLUICE, MODEL, "--python", STAND_IN, *words, command=("vllm",),
                         environment={"FAKE_VLLM": mode, **(environment or {})}, **options)
        self.said = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.said.append(line.decode().rstrip("\n"))

    def log(self):
        return "\n".join(self.said)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(2 * served.PATIENCE)
        self.reader.join(served.PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()


def refused(*words, environment=None, code=2):
    """What it says where it does not start."""
    done = subprocess.run([SLUICE, "vllm", *words], capture_output=True, text=True, check=False,
                          env={**served.ENVIRONMENT, **(environment or {})}, timeout=120)
    if (done.returncode, done.stdout) != (code, ""):
        raise AssertionError((done.returncode, done.stdout, done.stderr))
    return done.stderr


class Command(unittest.TestCase):
    def test_the_engine_gets_what_is_not_the_servers(self):
        with Vllm("--served-model-name", "a", "b", "--max-model-len", "512", "--dtype=bfloat16",
                  "-tp", "2", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_json",
                  "--reasoning-parser", "qwen3", "--enforce-eager", "--allowed-origins", '["https://a.example"]',
                  "--revision", "main") as server:
            line = next(said for said in server.said if said.startswith("vllm: arguments: "))
            words, master = line.removeprefix("vllm: arguments: ").split(" master: ")
            words = json.loads(words)
            port = words.pop(words.index("--data-parallel-rpc-port") + 1)
            self.assertEqual(words, [MODEL, "--headless", "--data-parallel-rpc-port", "--revision",
                                     "main", "--reasoning-parser", "qwen3", "--max-model-len", "512", "--dtype=bfloat16", "-tp",
                                     "2", "--enforce-eager"])
            self.assertEqual(master, "127.0.0.1")
            self.assertEqual(server.start["engine"], [f"vllm+tcp://127.0.0.1:{port}"])
            self.assertTrue(is_alive(server.start["engine_pid"]))
            models = json.loads(server.get("/v1/models")[2])["data"]
            self.assertEqual([its["id"] for its in models], ["a", "b"])
            self.assertEqual({its["max_model_len"] for its in models}, {512})
            answer = server.post("/v1/completions",
                                 {"model": "b", "prompt": "It was", "max_tokens": 2})[2]
            self.assertEqual(answer["choices"][0]["text"], "It was")

    def test_a_newer_version_is_taken_and_named(self):
        with Vllm(mode="version=0.34.1") as server:
            self.assertEqual(server.post("/v1/completions", {"prompt": "It was"})[0], 200)
            wait_until(lambda: "sluice: vLLM 0.34.1 is newer than" in server.log(), server.log())
            wait_until(lambda: "is ready: it is vLLM 0.34.1, newer than" in server.log(),
                       server.log())

    def test_it_listens_at_a_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "socket"))
            with Vllm("--uds", path, listens=()) as server:
                self.assertEqual(server.url, f"unix:{path}")

    def test_the_model_has_the_name_that_was_given(self):
        with Vllm() as server:
            self.assertEqual([its["id"] for its in json.loads(server.get("/v1/models")[2])["data"]],
                             [MODEL])
            # The end of a progress bar alone.
            self.assertIn("vllm: loading shards 2", server.said)
            self.assertNotIn("shards 1", server.log())

    def test_the_variable_of_vllm_has_a_key(self):
        for variable in ("VLLM_API_KEY", "SLUICE_API_KEY"):
            with Vllm(environment={variable: "secret"}) as server:
                self.assertEqual(server.get("/v1/models")[0], 401)
                self.assertEqual(server.get("/v1/models", Authorization="Bearer secret")[0], 200)
        self.assertIn("VLLM_API_KEY", refused(MODEL, environment={"VLLM_API_KEY": ""}))

    def test_a_killed_engine_ends_its_streams_and_is_started_again(self):
        with Vllm(mode="step=0.01") as server:
            first = server.start["engine_pid"]
            events = server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 4000})
            next(events)
            os.kill(first, signal.SIGKILL)
            rest = list(events)
            self.assertTrue(any("error" in event for event in rest), rest[-3:])
            wait_until(lambda: "it is started again" in server.log(), server.log())
            server.wait_for_health(200)
            answer = server.post("/v1/completions", {"prompt": "It was", "max_tokens": 2})[2]
            self.assertEqual(answer["choices"][0]["text"], "It was")
            self.assertIn("the engine of vLLM ended (signal 9 (Killed))", server.log())

    def test_an_adapter_is_a_model(self):
        with Vllm("--served-model-name", "base", "--lora-modules", "one=/a/1", "two=/a/2") as server:
            models = json.loads(server.get("/v1/models")[2])["data"]
            self.assertEqual([its["id"] for its in models], ["base", "one", "two"])
            for model in ("two", "base"):
                answer = server.post("/v1/completions", {"model": model, "prompt": "It was",
                                                         "cache_salt": "s", "max_tokens": 2})[2]
                self.assertEqual(answer["model"], model)
            for words in ('vllm: request: [["two", 2, "/a/2"], "s"]', 'vllm: request: [null, "s"]'):
                wait_until(lambda said=words: said in server.log(), server.log())

    def test_ranks_and_threads_share_the_requests(self):
        with Vllm("--data-parallel-size", "2", "--api-server-count", "3", "--max-logprobs", "30",
                  mode="step=0.01") as server:
            line = next(said for said in server.said if said.startswith("vllm: arguments: "))
            for words in ('"--data-parallel-size", "2", "--data-parallel-address", "127.0.0.1"',
                          '"--max-logprobs", "30"'):
                self.assertIn(words, line)
            streams = [server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 40,
                                                         "ignore_eos": True}) for _ in range(12)]
            firsts = [next(events) for events in streams]  # all of them are in flight
            self.assertEqual(len(firsts), 12)
            self.assertEqual([len(list(events)) >= 39 for events in streams], [True] * 12)
            ready = [line for line in server.get("/metrics")[2].decode().split("\n")
                     if line.startswith("sluice_engine_ready{")]
            self.assertEqual([line[-11:] for line in ready], ['?rank=0"} 1', '?rank=1"} 1'], ready)
            status, _, answer = server.post("/v1/completions", {"prompt": "a", "logprobs": 31})
            self.assertEqual(status, 400)
            self.assertIn("30", answer["error"]["message"])

    def test_a_signal_ends_both_with_all_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            child = Path(folder, "child")
            with Vllm(mode="forks", environment={"FAKE_VLLM_CHILD": str(child)}) as server:
                pids = [server.start["engine_pid"], int(child.read_text())]
                self.assertTrue(all(map(is_alive, pids)))
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(2 * served.PATIENCE), 0)
                wait_until(lambda: not any(map(is_alive, pids)), pids)

    def test_a_reader_of_the_log_that_has_stopped_stops_nothing(self):
        # A pipe holds 64 KiB, and this is more for each of 100 steps.
        with served.Server(SLUICE, MODEL, "--python", STAND_IN, command=("vllm",),
                           environment={"FAKE_VLLM": "loud=5000"}) as server:
            for _ in range(4):
                status, _, answer = server.post(
                    "/v1/completions", {"prompt": "It was", "max_tokens": 25, "ignore_eos": True})
                self.assertEqual(status, 200)
                self.assertEqual(answer["usage"]["completion_tokens"], 25)
            self.assertEqual(server.get("/health")[0], 200)
            said = server.end()[1]
            self.assertIn("vllm: a line of the log\n", said)

    def test_an_engine_ends_with_a_killed_server(self):
        with Vllm() as server:
            server.process.kill()
            wait_until(lambda: not is_alive(server.start["engine_pid"]), "the engine lives on")


class Refusals(unittest.TestCase):
    def test_an_engine_that_does_not_start_ends_the_command(self):
        said = refused(MODEL, "--python", STAND_IN, "--port", "0",
                       environment={"FAKE_VLLM": "fails"}, code=1)
        self.assertIn("vllm: ValueError: the model has no weights", said)
        self.assertTrue(said.endswith(
            "sluice: the engine of vLLM ended (exit status 3); its log above says why\n"), said)

    def test_what_has_no_vllm_or_another_one_is_named(self):
        for mode, words in (("version=none", f"{STAND_IN} has no vLLM: --python names"),
                            ("version=0.30.2", "vLLM 0.30.2 of"),
                            ("version=0.30.2", "Sluice takes 0.31, 0.32 or 0.33")):
            said = refused(MODEL, "--python", STAND_IN, environment={"FAKE_VLLM": mode}, code=1)
            self.assertIn(words, said)
        said = refused(MODEL, "--python", STAND_IN, environment={"FAKE_VLLM": "broken"}, code=1)
        self.assertIn(f"{STAND_IN} does not say which vLLM it has: exit status 1: Fatal Python error",
                      said)
        # More than a pipe takes before what counts.
        said = refused(MODEL, "--python", STAND_IN, code=1,
                       environment={"FAKE_VLLM": "floods version=0.1.0"})
        self.assertIn("vLLM 0.1.0 of", said)
        said = refused(MODEL, "--python", "/no/such", code=1)
        self.assertIn("--python /no/such is no program", said)
        with tempfile.TemporaryDirectory() as folder:
            said = refused(MODEL, environment={"PATH": folder}, code=1)
            self.assertIn("neither vllm nor python3 is on PATH", said)
            # The interpreter of the program vllm, not the first python3.
            python = Path(folder, "python-of-it")
            python.symlink_to(STAND_IN)
            program = Path(folder, "vllm")
            program.write_text(f"#!{python}\n")
            program.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            said = refused(MODEL, code=1, environment={"PATH": path, "FAKE_VLLM": "version=0.1.0"})
            self.assertIn(f"vLLM 0.1.0 of {python}", said)

    def test_each_flag_of_vllms_server_has_an_effect_or_is_named(self):
        taken = subprocess.run([SLUICE, "vllm", "--help"], capture_output=True, text=True,
                               check=True, env=served.ENVIRONMENT).stdout.split()
        flags = (ROOT / "tests/fixtures/vllm_flags.txt").read_text().split("\n")[1:-1]
        self.assertGreater(len(flags), 60)
        of_engine = []
        for flag in flags:
            if any(word.rstrip(",") == flag for word in taken):
                continue
            done = subprocess.run([SLUICE, "vllm", MODEL, f"{flag}=1", "--python", "/no/such"],
                                  capture_output=True, text=True, check=False,
                                  env=served.ENVIRONMENT)
            if done.returncode == 2:
                self.assertIn(f"{flag} is not taken: ", done.stderr)
            else:
                self.assertIn("--python /no/such is no program", done.stderr)
                if f"{flag} has no effect: " not in done.stderr:
                    of_engine.append(flag)
        self.assertEqual(of_engine, ["--enable-flash-late-interaction"])

    def test_the_value_that_sluice_has_anyway_is_taken(self):
        for words in (["--response-role", "assistant"], ["--tool-strict-level=auto"],
                      ["--data-parallel-size", "2"], ["--logprobs-mode=raw_logprobs"]):
            self.assertIn("is no program", refused(MODEL, *words, "--python", "/no/such", code=1))
        self.assertIn("--response-role is not taken: answers have the role assistant",
                      refused(MODEL, "--response-role", "bot"))
        self.assertIn("--logprobs-mode is not taken: answers say",
                      refused(MODEL, "--logprobs-mode=processed_logits"))

    def test_flags_that_cannot_be_honoured_are_named(self):
        for words, said in ((["--ssl-ca-certs", "k"], "--ssl-ca-certs is not taken: --tls-cert and"),
                            (["--ssl-keyfile", "k"], "--ssl-certfile"),
                            (["--headless"], "--headless is not taken"),
                            (["-dp", "2"], "-dp is not taken: write --data-parallel-size"),
                            (["--data-parallel-size=65"], "--data-parallel-size"),
                            (["-dpr", "1"], "-dpr is not taken: start the ranks of several hosts"),
                            (["--lora-modules", "b"], "--lora-modules b: write NAME=PATH"),
                            (["--uds", "s", "--unix-socket", "t"], "--uds"),
                            (["--root_path=/x"], "--root-path is not taken"),
                            (["--config", "f.yaml"], "--config is not taken: write its flags here"),
                            (["--api-ke", "k"], "--api-ke is not taken: write --api-key in full"),
                            (["--middle", "a"], "--middle is not taken: write --middleware"),
                            (["-dpa", "10.0.0.1"], "-dpa is not taken"),
                            (["--default-chat-template-kwargs.a", "1"],
                             "--default-chat-template-kwargs is not taken"),
                            (["--api_key", "k"], "--api_key is written --api-key here"),
                            (["--tool-call-parser", "xlam"], "--tool-call-parser xlam"),
                            (["--reasoning-parser", "step3"], "--reasoning-parser step3"),
                            (["--port", "99999"], "--port"),
                            (["--max-requests", "0"], "--max-requests")):
            self.assertIn(said, refused(MODEL, *words))

    def test_ranks_of_a_model_with_experts_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in Path(MODEL).iterdir():
                Path(folder, file.name).symlink_to(file)
            config = json.loads(Path(folder, "config.json").read_text())
            Path(folder, "config.json").unlink()
            for experts, is_refused in ((0, False), (8, True)):
                Path(folder, "config.json").write_text(
                    json.dumps({**config, "num_local_experts": experts}))
                said = refused(folder, "--data-parallel-size", "2", "--python", "/no/such", code=1)
                self.assertIn("Sluice has no coordinator" if is_refused else "is no program", said)

    def test_a_model_is_a_folder_or_a_name_in_the_cache(self):
        with tempfile.TemporaryDirectory() as home:
            environment = {"HF_HOME": home}
            said = refused("org/name", environment=environment, code=1)
            self.assertIn('"hf download org/name" fetches it', said)
            self.assertIn("/no/folder is neither a folder nor",
                          refused("/no/folder", environment=environment, code=1))
            cached = Path(home, "hub/models--org--name")
            (cached / "refs").mkdir(parents=True)
            (cached / "refs/main").write_text("0123")
            (cached / "snapshots").mkdir()
            (cached / "snapshots/0123").symlink_to(MODEL)
            said = refused("org/name", "--python", STAND_IN, code=1,
                           environment={**environment, "FAKE_VLLM": "version=0.1.0"})
            self.assertIn("vLLM 0.1.0", said)
            said = refused("org/name", "--revision", "old", environment=environment, code=1)
            self.assertIn("has no snapshot of old", said)


if __name__ == "__main__":
    unittest.main()
