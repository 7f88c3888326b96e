#!/usr/bin/env python3
"""sluice serve --tls-cert --tls-key: clients, peers that speak no TLS or none to its end, and SIGHUP.

Usage: serve_tls_test.py SLUICE ROOT. Exit code 77: skipped, without the command openssl or in a build
without TLS.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import served
from served import ENVIRONMENT, PATIENCE

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
FOLDER = tempfile.TemporaryDirectory()
HELLOS = 300
HELLO_KIB = 128  # of memory that a handshake may hold; 47 were measured


def certificate(name, *key):
    """The paths of a certificate for localhost that signed itself, and of its key."""
    cert, its_key = (str(Path(FOLDER.name) / f"{name}.{end}") for end in ("cert", "key"))
    subprocess.run(
        ["openssl", "req", "-x509", *(key or ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")),
         "-nodes", "-keyout", its_key, "-out", cert, "-subj", f"/CN={name}", "-days", "2",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    return cert, its_key


class TlsServer(served.Server):
    """Trusts `cert` of this test alone."""

    def __init__(self, cert, key, *args, **options):
        super().__init__(SLUICE, "--tls-cert", cert, "--tls-key", key, *args, **options)
        self.trusted = cert

    def context(self):
        return ssl.create_default_context(cafile=self.trusted)

    def connect(self):
        return http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE, context=self.context())

    def raw(self, *sent):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        for bytes_ in sent:
            peer.sendall(bytes_)
        return peer

    def subject(self):
        with self.context().wrap_socket(self.raw(), server_hostname="localhost") as peer:
            return dict(part[0] for part in peer.getpeercert()["subject"])["commonName"]


def hello(context):
    """The first message of a client, as bytes."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(into, out, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("a handshake without a server")


def to_the_end(peer):
    """What comes until the server closes or resets."""
    got = b""
    try:
        while chunk := peer.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    peer.close()
    return got


