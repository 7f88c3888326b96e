#!/usr/bin/env python3
"""The package as a user gets it: a wheel, installed into an empty virtual environment.

    wheel.py build ROOT WORK PACKAGE     builds the wheel and the environment below WORK
    wheel.py pytest ROOT WORK PACKAGE    runs the tests of the package on PACKAGE, that of a build
    wheel.py sample ROOT WORK PACKAGE    runs the examples there, and the tests of what is installed
    wheel.py plugins ROOT WORK PACKAGE   runs the tests inside other engines, where their packages are
    wheel.py vllm ROOT WORK PACKAGE      runs the plug-in in a whole vLLM, where one for a CPU is

With the program sluice on the PATH, also those that start an engine.

Exit code 77, after a line that says why, when a package that this takes is not there;
scripts/setup.sh python installs them. Nothing is downloaded.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

SKIPPED = 77
MOST_OBJECTS = 125


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


def lacking(root, work):
    """Why the tests cannot run here; nothing where they can."""
    python = root / "build" / "python-venv" / "bin" / "python"
    if not python.exists() or not (root / "build" / "python-wheels").exists():
        return "build/python-venv is not there; scripts/setup.sh python makes it"
    needed = "import nanobind, numpy, pytest, scikit_build_core"
    if run(python, "-c", needed, cwd=work) != 0:
        return "build/python-venv lacks packages; scripts/setup.sh python installs them"
    if run(python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))", cwd=work) != 0:
        return "the package is for Python 3.11 and newer"
    return ""


def check_objects(build):
    """Half the files that it was before: a part that the extension does not need is not compiled."""
    made = set(re.findall(r"^build (\S+\.o):", (build / "build.ninja").read_text(), re.MULTILINE))  # not those of an older tree
    objects = sorted(name for name in made if (build / name).exists())
    print(f"{len(objects)} objects were compiled")
    assert len(objects) <= MOST_OBJECTS, objects


def check_files(wheel, root):
    """python.pytest ran on the files of this source: the wheel has them, and the extension."""
    source = root / "python"
    written = {path.relative_to(source).as_posix(): path for path in (source / "sluice").rglob("*")
               if path.suffix == ".py" or path.name == "py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        made = sorted(packed - written.keys())
        assert not written.keys() - packed, f"the wheel lacks {sorted(written.keys() - packed)}"
        assert len(made) == 2 and made[0].endswith(".so") and made[1] == "sluice/_sluice.pyi", made
        for name, path in written.items():
            assert archive.read(name) == path.read_bytes(), name


def build(root, work):
    shutil.rmtree(work / "venv", ignore_errors=True)
    shutil.rmtree(work / "dist", ignore_errors=True)
    (work / "skipped").unlink(missing_ok=True)
    reason = lacking(root, work)
    if reason:
        skip(work, reason)
    python = root / "build" / "python-venv" / "bin" / "python"
    downloads = root / "build" / "python-wheels"
    must(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
         "-Ccmake.define.SLUICE_CUDA=OFF",  # its tests need a device, and nvcc takes minutes
         f"-Cbuild-dir={work / 'build'}", "-w", work / "dist", root, cwd=work)
    must(python, "-m", "venv", work / "venv", cwd=work)
    wheels = sorted((work / "dist").glob("*.whl"))
    assert len(wheels) == 1, wheels
    check_files(wheels[0], root)
    check_objects(work / "build")
    must(work / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links",
         downloads, wheels[0], "pytest", "ml_dtypes", "jinja2", cwd=work)
    must(work / "venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps",
         "--find-links", downloads, "tokenizers", cwd=work)


def pytest(root, work, package):
    reason = lacking(root, work)
    if not reason and not list((package / "sluice").glob("_sluice*.so")):
        reason = "this build has no package; configure it with -DSLUICE_PYTHON=ON"
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    # Not reference_*_test.py, which python.reference runs.
    must(root / "build" / "python-venv" / "bin" / "python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
         "-o", "python_files=test_*.py", root / "tests/python", cwd=work, PYTHONPATH=str(package))


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
    what, (root, work, package) = sys.argv[1], (Path(path).resolve() for path in sys.argv[2:])
    work.mkdir(parents=True, exist_ok=True)
    if what == "pytest":
        pytest(root, work, package)
        return
    if what == "build":
        build(root, work)
        return
    if (work / "skipped").exists():
        skip(work, (work / "skipped").read_text(encoding="utf-8").strip())
    if what in ("plugins", "vllm"):
        {"plugins": plugins, "vllm": vllm}[what](root, work)
        return
    python = work / "venv" / "bin" / "python"
    # What an installed package alone has: entry points.
    must(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
         root / "tests/python/test_plugins.py", cwd=work)
    for name in ("sample", "numpy_rows", "certified_head"):
        must(python, root / f"examples/python/{name}.py", cwd=work)
    has_engine = "import sluice, sys; sys.exit(not hasattr(sluice, 'EngineClient'))"
    if run(python, "-c", has_engine, cwd=work) == 0:
        must(python, root / "examples/python/engine.py", cwd=work)


if __name__ == "__main__":
    main()
