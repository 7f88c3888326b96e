#!/usr/bin/env python3
"""Compares what Sluice and jinja2 make of a chat template.

    scripts/check_chat_template.py TEMPLATE...

A TEMPLATE is a .jinja file, a tokenizer_config.json, a chat_template.json or the folder of a model. Each
is rendered for many conversations, by jinja2 set up as in transformers and by Sluice, and the first
difference of each template is shown. A conversation that both refuse is equal.

Needs the packages sluice and jinja2. Exits with 1 when a text differs, and with 2 when a template cannot
be read.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

try:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit("check_chat_template.py: jinja2 is missing; pip install jinja2")

from chat_conversations import conversations

SECONDS = 1_700_000_000  # the time of strftime_now, in UTC as Sluice has it
AROUND = 40  # characters shown before and after a difference


class Generation(Extension):
    """{% generation %}, which marks what a model said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    @staticmethod
    def _text(caller):
        return caller()


def environment():
    """jinja2 with the settings, filters and functions that transformers gives a template."""

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):  # templates may name the argument
        return datetime.datetime.fromtimestamp(SECONDS, datetime.timezone.utc).strftime(format)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def special_tokens(config):
    """The special tokens of a tokenizer_config.json, which templates name as variables."""
    made = {}
    for name, value in config.items():
        token = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(token, str):
            made[name] = token
    return made


def named_templates(path, value):
    """(name, source) of a chat_template of JSON: one text, or several with names."""
    if isinstance(value, str):
        return [(str(path), value)]
    if isinstance(value, list):
        return [(f"{path} ({entry['name']})", entry["template"]) for entry in value]
    raise ValueError("it has no chat_template")


def read_templates(path):
    """(name, source, special tokens) of each template of a path; ValueError when it has none."""
    config = {}
    beside = path if path.is_dir() else path.parent
    if (beside / "tokenizer_config.json").is_file():
        config = read_json(beside / "tokenizer_config.json")
    if path.is_dir():
        files = [path / "chat_template.jinja", *sorted(path.glob("additional_chat_templates/*.jinja"))]
        found = [(str(file), file.read_text(encoding="utf-8")) for file in files if file.is_file()]
        if not found and (path / "chat_template.json").is_file():
            found = named_templates(path, read_json(path / "chat_template.json").get("chat_template"))
        if not found:
            found = named_templates(path, config.get("chat_template"))
    elif path.suffix == ".json":
        found = named_templates(path, read_json(path).get("chat_template"))
    else:
        found = [(str(path), path.read_text(encoding="utf-8"))]
    return [(name, source, special_tokens(config)) for name, source in found]


class Outcome:
    """A text, or why there is none."""

    def __init__(self, render):
        self.text, self.error = None, None
        try:
            self.text = render()
        except Exception as error:  # of any kind: a template may do anything
            self.error = f"{type(error).__name__}: {error}"

    def __eq__(self, other):
        return self.text == other.text


def excerpt(text, at):
    return repr(text[max(at - AROUND, 0):at + AROUND])


def difference(expected, given):
    """One line for jinja2 and one for Sluice."""
    if None in (expected.text, given.text):
        return {"jinja2": expected.error or excerpt(expected.text, 0),
                "sluice": given.error or excerpt(given.text, 0)}
    pairs = zip(expected.text, given.text)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected.text), len(given.text)))
    return {"character": at, "jinja2": excerpt(expected.text, at), "sluice": excerpt(given.text, at)}


def compare(sluice, name, source, tokens, cases):
    """What the two make of a template: counts, and the first difference."""
    of_jinja = Outcome(lambda: environment().from_string(source))
    of_sluice = Outcome(lambda: sluice.ChatTemplate(source))
    report = {"template": name, "conversations": len(cases), "equal": 0, "refused_by_both": 0}
    for title, variables in cases:
        variables = {**variables, **tokens}
        expected, given = of_jinja, of_sluice
        if of_jinja.error is None:
            expected = Outcome(lambda: of_jinja.text.render(**variables))
        if of_sluice.error is None:
            given = Outcome(lambda: of_sluice.text.render(json.dumps(variables), seconds=SECONDS))
        if expected == given:
            report["equal"] += 1
            report["refused_by_both"] += expected.text is None
        elif "first_difference" not in report:
            report["first_difference"] = {"conversation": title, **difference(expected, given)}
    return report


def describe(report):
    count = report["conversations"]
    text = f"{report['template']}: {report['equal']} of {count} conversations are equal"
    if report["refused_by_both"]:
        text += f", {report['refused_by_both']} of them refused by both"
    first = report.get("first_difference")
    if first:
        where = f", character {first['character']}" if "character" in first else ""
        text += f"\n  first difference: {first['conversation']}{where}"
        text += f"\n    jinja2  {first['jinja2']}\n    Sluice  {first['sluice']}"
    return text


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", metavar="TEMPLATE", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=100,
                        help="conversations of each template: 24 that cover a feature each, then random ones "
                             "(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random conversations")
    parser.add_argument("--variables", type=json.loads, default={}, metavar="JSON",
                        help="more variables of every conversation, such as '{\"builtin_tools\": null}'")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    options = parser.parse_args()
    try:
        import sluice
    except ImportError as error:
        print(f"check_chat_template.py: the package sluice is missing: {error}", file=sys.stderr)
        return 2

    cases = conversations(options.count, options.seed, options.variables)
    reports = []
    for path in options.templates:
        try:
            templates = read_templates(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"check_chat_template.py: {path} cannot be read: {error}", file=sys.stderr)
            return 2
        reports += [compare(sluice, *template, cases) for template in templates]
    if options.json:
        print(json.dumps(reports, ensure_ascii=False, indent=2))
    else:
        print("\n".join(describe(report) for report in reports))
    return int(any("first_difference" in report for report in reports))


if __name__ == "__main__":
    sys.exit(main())
