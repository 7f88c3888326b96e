"""The report card, as text, JSON and a page of HTML."""

import html
import json

WORDS = {"pass": "passed", "fail": "failed", "note": "noted", "not offered": "not offered"}


def summary(results):
    counts = {word: sum(one.outcome == outcome for one in results) for outcome, word in WORDS.items()}
    return f"{len(results)} checks: " + ", ".join(
        f"{count} {word}" for word, count in counts.items() if count)


def as_text(name, version, results):
    lines = [f"{name} {version}".strip(), ""]
    width = max(len(one.name) for one in results)
    for one in results:
        lines.append(f"  {one.outcome.upper():11}  {one.name:{width}}  {one.sentence}")
    return "\n".join([*lines, "", summary(results)])


def as_json(name, version, options, results):
    return json.dumps({"sampler": name, "version": version, "options": options,
                       "rows": [{"bench": "conformance", "sampler": name, "check": one.name,
                                 "outcome": one.outcome, "sentence": one.sentence}
                                for one in results]}, indent=1) + "\n"


def as_html(name, version, results):
    cells = "\n".join(
        f'<tr class="{one.outcome.split()[0]}"><td>{html.escape(one.outcome)}</td>'
        f"<th scope=row>{html.escape(one.name)}</th><td>It {html.escape(one.promise)}.</td>"
        f"<td>{html.escape(one.sentence)}</td></tr>" for one in results)
    title = html.escape(f"{name} {version}".strip())
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>Conformance of {title}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 70em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }}
td, th {{ text-align: left; vertical-align: top; padding: .4em .8em; border-top: 1px solid #8888 }}
tr.pass td:first-child {{ color: #1a7f37 }} tr.fail td:first-child {{ color: #d1242f; font-weight: bold }}
tr.note td:first-child {{ color: #9a6700 }}
</style>
<h1>{title}</h1>
<p>{html.escape(summary(results))}</p>
<table>{cells}</table>
"""
