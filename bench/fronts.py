"""Front ends of an engine as processes of this machine: start, readiness, CPU time, end."""

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

# Processes of a front's session that are front ends, too: its Rust program, and the servers of
# `--api-server-count`.
_FRONT_PROCESS = re.compile(r"(^|/)vllm-rs\b|^VLLM::APIServer|^ApiServer")
_END_SECONDS = 15


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _stat(pid):
    """The fields after a process's name: state, parent, group, session, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


class Front:
    """A front and, where that is a process of its own, its engine."""

    def __init__(self, name, port, log):
        self.name, self.port, self.log = name, port, Path(log)
        self.ready_after = None
        self.processes = []  # the front first; each leads a session

    def start(self, commands, environment):
        """Command lines, each with variables of its own."""
        self._begin = time.monotonic()
        with self.log.open("wb") as file:
            for command, extra in commands:
                self.processes.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                    start_new_session=True, env={**os.environ, **environment, **extra}))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait(self, seconds):
        """Until it is healthy. Why it is not, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for process in self.processes:
                if process.poll() is not None:
                    return f"a process ended with {process.returncode}"
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=2):
                    self.ready_after = time.monotonic() - self._begin
                    return None
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        return f"not ready within {seconds:.0f} s"

    def tail(self, lines=12):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _front_processes(self):
        leader = self.processes[0].pid
        yield leader
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == leader:
                continue
            try:
                if int(_stat(entry.name)[3]) != leader:
                    continue
                title = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
                if _FRONT_PROCESS.search(title):
                    yield int(entry.name)
            except (OSError, IndexError):
                continue  # it has ended

    def cpu_seconds(self):
        """Of the front alone: its engine's processes do not count."""
        total = 0
        for pid in self._front_processes():
            try:
                # The process's own clock: /proc has hundredths of a second.
                total += time.clock_gettime(~pid << 3 | 2)
            except OSError:
                continue
        return total

    def resident_mb(self):
        total = 0
        for pid in self._front_processes():
            try:
                found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                total += int(found.group(1)) if found else 0
            except OSError:
                continue
        return total / 1024

    def signal(self, number):
        for process in self.processes:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass


def end(fronts):
    """All of them at once, as each may take seconds."""
    for front in fronts:
        front.signal(signal.SIGTERM)
    limit = time.monotonic() + _END_SECONDS
    for front in fronts:
        for process in front.processes:
            try:
                process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
    for front in fronts:
        front.signal(signal.SIGKILL)
        for process in front.processes:
            process.wait()
