#!/usr/bin/env python3
"""Writes the man pages of the command and of its commands from their --help, the one source.

Usage: man_pages.py SLUICE FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path


def help_of(sluice, words):
    return subprocess.run([sluice, *words, "--help"], capture_output=True, check=True,
                          encoding="utf-8", env={"COLUMNS": "100", "TERM": "dumb"}).stdout


def escaped(text):
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + text if text[:1] in (".", "'") else text


def sections_of(text):
    """(what it does, usage, [(title, lines)]); the lines under no title have the title None."""
    lines = text.splitlines()
    usage = next(n for n, line in enumerate(lines) if line.startswith("Usage: "))
    sections, title = [], None
    for line in lines[usage + 1:]:
        heading = re.fullmatch(r"([A-Z][^:]*):", line)
        if heading:
            title = heading[1]
            sections.append((title, []))
        elif line and not line.startswith(" "):
            if title is not None or not sections:
                title = None
                sections.append((None, []))
            sections[-1][1].append(line)
        elif line:
            sections[-1][1].append(line)
    return " ".join(lines[:usage]).strip(), lines[usage].removeprefix("Usage: "), sections


def entries_of(lines):
    """[(name, description)] of the lines of a list, whose descriptions may go on below."""
    entries = []
    for line in lines:
        entry = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)
        if entry:
            entries.append([entry[1], entry[2] or ""])
        else:
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
    return entries


def commands_of(text):
    return [name for title, lines in sections_of(text)[2] if title and title.startswith("Commands")
            for name, _ in entries_of(lines)]


def page(words, text, version):
    what, usage, sections = sections_of(text)
    name = "-".join(["sluice", *words])
    out = [f'.TH {escaped(name.upper())} 1 "" "Sluice {version}" "Sluice"', ".SH NAME",
           rf"{escaped(name)} \- {escaped(what.rstrip('.'))}", ".SH SYNOPSIS", escaped(usage)]
    for title, lines in sections:
        if title is None:
            out += [".SH NOTES", *map(escaped, lines)]
        elif title == "Examples":
            out += [".SH EXAMPLES", ".nf", *(escaped(line.strip()) for line in lines), ".fi"]
        else:
            out.append(f".SH {escaped(title.upper())}")
            for entry, description in entries_of(lines):
                out += [".TP", rf"\fB{escaped(entry)}\fR", escaped(description)]
    return "\n".join(out) + "\n"


def pages(sluice):
    """{file name: text}, of the command, its commands, and theirs."""
    version = subprocess.run([sluice, "--version"], capture_output=True, check=True,
                             encoding="utf-8").stdout.split()[1]
    found, left = {}, [[]]
    while left:
        words = left.pop()
        text = help_of(sluice, words)
        found["-".join(["sluice", *words]) + ".1"] = page(words, text, version)
        left += [[*words, name] for name in commands_of(text)]
    return found


def main():
    sluice, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(sluice).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
