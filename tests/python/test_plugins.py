"""What of the plug-ins needs no engine: they are found, and nobody pays for them who has none."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

POINTS = {
    "vllm.general_plugins": "sluice.plugins.vllm:register",
    "sglang.srt.plugins": "sluice.plugins.sglang:register",
}
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("group", POINTS)
def test_engines_find_their_entry_points(group):
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][group] == {"sluice": POINTS[group]}
    try:
        importlib.metadata.version("sluice-llm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sluice-llm is not installed here, so it has no entry points")
    found = importlib.metadata.entry_points(group=group, name="sluice")
    assert [point.value for point in found] == [POINTS[group]]


@pytest.mark.parametrize("group", POINTS)
def test_an_entry_point_loads_without_its_engine(group):
    pytest.importorskip("torch", reason="torch is not installed")
    module, name = POINTS[group].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert group.split(".")[0] not in sys.modules


def test_the_extras_allow_the_versions_that_the_plug_ins_know():
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    sources = PROJECT.parent / "python/sluice/plugins"
    known = re.findall(r'^    "(0\.\d+)": _seams', (sources / "vllm.py").read_text(), re.MULTILINE)
    assert extras["vllm"] == [f"vllm>={known[0]},<0.{int(known[-1].split('.')[1]) + 1}"]
    line = re.search(r"^KNOWN = \((.*)\)$", (sources / "sglang.py").read_text(), re.MULTILINE)[1]
    first, *_, last = re.findall(r'"([\d.]+)"', line)
    major, minor, patch = last.split(".")
    assert extras["sglang"] == [f"sglang>={first},<{major}.{minor}.{int(patch) + 1}"]


def run_module(path, *words):
    return subprocess.run([sys.executable, "-m", "sluice", *words], capture_output=True, encoding="utf-8",
                          env={**os.environ, "PATH": str(path)})


def test_the_module_runs_the_command_on_the_path(tmp_path):
    program = tmp_path / "sluice"
    program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n")
    program.chmod(0o755)
    result = run_module(tmp_path, "generate", "two words")
    assert (result.returncode, result.stdout) == (7, "<generate><two words>")


def test_the_module_says_where_the_command_comes_from(tmp_path):
    result = run_module(tmp_path, "generate")
    assert result.returncode == 1
    assert result.stderr.startswith("sluice: no command sluice next to this Python or on the PATH: ")


def test_the_package_imports_no_engine():
    code = ("import sys, sluice; "
            "print(sorted({'torch', 'transformers', 'vllm', 'sglang'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
