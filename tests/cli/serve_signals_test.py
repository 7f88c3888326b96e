#!/usr/bin/env python3
"""What sluice serve does when signals come, and what it leaves when it is killed.

Usage: serve_signals_test.py SLUICE ROOT.
"""

import http.client
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import served
import tiny_model
from served import ENVIRONMENT, PATIENCE

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, context=4096))
PROMPT = {"prompt": "It was", "max_tokens": 8, "seed": 5}
LONG = {"prompt": "It was", "max_tokens": 2000, "ignore_eos": True}


def serve(*args, **options):
    return served.Server(SLUICE, "--model", MODEL, *args, **options)


class Signals(unittest.TestCase):
    def wait_for(self, holds):
        end = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_a_log_without_a_reader_ends_nothing(self):
        reader, writer = os.pipe()
        with serve(errors=writer) as server:
            os.close(writer)
            os.close(reader)
            os.kill(server.start["engine_pid"], signal.SIGKILL)  # of which it says some lines
            end = time.monotonic() + PATIENCE
            while server.post("/v1/completions", PROMPT)[0] != 200:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=2 * PATIENCE), 0)

    def test_an_engine_whose_log_has_no_reader_goes_on(self):
        reader, writer = os.pipe()
        with subprocess.Popen([SLUICE, "engine", "--model", MODEL, "--listen", "tcp://127.0.0.1:*"],
                              env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=writer) as engine:
            endpoint = engine.stdout.readline().decode().split()[-1]
            text = subprocess.run([SLUICE, "generate", "It was", "--engine", endpoint, "--model",
                                   MODEL, "--max-tokens", "4", "--quiet"], env=ENVIRONMENT,
                                  capture_output=True, timeout=PATIENCE)
            self.assertEqual(text.returncode, 0, text.stderr)
            os.close(writer)
            os.close(reader)  # before the report of its end
            engine.send_signal(signal.SIGTERM)
            self.assertEqual(engine.wait(timeout=PATIENCE), 0)

    def test_a_terminal_that_closes_is_a_stop(self):
        with serve("--drain-timeout", "0") as server:
            stream = server.stream("/v1/completions", LONG)
            events = [next(stream)]
            server.process.send_signal(signal.SIGHUP)
            events += list(stream)
            self.assertEqual(events[-1], "[DONE]")
            self.assertIn("error", events[-2])
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)

    def test_a_hangup_reads_the_keys_again_and_breaks_nothing(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            def write(*lines):
                keys.seek(0)
                keys.truncate()
                keys.write("".join(line + "\n" for line in lines))
                keys.flush()

            def status(key):
                headers = {"Authorization": "Bearer " + key}
                return server.post("/v1/completions", PROMPT, headers)[0]

            def becomes(key, expected):
                end = time.monotonic() + PATIENCE
                while status(key) != expected:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)

            write("old", "both")
            with serve("--api-key-file", keys.name) as server:
                self.assertEqual((status("old"), status("new")), (200, 401))
                write("# comment", "new", "both")
                server.process.send_signal(signal.SIGHUP)
                becomes("new", 200)
                self.assertEqual((status("old"), status("both")), (401, 200))
                write("a key of three words")  # which leaves the keys as they are
                server.process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
                self.assertEqual((status("new"), status("both")), (200, 200))
                code, errors = server.end()
            self.assertEqual(code, 0)
            self.assertIn("read the keys again: 2", errors)
            self.assertIn("the keys stay what they were: ", errors)

    def test_a_hangup_does_not_wait_for_keys_from_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder, "keys")
            keys.write_text("old\n")
            with serve("--api-key-file", str(keys)) as server:
                keys.unlink()
                os.mkfifo(keys)
                server.process.send_signal(signal.SIGHUP)
                for line in iter(server.process.stderr.readline, b""):
                    if b"the keys stay what they were" in line:
                        break
                self.assertIn("no regular file", line.decode())
                status, _, _ = server.post("/v1/completions", PROMPT, {"Authorization": "Bearer old"})
                self.assertEqual(status, 200)
                self.assertEqual(server.end()[0], 0)

    def test_a_hangup_opens_the_access_log_again(self):
        with tempfile.TemporaryDirectory() as folder:
            log, moved = Path(folder) / "log", Path(folder) / "moved"
            with serve("--access-log", str(log)) as server:
                server.get("/version")
                self.wait_for(lambda: "/version" in log.read_text())
                log.rename(moved)
                server.process.send_signal(signal.SIGHUP)
                self.wait_for(log.exists)
                server.get("/health")
                self.wait_for(lambda: "/health" in log.read_text())
                self.assertEqual(server.end()[0], 0)
            self.assertIn("/version", moved.read_text())
            self.assertNotIn("/health", moved.read_text())

    def test_a_hangup_is_a_stop_where_the_access_log_is_standard_output(self):
        with serve("--access-log", "-") as server:
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)

    def test_an_access_log_at_its_limit_of_bytes_does_not_end_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            with serve("--access-log", str(log)) as server:
                hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (10, hard))
                self.assertEqual(server.get("/version")[0], 200)
                self.wait_for(lambda: log.stat().st_size == 10)
                self.assertEqual(server.get("/version")[0], 200)
                code, errors = server.end()
            self.assertEqual(code, 0)
            self.assertIn("the access log cannot be written: File too large", errors)

    def test_a_hangup_while_the_server_starts_does_not_end_it(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, new_keys = Path(folder) / "keys", Path(folder) / "new_keys"
            keys.write_text("old\n", encoding="utf-8")
            new_keys.write_text("new\n", encoding="utf-8")
            server = serve("--api-key-file", str(keys))
            self.addCleanup(server.stop)
            status = Path(f"/proc/{server.process.pid}/status")
            catches = lambda: any(line.startswith("SigCgt:") and int(line.split()[1], 16) & 1
                                  for line in status.read_text().splitlines())
            self.wait_for(catches)
            os.replace(new_keys, keys)  # the server reads the file now: it never is an empty one
            server.process.send_signal(signal.SIGHUP)
            with server:
                answers = lambda: server.post("/v1/completions", PROMPT,
                                              {"Authorization": "Bearer new"})[0]
                self.wait_for(lambda: answers() == 200)
                self.assertEqual(server.end()[0], 0)

    def test_an_access_log_that_nothing_reads_holds_up_no_end(self):
        reader, writer = os.pipe()
        with subprocess.Popen([SLUICE, "serve", "--model", MODEL, "--port", "0", "--quiet",
                               "--access-log", "-"], env=ENVIRONMENT, stdout=writer) as process:
            os.close(writer)
            try:
                port = int(os.read(reader, 4096).decode().rpartition(":")[2])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                for _ in range(1000):  # a pipe has room for some 500 lines
                    connection.request("GET", "/version")
                    connection.getresponse().read()
                connection.close()
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(timeout=2 * PATIENCE), 0)
            finally:
                process.kill()
                os.close(reader)

    def test_a_hangup_that_nohup_ignores_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a child inherits
        try:
            server = serve()
        finally:
            signal.signal(signal.SIGHUP, before)
        with server:
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            self.assertEqual(server.post("/v1/completions", PROMPT)[0], 200)
            self.assertEqual(server.end()[0], 0)

    def test_signals_of_users_are_ignored(self):
        with serve() as server:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                for process in (server.process.pid, server.start["engine_pid"]):
                    os.kill(process, number)
            time.sleep(0.1)
            self.assertEqual(server.post("/v1/completions", PROMPT)[0], 200)
            errors = server.end()[1]
        self.assertNotIn("the engine ended", errors)

    def test_a_generation_into_a_pipe_that_closes_ends_quietly(self):
        with subprocess.Popen([SLUICE, "generate", "It was", "--model", MODEL, "--max-tokens",
                               "2000", "--ignore-eos", "--quiet"], env=ENVIRONMENT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(1)
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGPIPE)


class Leftovers(unittest.TestCase):
    def test_the_folder_of_a_killed_server_goes_at_the_next_start(self):
        with tempfile.TemporaryDirectory() as temporary:
            environment = {"TMPDIR": temporary}
            with serve(environment=environment) as killed, serve(environment=environment) as lives:
                folder = lambda server: Path(server.start["engine"][0].removeprefix("ipc://")).parent
                self.assertEqual({*Path(temporary).iterdir()}, {folder(killed), folder(lives)})
                killed.end(signal.SIGKILL)
                self.assertTrue(folder(killed).exists())
                with serve(environment=environment) as third:
                    self.assertEqual({*Path(temporary).iterdir()}, {folder(lives), folder(third)})
                self.assertEqual(lives.post("/v1/completions", PROMPT)[0], 200)


if __name__ == "__main__":
    unittest.main()