def resident_kib(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def text_of(events):
    return "".join(event["choices"][0]["text"] for event in events if event != "[DONE]")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pair = certificate("first")

    def test_clients_get_what_they_get_without_tls(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8, "seed": 3}
        with served.Server(SLUICE) as plain:
            expected = plain.post("/v1/completions", body)[2]["choices"]
            streamed = list(plain.stream("/v1/completions", {**body, "stream": True}))
        with TlsServer(*self.pair) as server:
            self.assertEqual(server.url, f"https://127.0.0.1:{server.port}")
            self.assertEqual(server.post("/v1/completions", body)[2]["choices"], expected)
            events = list(server.stream("/v1/completions", {**body, "stream": True}))
            self.assertEqual(text_of(events), text_of(streamed))
            self.assertEqual(events[-1], "[DONE]")
            # Bodies of many records both ways, on a connection that stays.
            connection = server.connect()
            text = "a long tale. " * 60_000
            for _ in range(2):
                connection.request("POST", "/tokenize", json.dumps({"prompt": text}),
                                   {"Content-Type": "application/json"})
                ids = json.loads(connection.getresponse().read())["tokens"]
                connection.request("POST", "/detokenize", json.dumps({"tokens": ids}),
                                   {"Content-Type": "application/json"})
                self.assertEqual(json.loads(connection.getresponse().read())["prompt"], text)
            connection.close()

    def test_curl_is_a_client(self):
        if shutil.which("curl") is None:
            self.skipTest("there is no curl")
        with TlsServer(*self.pair) as server:
            got = subprocess.run(
                ["curl", "--silent", "--show-error", "--noproxy", "*", "--cacert", self.pair[0],
                 "--write-out", " %{http_version} %{http_code}", f"https://localhost:{server.port}/health"],
                capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE)
            self.assertEqual(got.stdout, '{"status":"ok"} 1.1 200', got.stderr)

    def test_versions_and_protocols(self):
        with TlsServer(*self.pair) as server:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = server.context()
                context.minimum_version = context.maximum_version = version
                context.set_alpn_protocols(["h2", "http/1.1"])
                with context.wrap_socket(server.raw(), server_hostname="localhost") as peer:
                    self.assertEqual(peer.selected_alpn_protocol(), "http/1.1")
                    peer.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    self.assertIn(b"200 OK", to_the_end(peer))
            context = server.context()
            context.set_alpn_protocols(["h2"])
            with self.assertRaises(ssl.SSLError):
                with context.wrap_socket(server.raw(), server_hostname="localhost") as peer:
                    peer.read()

    def test_a_client_without_tls_reads_a_sentence(self):
        with TlsServer(*self.pair) as server:
            connection = http.client.HTTPConnection("localhost", server.port, timeout=PATIENCE)
            connection.request("POST", "/v1/completions", b"{}" * 100_000)
            response = connection.getresponse()
            self.assertEqual(response.status, 400)
            self.assertEqual(json.loads(response.read())["error"]["message"],
                             "this port takes TLS alone: the URL begins with https://")
            self.assertEqual(server.get("/health")[0], 200)

    def test_a_broken_handshake_ends_its_connection_alone(self):
        with TlsServer(*self.pair) as server:
            good = hello(server.context())
            # A message that says it has 100 KB is refused before there is room for them.
            record, length = b"\x16\x03\x01\x40\x00", (100_000).to_bytes(3, "big")
            for sent in (b"\x16", b"\x16\x03\x01\xff\xff", b"\x16" * 2000, good[:-1] + b"\xff" * 2000,
                         record + b"\x01" + length, good + b"GET / HTTP/1.1\r\n\r\n"):
                peer = server.raw(sent)
                peer.shutdown(socket.SHUT_WR)
                self.assertNotIn(b"HTTP", to_the_end(peer))
            peer = server.raw(record + b"\x01" + length)  # which waits for nothing more
            to_the_end(peer)
            self.assertEqual(server.get("/health")[0], 200)
            lines = server.get("/metrics")[2].decode().splitlines()
            count = next(line for line in lines if line.startswith("sluice_http_malformed_total "))
            self.assertEqual(int(count.split()[1]), 7)

    def test_slow_handshakes_hold_up_nothing_and_end(self):
        with TlsServer(*self.pair) as server:
            server.get("/health")
            first = hello(server.context())
            before = resident_kib(server.process.pid)
            peers = [server.raw(first[:len(first) // 2]) for _ in range(HELLOS)]
            silent = [server.raw() for _ in range(20)]
            self.assertEqual(server.get("/health")[0], 200)
            if "san" not in Path(SLUICE).parent.name:  # sanitizers have memory of their own
                grown = resident_kib(server.process.pid) - before
                self.assertLess(grown, HELLOS * HELLO_KIB)
            # They have the time of a head, 10 s, and not more for each byte.
            for peer in peers + silent:
                to_the_end(peer)
            self.assertEqual(server.get("/health")[0], 200)

    def test_a_hangup_reads_the_certificate_again(self):
        files = [str(Path(FOLDER.name) / name) for name in ("used.cert", "used.key")]

        def use(pair):
            for path, its in zip(files, pair):
                shutil.copy(its, path)

        use(self.pair)
        second = certificate("second", "-newkey", "rsa:2048")
        with TlsServer(*files, errors=subprocess.PIPE) as server:
            server.trusted = self.pair[0]
            self.assertEqual(server.subject(), "first")
            old = server.connect()
            old.request("GET", "/health")
            old.getresponse().read()
            use(second)
            server.trusted = second[0]
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    self.assertEqual(server.subject(), "second")
                    break
                except ssl.SSLError:
                    self.assertLess(time.monotonic(), end)
            old.request("GET", "/health")  # a connection stays what it was
            self.assertEqual(old.getresponse().status, 200)
            old.close()
            # What cannot be used changes nothing; what may never come is not waited for.
            use((second[0], self.pair[1]))
            server.process.send_signal(signal.SIGHUP)
            self.assertIn("the certificate stays what it was", self.line_with(server, "certificate stays"))
            self.assertEqual(server.subject(), "second")
            os.unlink(files[1])
            os.mkfifo(files[1])
            server.process.send_signal(signal.SIGHUP)
            self.assertIn("no regular file", self.line_with(server, "certificate stays"))
            self.assertEqual(server.subject(), "second")
            self.assertEqual(server.end()[0], 0)

    def line_with(self, server, text):
        for line in iter(server.process.stderr.readline, b""):
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"no line has {text!r}")

    def test_says_what_is_wrong_with_the_files(self):
        def said(*flags):
            got = subprocess.run([SLUICE, "serve", "--port", "0", *flags], env=ENVIRONMENT, text=True,
                                 capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
            self.assertNotEqual(got.returncode, 0)
            return got.stderr

        cert, key = self.pair
        other = certificate("other")[1]
        locked = str(Path(FOLDER.name) / "locked.key")
        subprocess.run(["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked],
                       check=True, capture_output=True)
        self.assertIn("--tls-cert needs --tls-key", said("--tls-cert", cert))
        self.assertIn("key values mismatch", said("--tls-cert", cert, "--tls-key", other))
        self.assertIn("not encrypted", said("--tls-cert", cert, "--tls-key", locked))
        self.assertIn("--tls-cert = what it has", said("--tls-cert", key, "--tls-key", key))
        self.assertIn("no such file", said("--tls-cert", "/nowhere", "--tls-key", key))


def has_tls():
    cert, key = certificate("probe")
    got = subprocess.run([SLUICE, "serve", "--check", "--port", "0", "--tls-cert", cert, "--tls-key", key],
                         env=ENVIRONMENT, capture_output=True, text=True)
    return "OpenSSL was not found" not in got.stderr


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: there is no command openssl")
        sys.exit(77)
    if not has_tls():
        print("skipped: this build has no TLS")
        sys.exit(77)
    unittest.main()
