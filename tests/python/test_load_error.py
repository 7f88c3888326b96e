"""A package that does not load says why and what to do, in one sentence."""

import os
import platform
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import sluice
from sluice import __main__ as command
from sluice import load_error

PACKAGE = Path(sluice.__file__).parent


@pytest.fixture
def copy(tmp_path):
    """The package without its extension's content, and the path that this has."""
    shutil.copytree(PACKAGE, tmp_path / "sluice", ignore=shutil.ignore_patterns("__pycache__"))
    extension, = (tmp_path / "sluice").glob("_sluice*.so")
    return extension


def refusal(extension):
    """The last line of a failed import."""
    result = subprocess.run([sys.executable, "-c", "import sluice"], capture_output=True, encoding="utf-8", timeout=120,
                            cwd=extension.parent.parent, env={**os.environ, "PYTHONPATH": str(extension.parent.parent)})
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: "), result.stderr
    return last.removeprefix("ImportError: ")


def patch(extension, was, now):
    data = extension.read_bytes()
    assert was in data
    extension.write_bytes(data.replace(was, now))


def test_another_architecture(copy):
    data = bytearray(copy.read_bytes())
    other, code = ("aarch64", 183) if platform.machine() != "aarch64" else ("x86_64", 62)
    data[18:20] = code.to_bytes(2, "little")
    copy.write_bytes(data)
    assert refusal(copy) == (f"sluice was built for {other} and this is Python {platform.python_version()} on "
                             f"{platform.machine()}: install a wheel for it; {load_error.BUILD}")


def test_another_python(copy):
    copy.rename(copy.with_name("_sluice.cpython-27-x86_64-linux-gnu.so"))
    assert refusal(copy).startswith("sluice was built for another Python (_sluice.cpython-27-x86_64-linux-gnu.so) and this is "
                                    f"Python {platform.python_version()} on {platform.machine()}: install a wheel for it")


def test_an_old_glibc(copy):
    patch(copy, b"GLIBC_2.34\0", b"GLIBC_9.34\0")
    assert refusal(copy).startswith("sluice needs glibc 9.34 or newer and this system has glibc "
                                    f"{os.confstr('CS_GNU_LIBC_VERSION').split()[1]}: take a newer system, or build")


def test_a_library_that_is_missing(copy):
    patch(copy, b"\0libm.so.6\0", b"\0libx.so.6\0")
    assert refusal(copy).startswith("sluice was built with libx.so.6, which this machine does not have: install that library, or "
                                    "a wheel of a release")


def test_a_file_that_is_damaged_or_not_there(copy):
    copy.write_bytes(b"text")
    assert refusal(copy) == f"{copy} is damaged: install sluice again"
    copy.unlink()
    assert refusal(copy) == f"sluice has no extension in {copy.parent}: {load_error.BUILD}"


def test_a_reason_that_is_not_known_is_shown():
    assert "does not load (a b)" in load_error.explain(ImportError("a b"), PACKAGE)


def test_a_command_of_another_machine(tmp_path, monkeypatch):
    program = tmp_path / "sluice"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    monkeypatch.setattr(command, "command", lambda: str(program))
    monkeypatch.setattr(sys, "argv", ["sluice", "demo"])
    with pytest.raises(SystemExit, match=rf"cannot run {program} on {platform.machine()} \(Exec format error\): install the wheel"):
        command.main()


@pytest.mark.parametrize(("problem", "shown"), [("null", "cuda: available\n"), ('"no NVIDIA driver was found"', "cuda: no NVIDIA driver was found\n")])
def test_a_driver_that_does_not_fit_is_shown(monkeypatch, capsys, problem, shown):
    monkeypatch.setattr(sluice._sluice, "build", lambda: {"version": "1", "compiler": "gcc", "cuda": "13.0", "assertions": False})
    report = f'{{"cuda": {{"problem": {problem}}}}}'.encode()  # of a process of its own
    monkeypatch.setattr("subprocess.run", lambda command, **options: types.SimpleNamespace(stdout=report))
    sluice.show_config()
    assert shown in capsys.readouterr().out
