#!/usr/bin/env python3
"""The tables of docs/install.md: presets and options of CMake, and what runs where, from the files that
build, test and measure it. A test compares them.

    scripts/install_tables.py            says which are stale, with exit code 1
    scripts/install_tables.py --write    writes them
"""

import argparse
import json
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

PAGE = "docs/install.md"


class Facts:
    """What the repository says."""

    def __init__(self, root):
        self.root = root
        self.project = tomllib.loads(self.read("pyproject.toml"))["project"]
        self.tests = self.read("tests/all_tests.txt").splitlines()
        self.environments = []
        for file in sorted((root / "bench/results").glob("*.json")):
            report = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(report, dict) and "env" in report:
                self.environments.append(report["env"])

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def find(self, pattern, path):
        found = re.search(pattern, self.read(path), re.MULTILINE)
        if found is None:
            raise LookupError(f"{path} has no {pattern}")
        return found[1]

    def extra(self, name):
        """The range of versions of an extra's first package."""
        requirement = self.project["optional-dependencies"][name][0]
        return re.sub(r"^[a-z]+", "", requirement).replace(",", ", ")

    def measured(self, name):
        """Values of the environments of bench/results, also of the packages measured next to."""
        values = {value for each in self.environments for key, value in [*each.items(), *each.get("peers", {}).items()]
                  if key == name} if name != "system" else {" ".join(
                      (each.get("os") or "").replace("-", " ").split()[:1] + re.findall(r"x86_64|aarch64", each.get("os") or ""))
                      for each in self.environments}
        return sorted(value for value in values if value)

    def tested(self, *patterns):
        """The names of these tests, which exist."""
        for pattern in patterns:
            if not any(fnmatch(name, pattern) for name in self.tests):
                raise LookupError(f"tests/all_tests.txt has no {pattern}")
        return ", ".join(f"`{pattern}`" for pattern in patterns)


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def presets(facts):
    given = json.loads(facts.read("CMakePresets.json"))["configurePresets"]
    return table(["preset", "what it builds"],
                 [[f"`{each['name']}`", each["displayName"]] for each in given if not each.get("hidden")])


def options(facts):
    text, rows = facts.read("CMakeLists.txt"), []
    defaults = {"${hwy_FOUND}": "on with Highway", "${SLUICE_CUDA_DEFAULT}": "on with nvcc", "ON": "on", "OFF": "off", '""': "empty",
                "${PROJECT_IS_TOP_LEVEL}": "on, off within another project"}
    for name, help_text, default in re.findall(r'^option\((\w+) "([^"]+)" (\S+)\)', text, re.MULTILINE):
        rows.append([name, help_text, defaults[default]])
    for name, default, help_text in re.findall(r'^set\((SLUICE_\w+) (\S+) CACHE \w+\s+"([^"]+)"\)', text, re.MULTILINE):
        rows.append([name, help_text, defaults.get(default, default)])
    return table(["option", "what it does", "default"], [[f"`{name}`", *rest] for name, *rest in rows])


def libraries(facts):
    """What is looked for when a build is configured, and the part that is off without it."""
    lines = dict(re.findall(r"^ *echo \"(\S+) +(.+)\"$", facts.read("scripts/setup.sh"), re.MULTILINE))
    names = [name for name in lines if re.fullmatch(r"(lib|cpp|prometheus).*-dev", name)]
    return table(["package of Debian", "what needs it"], [[f"`{name}`", lines[name]] for name in names if "gtest" not in name
                                                          and "python" not in name and "clang" not in name])


