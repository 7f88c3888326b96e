#!/usr/bin/env python3
"""packaging/ says what the program takes and needs, as far as that shows without a container and a
running systemd.

Usage: packaging_test.py SLUICE ROOT.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import served

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
PACKAGING = ROOT / "packaging"
CONTAINER = re.sub(r"\\\n", "", (PACKAGING / "Containerfile").read_text())
UNIT = (PACKAGING / "sluice.service").read_text()
HAS_BUILT_IN_MODEL = subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode == 0


def values(name):
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def check(flags, environment=None):
    """sluice serve --check with these flags, but at a port that is free."""
    flags = ["0" if before == "--port" else flag for before, flag in zip(["", *flags], flags)]
    return subprocess.run([SLUICE, "serve", "--check", *flags], capture_output=True, timeout=60,
                          env={**served.ENVIRONMENT, **(environment or {})})


def variables(text):
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


class Unit(unittest.TestCase):
    @unittest.skipUnless(HAS_BUILT_IN_MODEL, "this build has no built-in model")
    def test_its_flags_are_those_of_the_program(self):
        environment = variables((PACKAGING / "serve.env").read_text())
        program, command, *flags = values("ExecStart")[0].split()
        self.assertEqual((Path(program).name, command), ("sluice", "serve"))
        words = [word for flag in flags
                 for word in (environment[flag[1:]].split() if flag[0] == "$" else [flag])]
        self.assertTrue(words)
        result = check(words)
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_the_lines_to_be_uncommented_name_what_the_program_reads(self):
        text = re.sub(r"^#(?=SLUICE)", "", (PACKAGING / "serve.env").read_text(), flags=re.MULTILINE)
        self.assertEqual(set(variables(text)),
                         {"SLUICE_SERVE_FLAGS", "SLUICE_MODEL", "SLUICE_API_KEY"})
        help_text = subprocess.run([SLUICE, "serve", "--help"], capture_output=True).stdout.decode()
        for name in ("SLUICE_MODEL", "SLUICE_API_KEY"):
            self.assertIn(name, help_text)

    def test_a_stop_leaves_time_for_what_is_in_flight(self):
        help_text = subprocess.run([SLUICE, "serve", "--help"], capture_output=True).stdout.decode()
        drain = int(re.search(r"--drain-timeout INT \[(\d+)\]", help_text)[1])
        engine = 2  # what it gets to end, too
        self.assertGreater(int(values("TimeoutStopSec")[0]), drain + engine)
        self.assertEqual(values("KillMode"), ["mixed"])

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_understands_it(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "sluice.service"
            unit.write_text(UNIT.replace(values("ExecStart")[0].split()[0], SLUICE))
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)],
                                    capture_output=True, encoding="utf-8", timeout=60)
        said = [line for line in (result.stdout + result.stderr).splitlines() if "sluice" in line]
        self.assertEqual(said, [])

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_its_filter_has_the_calls_that_an_engine_of_its_own_takes(self):
        groups, calls = values("SystemCallFilter")[0].split() + ["@default"], set()
        while groups:
            listed = subprocess.run(["systemd-analyze", "syscall-filter", groups.pop()],
                                    capture_output=True, encoding="utf-8", timeout=60)
            if listed.returncode != 0:
                self.skipTest(listed.stderr)
            names = [line.split()[0] for line in listed.stdout.splitlines()[1:] if line.split()]
            calls |= set(names)
            groups += [name for name in names if name.startswith("@")]
        needed = {"clone", "close_range", "epoll_pwait", "eventfd2", "execve", "pidfd_open", "prctl",
                  "setpgid", "waitid"}
        self.assertEqual(needed - calls, set())


class Container(unittest.TestCase):
    def test_it_is_made_of_debian_alone(self):
        self.assertEqual(re.findall(r"^FROM (\S+)", CONTAINER, re.MULTILINE),
                         ["debian:12", "debian:12-slim"])

    def test_it_is_run_by_nobody_special(self):
        run_stage = CONTAINER.rpartition("FROM ")[2]
        user = re.search(r"^USER (\S+)$", run_stage, re.MULTILINE)[1]
        self.assertIn(f"useradd --system --no-create-home --shell /usr/sbin/nologin {user}",
                      run_stage)
        self.assertLess(run_stage.index("USER"), run_stage.index("ENTRYPOINT"))

    def test_what_it_copies_is_there(self):
        for paths in re.findall(r"^COPY (?!--from)(.*)$", CONTAINER, re.MULTILINE):
            for path in paths.split()[:-1]:
                self.assertTrue((ROOT / path).exists(), path)

    @unittest.skipUnless(shutil.which("dpkg-query") and shutil.which("ldd"), "this is not Debian")
    def test_it_has_the_libraries_of_the_program(self):
        if 'VERSION_ID="12"' not in Path("/etc/os-release").read_text():
            self.skipTest("not the Debian of the container")
        code = Path(SLUICE).read_bytes()
        if b"__asan_init" in code or b"__tsan_init" in code:
            self.skipTest("a program with a sanitizer inside needs more")
        listed = subprocess.run(["ldd", SLUICE], capture_output=True, encoding="utf-8").stdout
        # Those that the program itself names; the others come with them.
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(
            ["readelf", "-d", SLUICE], capture_output=True, encoding="utf-8").stdout)
        packages = set()
        for name in needed:
            path = re.search(rf"{re.escape(name)} => (\S+)", listed)
            if path is None:
                continue  # the loader
            file = str(Path(path[1]).resolve())  # /lib is /usr/lib, which not all packages know
            found = subprocess.run(["dpkg-query", "--search", file, file.removeprefix("/usr")],
                                   capture_output=True, encoding="utf-8").stdout
            packages.add(found.partition(":")[0])
        install = re.search(r"--no-install-recommends([^&]*)", CONTAINER.rpartition("FROM ")[2])[1]
        self.assertEqual(packages - {"libc6", "libgcc-s1"}, set(install.split()))

    @unittest.skipUnless(HAS_BUILT_IN_MODEL, "this build has no built-in model")
    def test_its_command_line_is_one_of_the_program(self):
        entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", CONTAINER, re.MULTILINE)[1])
        self.assertEqual(entry[:2], ["sluice", "serve"])
        result = check(entry[2:])
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        port = entry[entry.index("--port") + 1]
        self.assertIn(f"EXPOSE {port}\n", CONTAINER)

    @unittest.skipUnless(HAS_BUILT_IN_MODEL and shutil.which("bash"), "no built-in model, or no bash")
    def test_its_health_check_sees_a_server_and_that_there_is_none(self):
        command = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", CONTAINER, re.MULTILINE)[1]
        words = json.loads(command)
        self.assertIn("/dev/tcp/127.0.0.1/8080", words[-1])

        def code(port):
            here = [word.replace("127.0.0.1/8080", f"127.0.0.1/{port}") for word in words]
            return subprocess.run(here, capture_output=True, timeout=180).returncode
        with served.Server(SLUICE) as server:
            self.assertEqual(code(server.port), 0)
            server.end()
            self.assertNotEqual(code(server.port), 0)


if __name__ == "__main__":
    unittest.main()
