"""The reference of the command: the help text of each of its commands, from the program that was built.

Without a program the page has the one text that tests/cli/golden.txt keeps, and says so.
"""

import os
import re
import subprocess


def help_of(program, *command):
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100"}
    run = subprocess.run([program, *command, "--help"], capture_output=True, encoding="utf-8", env=environment,
                         stdin=subprocess.DEVNULL, check=True)
    return run.stdout.rstrip()


def commands(text):
    """The names in the lists "Commands" of a help text."""
    found = []
    for part in re.findall(r"(?m)^Commands[^\n]*:\n((?:[ \t].*\n?)+)", text):
        found += re.findall(r"(?m)^  ([a-z][\w-]*)\b", part)
    return found


def block(title, text, level="##"):
    return [f"{level} {title}", "", "```text", text, "```", ""]


def write(root, program, source):
    lines = ["# Command", "", "The help text of every command. [The command](../command.md) describes errors, exit "
             "codes, scripts and completion; [parameters](../parameters.md) lists the flags of sampling.", ""]
    if program.is_file():
        top = help_of(program)
        lines += block("sluice", top)
        for name in commands(top):
            text = help_of(program, name)
            lines += block(f"sluice {name}", text)
            for inner in commands(text):
                lines += block(f"sluice {name} {inner}", help_of(program, name, inner), "###")
    else:
        golden = (root / "tests/cli/golden.txt").read_text(encoding="utf-8")
        text = re.search(r"(?s)# \[commands\]\n\$ sluice --help\n(.*?)\n# \[commands\]", golden)[1]
        lines += block("sluice", text) + [
            "This site was built where the program was not, so the help of each command is missing: run "
            "`sluice COMMAND --help`.", ""]
    target = source / "reference/command.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines), encoding="utf-8")
