"""`sluice serve` as a process, and requests to it, for tests.

    with Server(SLUICE, "--model", folder) as server:
        status, headers, body = server.post("/v1/completions", {"prompt": "It was"})
        for event in server.stream("/v1/completions", {"prompt": "It was"}): ...
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
PATIENCE = 120  # seconds, for what comes at once on a quiet machine


class Server:
    """Listens from `with` to its end, at a port of its own."""

    def __init__(self, sluice, *args, environment=None, listens=("--port", "0"), key=None,
                 errors=subprocess.PIPE, command=("serve",)):
        self.process = subprocess.Popen([sluice, *command, *listens, "--json", *args],
                                        env={**ENVIRONMENT, **(environment or {})},
                                        stdout=subprocess.PIPE, stderr=errors)
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1].decode())
        self.start = json.loads(line)
        self.url = self.start["url"]
        self.port = int(self.url.rpartition(":")[2]) if self.url.startswith("http") else None
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate()

    def end(self, number=signal.SIGTERM):
        """Its exit code, and what it wrote on standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=2 * PATIENCE)
        return self.process.returncode, errors.decode()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        """Status, headers, and the body as JSON."""
        status, fields, text = self.ask("POST", path, json.dumps(body),
                                        {"Content-Type": "application/json", **(headers or {})})
        return status, fields, json.loads(text)

    def stream(self, path, body):
        """The data of each event as it comes: JSON, or the text [DONE]. Ends with the response."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json", **self.headers})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                line = line.decode().rstrip("\n")
                if line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    yield data if data == "[DONE]" else json.loads(data)
        finally:
            connection.close()

    def wait_for_health(self, status):
        """Until /health answers so."""
        end = time.monotonic() + PATIENCE
        while self.get("/health")[0] != status:
            assert time.monotonic() < end, f"/health is not {status}"
            time.sleep(0.02)

    def wait_until_it_refuses(self):
        """Until nobody listens any more."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
            except OSError:
                return
            assert time.monotonic() < end, "it still listens"
            time.sleep(0.02)


def text_of(events):
    """The text of a stream's first choice."""
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or ""
                   for event in events if event != "[DONE]" for choice in event["choices"])


@contextmanager
def writing(sluice, text, template, *flags):
    """A server with this chat template, of an engine that gives each request this text."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "script").write_text(text, encoding="utf-8")
        endpoint = f"ipc://{folder}/engine"
        engine = subprocess.Popen([sluice, "mock-engine", "--listen", endpoint, "--quiet",
                                   "--burst", "3", "--rate", "200", "--script",
                                   f"{folder}/script"], stdout=subprocess.DEVNULL)
        try:
            with Server(sluice, "--engine", endpoint, "--chat-template", str(template),
                        *flags) as server:
                yield server
        finally:
            engine.kill()
            engine.wait()
