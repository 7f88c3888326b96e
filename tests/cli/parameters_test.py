#!/usr/bin/env python3
"""No surface lacks a parameter of params.def. Usage: parameters_test.py SLUICE ROOT.

The list is read from params.def by this script, on its own: what the command shows is expanded from
the same file by the compiler, and may not forget a kind of parameter.
"""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

SLUICE = ""
ROOT = Path()
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
ENTRY = re.compile(r"^SLUICE_(SELECT|REQUEST|OPTIONAL|CHOICE|LIST)_PARAM\((\w+), (\w+),(.*?\"\))$",
                   re.DOTALL | re.MULTILINE)
# A value of each that is not its default, as the flag takes it and as JSON shows it.
VALUES = {
    "float": ("0.25", 0.25), "int32_t": ("3", 3), "uint64_t": ("3", 3),
    "DrawMethod": ("cdf", "cdf"), "DraftMode": ("reject", "reject"),
    "LogprobMode": ("raw_logits", "raw_logits"), "Profile": ("hf", "hf"),
    "TokenIds": ("1,2", [1, 2]), "OptionalTokenIds": ("1,2", [1, 2]),
    "TokenSequences": ("1:2,3", [[1, 2], [3]]), "BiasEntries": ("1:2.5", {"1": 2.5}),
}
SPECIAL = {"dry_base": ("2", 2), "dry_multiplier": ("0.5", 0.5)}  # 0.25 is out of their range


def output(*args, **variables):
    result = subprocess.run([SLUICE, *args], env={**ENVIRONMENT, **variables}, check=True,
                            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                            timeout=180)
    return result.stdout


def entries():
    """(kind, type, name, json name, help) of every parameter."""
    text = (ROOT / "include/sluice/params.def").read_text(encoding="utf-8")
    found = []
    for kind, kind_type, name, rest in ENTRY.findall(text):
        json_name, explanation = re.findall(r'"([^"]*)"', rest)
        found.append((kind, kind_type, name, json_name, explanation))
    assert len(found) == len(re.findall(r"^SLUICE_\w+_PARAM\(", text, re.MULTILINE)), "parse"
    return found


class Parameters(unittest.TestCase):
    def test_the_page_is_what_the_command_writes(self):
        page = (ROOT / "docs/parameters.md").read_text(encoding="utf-8")
        self.assertEqual(page, output("inspect", "params", "--markdown"),
                         "run: sluice inspect params --markdown > docs/parameters.md")

    def test_the_page_has_every_parameter(self):
        page = (ROOT / "docs/parameters.md").read_text(encoding="utf-8")
        for kind, _, name, json_name, explanation in entries():
            flag = "--" + name.replace("_", "-")
            field = f"has_{name}, {name}" if kind == "OPTIONAL" else name
            line = re.search(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
            self.assertIsNotNone(line, name)
            for part in (f"`{json_name}`", f"`{flag}`", f"`SLUICE_{name.upper()}`", f"`{field}`",
                         explanation):
                self.assertIn(part, line.group(), name)

    def test_the_listing_has_every_parameter(self):
        listed = json.loads(output("inspect", "params", "--json"))["parameters"]
        self.assertEqual(sorted((p["name"], p["json"], p["help"]) for p in listed),
                         sorted((e[2], e[3], e[4]) for e in entries()))
        text = output("inspect", "params")
        for entry in entries():
            self.assertIn("--" + entry[2].replace("_", "-") + " ", text)

    def test_every_command_that_samples_has_every_flag(self):
        for command in ("demo", "inspect", "explain"):
            text = output(command, "--help")
            for entry in entries():
                self.assertRegex(text, rf"--{entry[2].replace('_', '-')}[ \n]")

    def test_every_flag_and_variable_reaches_the_json(self):
        logits = str(ROOT / "tests/fixtures/logits.npy")
        for _, kind_type, name, json_name, _ in entries():
            text, value = SPECIAL.get(name, VALUES[kind_type])
            flag = "--" + name.replace("_", "-")
            by_flag = json.loads(output("inspect", logits, "--json", flag, text))["parameters"]
            self.assertEqual(by_flag[json_name], value, name)
            default = json.loads(output("inspect", logits, "--json"))["parameters"]
            self.assertNotEqual(default.get(json_name), value, name)
            by_variable = json.loads(output("inspect", logits, "--json",
                                            **{"SLUICE_" + name.upper(): text}))["parameters"]
            self.assertEqual(by_variable, by_flag, name)

    def test_both_structs_have_every_field(self):
        # tests/capi/params_test.cc compares them field by field; here, that both expand every kind.
        for header in ("params.hpp", "c/params.h"):
            text = (ROOT / "include/sluice" / header).read_text(encoding="utf-8")
            body = re.search(r"struct (?:SamplingParams|sluice_sampling_params) \{(.*?)#include",
                             text, re.DOTALL).group(1)
            for kind in {entry[0] for entry in entries()}:
                self.assertIn(f"#define SLUICE_{kind}_PARAM(", body, header)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    ROOT = Path(sys.argv.pop(1)).resolve()
    unittest.main()
