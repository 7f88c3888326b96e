"""`python -m sluice --version --json` is the report of the library, with what Python adds."""

import json
import platform
import subprocess
import sys
import types
from importlib import metadata

import numpy as np
import pytest

import sluice
from sluice import __main__ as command


def run(*words, code=None):
    program = ["-c", code] if code else ["-m", "sluice"]
    return subprocess.run([sys.executable, *program, *words], capture_output=True, encoding="utf-8", timeout=120)


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"sluice {sluice.__version__}\n"
    try:
        assert metadata.version("sluice-llm") == sluice.__version__
    except metadata.PackageNotFoundError:
        pass  # the package of a build


@pytest.mark.parametrize("words", [("--version", "--json"), ("--json", "--version")])
def test_the_report_is_that_of_the_library_and_of_python(words):
    result = run(*words)
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    for name, value in json.loads(sluice._sluice.build_report()).items():
        assert report.pop(name) == value, name
    assert report == {
        "python": platform.python_version(),
        "parts": {"text": hasattr(sluice, "Tokenizer"), "engines": hasattr(sluice, "EngineClient")},
        "packages": {name: command.installed(name) for name in command.REPORTED},
    }
    assert report["packages"]["numpy"] == np.__version__


def test_a_report_imports_no_torch():
    code = ("import sys; from sluice import __main__ as command; command.report();"
            "print(sorted({'torch', 'vllm', 'sglang', 'transformers'} & set(sys.modules)))")
    assert run(code=code).stdout == "[]\n"


def test_the_command_of_this_package_goes_first(tmp_path, monkeypatch):
    for folder in ("scripts", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sluice").write_text("#!/bin/sh\n")
        (tmp_path / folder / "sluice").chmod(0o755)
    own = types.SimpleNamespace(name="sluice", locate=lambda: tmp_path / "scripts/sluice")
    monkeypatch.setattr(command.metadata, "files", lambda package: [own] if package == "sluice-llm" else [])
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert command.command() == str(tmp_path / "scripts/sluice")
    (tmp_path / "scripts/sluice").unlink()
    assert command.command() == str(tmp_path / "path/sluice")
    (tmp_path / "path/sluice").unlink()
    monkeypatch.setattr(sys, "argv", ["sluice", "generate"])
    with pytest.raises(SystemExit, match="no command sluice next to this Python or on the PATH"):
        command.main()
