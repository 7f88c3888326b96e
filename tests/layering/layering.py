#!/usr/bin/env python3
"""Fails on an #include that points upwards or sideways.

A file may include its own folder, any folder of a lower level, and the public headers
(sluice/*.hpp). Usage: layering.py ROOT. Prints one line per offence: file:line, include, rule.
"""

import re
import sys
from pathlib import Path

# Top to bottom. Folders on one level are siblings and do not know each other.
LEVELS = [
    ["cli", "python", "capi", "examples"],
    ["research"],
    ["server"],
    ["link"],
    ["engine"],
    ["grammar"],
    ["model", "sampler", "text", "parallel", "json", "topk"],
    ["head", "adjust", "select", "draw"],
    ["cuda"],
    ["support"],
    ["semantics"],
]
# Of a folder that is above several levels and uses few of their folders.
ONLY = {"grammar": {"text", "support", "semantics"}}
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
# Research may use every stage. The command and the Python package offer it by name, bench/ and
# tests/, which this test does not read, measure and test it; nothing else includes it.
RESEARCH_USERS = {"research", "cli", "python"}

# A head scores, bounds and computes logits; selection and draws use it and not the other way round.
# So of the public headers it reaches none of these, through others neither.
HEAD_HEADERS = {"include/sluice/head.hpp", "include/sluice/certified_head.hpp",
                "include/sluice/cuda/head.hpp"}
NOT_OF_HEADS = {f"sluice/{name}.hpp" for name in (
    "select", "draw", "verify", "logprobs", "sampler", "certified_sample", "explain", "shards",
    "cuda/candidates", "cuda/logprobs", "cuda/sampler", "cuda/certified_sample", "cuda/shards")}

SUFFIXES = {".h", ".hpp", ".def", ".inc", ".c", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Standard C++ headers have neither dot nor slash; these three are for the C ABI.
C_HEADERS = {"stdbool.h", "stddef.h", "stdint.h"}


def folder_of(path: Path):
    """The folder of the table that a path below the root belongs to; "public" for include/."""
    parts = path.parts
    if parts[0] == "include":
        return "public"
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if parts[0] in LEVEL_OF else None


def target_of(root: Path, file: Path, bracket: str, include: str):
    """The folder that an include reaches; None for what is not of this project."""
    if include.startswith("sluice/"):
        return "public"
    beside = (root / file.parent / include).resolve()
    if bracket == '"' and beside.is_file() and beside.is_relative_to(root):
        return folder_of(beside.relative_to(root))
    first = include.split("/")[0]
    return first if "/" in include and first in LEVEL_OF else None


def is_research_for_the_product(file: Path, source: str, target, include: str):
    """Whether a file includes research that is neither research itself nor offers it by name."""
    reaches = target == "research" or include.startswith("sluice/research/")
    return reaches and source not in RESEARCH_USERS and file.parts[:3] != ("include", "sluice", "research")


def rule_broken(source: str, target, bracket: str, include: str):
    """The rule that this include breaks, in words, or None."""
    if source == "public":
        standard = bracket == "<" and ("." not in include and "/" not in include)
        if target == "public" or standard or include in C_HEADERS:
            return None
        return "public headers include the standard library and sluice/ only"
    if target in (None, "public", source):
        if source == "semantics" and target is None and bracket == '"':
            return "semantics includes itself and sluice/ only"
        return None
    if LEVEL_OF[target] < LEVEL_OF[source]:
        return f"upwards: {target} is above {source}"
    if LEVEL_OF[target] == LEVEL_OF[source]:
        return f"sideways: {target} and {source} are on one level"
    if source in ONLY and target not in ONLY[source]:
        return f"{source} includes {', '.join(sorted(ONLY[source]))} only"
    return None


def is_of_heads(file: Path):
    return file.parts[:2] == ("src", "head") or file.as_posix() in HEAD_HEADERS


def public_includes(root: Path, header: str):
    """The public headers that a public header reaches, itself among them, depth first."""
    reached = [header]
    for name in reached:
        path = root / "include" / name
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            match = INCLUDE.match(line)
            if match and match[2].startswith("sluice/") and match[2] not in reached:
                reached.append(match[2])
    return reached


def check(root: Path):
    """Yields one message per offence."""
    root = root.resolve()
    for top in ("include", "src", "cli", "python", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            file = path.relative_to(root)
            source = folder_of(file)
            if source != "public" and source not in LEVEL_OF:
                yield f"{file}: its folder is not in the table of {Path(__file__).name}"
                continue
            text = path.read_text(encoding="utf-8")
            for number, line in enumerate(text.splitlines(), start=1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                bracket, include = match.groups()
                target = target_of(root, file, bracket, include)
                broken = rule_broken(source, target, bracket, include)
                if is_research_for_the_product(file, source, target, include):
                    broken = "no part of the product includes research"
                if is_of_heads(file) and include.startswith("sluice/"):
                    for name in public_includes(root, include):
                        if name in NOT_OF_HEADS:
                            broken = f"a head includes nothing of {name}"
                if broken:
                    yield f"{file}:{number}: {line.strip()}\n    {broken}"


def main():
    offences = list(check(Path(sys.argv[1])))
    print("\n".join(offences) or "layering: every include points down")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