def matrix(facts):
    newest = facts.find(r"^NEWEST = \((.+)\)$", "packaging/check_elf.py").replace(", ", ".")
    architectures = facts.find(r'set\(CMAKE_CUDA_ARCHITECTURES "([^"]+)"', "cmake/SluiceCuda.cmake")
    machine = [f"{code[:-1] if code[-1] in 'af' else code}" for code in re.findall(r"(\w+)-real", architectures)]
    ptx = re.search(r"(\d+)-virtual", architectures)[1]
    backends = re.findall(r'\{Backend::k\w+, "([\w-]+)",', facts.read("src/support/registry.cc"))
    gcc = facts.find(r'"gcc-(\d+)", "libstdc', "packaging/notices.py")
    clang = facts.find(r"libclang-rt-(\d+)-dev", "scripts/setup.sh")
    wheels = re.findall(r"^    tag = \"cp(\d)(\d+)-(\w+)\"", facts.read("tests/packaging/wheels_test.py"), re.MULTILINE)
    pythons = ", ".join(f"{major}.{minor}" + (" and newer" if abi == "abi3" else "") for major, minor, abi in wheels)
    sglang = re.findall(r'"(0\.[\d.]+)"', facts.find(r"^KNOWN = \((.+)\)$", "python/sluice/plugins/sglang.py"))
    vllm = re.findall(r'^    "(\d+\.\d+)": _seams', facts.read("python/sluice/plugins/vllm.py"), re.MULTILINE)

    def capability(code):
        return f"{code[:-1]}.{code[-1]}"

    def row(what, runs, tested, *measured):
        return [what, runs, tested, ", ".join(measured) or "-"]

    return table(["", "runs on", "tests", "measured on"], [
        row("system, built", "Debian " + facts.find(r"^FROM debian:(\d+) AS", "packaging/Containerfile"), facts.tested("packaging.parts"), *facts.measured("system")),
        row("system, files of a release", f"Linux x86-64 with glibc {newest} or newer",
            facts.tested("packaging.release", "packaging.wheels")),
        row("compiler", f"gcc {gcc} and newer, clang {clang} and newer",
            "all with gcc, and again with clang and sanitizers", *sorted({each.removesuffix(" with assertions") for each in facts.measured("compiler")})),
        row("processor", ", ".join(f"`{name}`" for name in backends),
            "each test of rows, on " + facts.tested("*/cpu_*", "*/ref_*"), *facts.measured("cpu")),
        row("GPU", "compute capability " + ", ".join(map(capability, machine)) + f"; PTX of {capability(ptx)} for newer ones",
            "`make test-gpu`", *facts.measured("gpu")),
        row("CUDA", "nvcc of CUDA 12 or 13, a driver for the same major version or newer", "`make test-gpu`, `cuda_driver_test`",
            *(f"CUDA {each}" for each in facts.measured("cuda")), *(f"driver {each}" for each in facts.measured("driver"))),
        row("Python", f"{facts.project['requires-python'].removeprefix('>=')} and newer; wheels for {pythons}",
            facts.tested("python.*", "packaging.wheels"), *facts.measured("python")),
        row("numpy", facts.project["dependencies"][0].removeprefix("numpy>=") + " and newer", facts.tested("python.pytest"),
            *facts.measured("numpy")),
        row("vLLM", f"`{facts.extra('vllm')}`: {', '.join(vllm)}", facts.tested("python.plugins", "python.vllm", "link.vllm_*"),
            *facts.measured("vllm")),
        row("SGLang", f"`{facts.extra('sglang')}`: {', '.join(sglang)}", facts.tested("python.plugins"), *facts.measured("sglang")),
        row("torch", "any", facts.tested("python.plugins"), *facts.measured("torch")),
        row("transformers", "any", facts.tested("python.plugins"), *facts.measured("transformers")),
        row("xgrammar", f"`{facts.extra('grammar')}`", facts.tested("server.structured_output", "cli.grammar")),
    ])


TABLES = {"presets": presets, "options": options, "libraries": libraries, "matrix": matrix}


def fill(page, facts):
    """The page with its tables as they are now."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- install: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        made = make(facts)
        page, count = pattern.subn(lambda found, made=made: f"{found[1]}{made}\n{found[2]}", page)
        if count != 1:
            raise LookupError(f"{PAGE} has {count} places for the table {name}")
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    page = arguments.root / PAGE
    was = page.read_text(encoding="utf-8")
    now = fill(was, Facts(arguments.root))
    if arguments.write:
        page.write_text(now, encoding="utf-8")
    elif now != was:
        sys.exit(f"install_tables: {PAGE} is stale; scripts/install_tables.py --write writes it")


if __name__ == "__main__":
    main()
