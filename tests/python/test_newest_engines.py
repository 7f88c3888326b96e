"""Whether the newest vLLM and SGLang still have the functions that the plug-ins replace.

    SLUICE_NEWEST_ENGINES=1 python -m pytest -q tests/python/test_newest_engines.py

Downloads their newest wheels, some 700 MB, and lists every function that differs. Without the
variable it is skipped: a new release of an engine is no fault of this tree.
"""

import os
import subprocess
import sys

import peers
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from sluice.plugins import sglang, vllm  # noqa: E402

pytestmark = pytest.mark.skipif(not os.environ.get("SLUICE_NEWEST_ENGINES"),
                                reason="SLUICE_NEWEST_ENGINES is not set")


def newest(name, folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary",
                    ":all:", "--python-version", "3.12", "--platform", "manylinux_2_28_x86_64",
                    "--platform", "manylinux_2_31_x86_64", "--platform", "manylinux_2_34_x86_64",
                    "-d", str(folder), name], check=True)
    wheel = next(folder.glob(f"{name}-*.whl"))
    return peers.Sources(name, wheel.name.split("-")[1], wheel)


def functions_of(name):
    """(module, path, parameters) of all that a plug-in replaces or calls."""
    if name == "sglang":
        return [("sglang.srt.layers.sampler", f"Sampler.{method}", parameters)
                for method, parameters in sglang._METHODS.items()]
    return [(seam.module, seam.path, seam.parameters) for seam in list(vllm.KNOWN.values())[-1]]


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_newest_wheel_has_the_same_functions(name, tmp_path):
    sources = newest(name, tmp_path)
    different = []
    for module, path, expected in functions_of(name):
        try:
            found = sources.parameters(module, path)
        except (KeyError, OSError):
            found = None
        if found != expected:
            different.append(f"{module}.{path}: {', '.join(found) if found else 'not there'}; "
                             f"expected {', '.join(expected)}")
    is_known = (sglang.is_known if name == "sglang" else vllm.seams_of)(sources.version)
    assert not different, f"{sources} differs:\n" + "\n".join(different)
    assert is_known, f"{sources} has the same functions and is not listed in the plug-in"
