#!/usr/bin/env python3
"""The package as a user gets it: a wheel, installed into an empty virtual environment.

    wheel.py build ROOT WORK     builds the wheel and the environment below WORK
    wheel.py pytest ROOT WORK    runs the tests of the package there
    wheel.py sample ROOT WORK    runs the examples there
    wheel.py plugins ROOT WORK   runs the tests inside other engines, where their packages are
    wheel.py vllm ROOT WORK      runs the plug-in in a whole vLLM, where one for a CPU is

With the program sluice on the PATH, also those that start an engine.

Exit code 77, after a line that says why, when a package that this takes is not there;
scripts/setup.sh python installs them. Nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def skip(work, reason):
    (work / "skipped").write_text(reason + "\n", encoding="utf-8")
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def run(*command, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", **variables}
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment).returncode


def must(*command, cwd, **variables):
    if run(*command, cwd=cwd, **variables) != 0:
        sys.exit(1)


def build(root, work):
    shutil.rmtree(work / "venv", ignore_errors=True)
    shutil.rmtree(work / "dist", ignore_errors=True)
    (work / "skipped").unlink(missing_ok=True)
    python = root / "build" / "python-venv" / "bin" / "python"
    downloads = root / "build" / "python-wheels"
    needed = "import nanobind, numpy, pytest, scikit_build_core"
    if not python.exists() or not downloads.exists():
        skip(work, "build/python-venv is not there; scripts/setup.sh python makes it")
    if run(python, "-c", needed, cwd=work) != 0:
        skip(work, "build/python-venv lacks packages; scripts/setup.sh python installs them")
    if run(python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))", cwd=work) != 0:
        skip(work, "the package is for Python 3.11 and newer")
    must(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
         "-Ccmake.define.SLUICE_CUDA=OFF",  # its tests need a device, and nvcc takes minutes
         f"-Cbuild-dir={work / 'build'}", "-w", work / "dist", root, cwd=work)
    must(python, "-m", "venv", work / "venv", cwd=work)
    wheels = sorted((work / "dist").glob("*.whl"))
    assert len(wheels) == 1, wheels
    must(work / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links",
         downloads, wheels[0], "pytest", "ml_dtypes", "jinja2", cwd=work)
    must(work / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps",
         "--find-links", downloads, "tokenizers", cwd=work)


def plugins(root, work):
    """In the environment with torch, which stays as it is: the wheel goes into a folder beside."""
    python = root / "build" / "plugin-venv" / "bin" / "python"
    if not python.exists():
        print("skipped: build/plugin-venv is not there; scripts/setup.sh plugins makes it (6 GB)")
        sys.exit(SKIPPED)
    package = work / "plugins"
    shutil.rmtree(package, ignore_errors=True)
    must(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", package,
         *sorted((work / "dist").glob("*.whl")), cwd=work)
    tests = [root / "tests/python" / f"test_{name}.py"
             for name in ("torch", "hf", "plugins", "plugin_vllm", "plugin_sglang", "end_to_end",
                          "vllm_sampler", "engine_vllm")]
    must(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests, cwd=work,
         PYTHONPATH=str(package), SLUICE_PEER_WHEELS=str(root / "build/plugin-wheels"))


def vllm(root, work):
    """The plug-in in a whole vLLM, whose environment stays as it is."""
    python = root / "build" / "vllm-venv" / "bin" / "python"
    if not python.exists():
        print("skipped: build/vllm-venv is not there; scripts/setup.sh vllm makes it (8 GB)")
        sys.exit(SKIPPED)
    package = work / "vllm"
    shutil.rmtree(package, ignore_errors=True)
    must(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", package,
         *sorted((work / "dist").glob("*.whl")), cwd=work)
    must(python, root / "tests/python/whole_vllm.py", cwd=work, PYTHONPATH=str(package))


def main():
    what, root, work = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if what == "build":
        build(root, work)
        return
    if (work / "skipped").exists():
        skip(work, (work / "skipped").read_text(encoding="utf-8").strip())
    if what in ("plugins", "vllm"):
        {"plugins": plugins, "vllm": vllm}[what](root, work)
        return
    python = work / "venv" / "bin" / "python"
    if what == "pytest":
        must(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", root / "tests/python",
             cwd=work)
    else:
        for name in ("sample", "numpy_rows", "certified_head"):
            must(python, root / f"examples/python/{name}.py", cwd=work)
        has_engine = "import sluice, sys; sys.exit(not hasattr(sluice, 'EngineClient'))"
        if run(python, "-c", has_engine, cwd=work) == 0:
            must(python, root / "examples/python/engine.py", cwd=work)


if __name__ == "__main__":
    main()
