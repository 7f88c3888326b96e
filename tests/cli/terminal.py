"""A command whose standard output is a terminal."""

import os
import pty
import subprocess


def run_on_terminal(command, environment, **options):
    """Its exit code and what it wrote."""
    master, slave = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=slave, stdin=subprocess.DEVNULL,
                          **options) as process:
        os.close(slave)
        output = b""
        try:
            while chunk := os.read(master, 1 << 16):
                output += chunk
        except OSError:  # how Linux says that the other end has closed
            pass
        os.close(master)
    return process.returncode, output.decode("utf-8", "replace")
