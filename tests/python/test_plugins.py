"""What of the plug-ins needs no engine: they are found, and nobody pays for them who has none."""

import importlib.metadata
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
        importlib.metadata.version("sluice")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sluice is not installed here, so it has no entry points")
    found = importlib.metadata.entry_points(group=group, name="sluice")
    assert [point.value for point in found] == [POINTS[group]]


@pytest.mark.parametrize("group", POINTS)
def test_an_entry_point_loads_without_its_engine(group):
    pytest.importorskip("torch", reason="torch is not installed")
    module, name = POINTS[group].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert group.split(".")[0] not in sys.modules


def test_the_package_imports_no_engine():
    code = ("import sys, sluice; "
            "print(sorted({'torch', 'transformers', 'vllm', 'sglang'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
