#!/usr/bin/env python3
"""Fills the tables and figures of README.md and docs/ from bench/results/*.json.

    scripts/bench_tables.py --write       writes what stands between the marks
    scripts/bench_tables.py --check       fails where a page differs from the files

A page has the marks `<!-- table: NAME -->` and `<!-- end -->`; bench/tables.py has a `table(NAME, ...)`
for each. Below the table stand the machine, the commit and a link to the file. A figure within a
sentence stands between `<!-- figure: NAME -->` and `<!-- / -->`, and is a `figure(NAME, ...)` there.
"""

import argparse
import importlib.util
import json
import re
import statistics
import sys
from os.path import relpath
from pathlib import Path

MARKED = re.compile(r"^<!-- table: (\S+) -->\n(.*?)^<!-- end -->", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"<!-- figure: (\S+) -->([^<]*)<!-- / -->")
STATISTICS = {"ns": "median", "mean_ns": "mean"}
ESCAPED = str.maketrans({"|": "\\|"})


class Fault(Exception):
    """What the list or a file has wrong, in a sentence."""


class Results:
    """The files of a folder of results, each read once."""

    def __init__(self, folder):
        self.folder, self.files = Path(folder), {}

    def report(self, name):
        if name not in self.files:
            try:
                self.files[name] = json.loads((self.folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise Fault(f"{self.folder / name} cannot be read: {error}") from error
        return self.files[name]

    def number(self, where, value, first=False):
        """`value`, "a" or "a/b" of fields and numbers, of the rows of a file that agree with `where`;
        "median a" where there are several, as of repetitions; or a function of these rows."""
        where = dict(where)
        name = where.pop("file")
        rows = [row for row in self.report(name)["rows"]
                if all(row.get(key) in wanted if isinstance(wanted, (tuple, list)) else row.get(key) == wanted
                       for key, wanted in where.items())]
        if callable(value):
            return value(rows) if rows else None
        is_median, value = value.startswith("median "), value.removeprefix("median ")
        above, _, below = value.partition("/")

        def field(row, name):
            return float(name) if re.fullmatch(r"[\d.]+", name) else row.get(name)

        pairs = [(field(row, above), field(row, below) if below else 1.0) for row in rows]
        found = list(dict.fromkeys(pair for pair in pairs if None not in pair))
        if not found:
            return None
        if is_median:
            return statistics.median(a / b for a, b in pairs if None not in (a, b))
        if len(found) > 1 and not first:
            raise Fault(f"{name} has {len(found)} different values of {value} where {where}")
        return found[0][0] / found[0][1]

    def word(self, where, field):
        """The text of a field, of the one row of a file that agrees with `where`."""
        where = dict(where)
        rows = [row for row in self.report(where.pop("file"))["rows"]
                if all(row.get(key) == wanted for key, wanted in where.items())]
        if len(rows) != 1 or field not in rows[0]:
            raise Fault(f"{len(rows)} rows have {field} where {where}")
        return rows[0][field]


def rounded(number, digits):
    """`digits` significant ones, at least the whole part; never in scientific notation."""
    whole = len(str(int(abs(number)))) if abs(number) >= 1 else 0
    text = f"{number:,.{max(0, digits - max(whole, 1))}f}"
    return text.replace("-0.0", "0.0") if float(text.replace(",", "")) == 0 else text


def cell(results, spec, row, column):
    """The parts of a column for a row: 'a / b' for two."""
    statistic = row.get("stat", spec["stat"])
    if column.get("value") == "@stat":
        return STATISTICS.get(statistic, statistic), None
    if row.get("value", "").startswith("word "):
        where = {"file": spec["file"], **spec["where"], **column.get("where", {})}
        return results.word(where, row["value"].removeprefix("word ")), None
    parts, numbers = [], []
    for part in column.get("parts") or [{}]:
        where = {"file": spec["file"], **spec["where"], **column.get("where", {}), **row.get("where", {}),
                 **part.get("where", {})}
        value = part.get("value") or column.get("value") or row.get("value") or spec["value"]
        number = results.number(where, value if callable(value) else value.format(stat=statistic), spec["first"])
        if number is None:
            continue
        digits = column.get("digits", spec["digits"])
        decimals = column.get("decimals", spec["decimals"])
        parts.append(rounded(number, digits) if decimals is None else f"{number:,.{decimals}f}")
        parts[-1] = re.sub(r"^-(0(\.0+)?)$", r"\1", parts[-1]) + column.get("unit", spec["unit"])
        numbers.append(number)
    if not parts and not (spec["sparse"] or row.get("sparse") or column.get("sparse")):
        raise Fault(f"no row of {spec['file']} for {row['label']}, {column['label']}")
    return " / ".join(parts), numbers[0] if len(numbers) == 1 else None


def source(spec, results, page, root):
    """The line below a table: machine, commit and file, of every file that it reads."""
    files = [spec["file"]]
    for one in spec["rows"] + spec["columns"]:
        wheres = [one.get("where", {})] + [part.get("where", {}) for part in one.get("parts", [])]
        files += [where["file"] for where in wheres if "file" in where]
    said = []
    for name in dict.fromkeys(files):
        report = results.report(name)
        env = report["env"]
        machine = env.get("gpu") or env["cpu"] + (f", {env['cores']} cores" if env.get("cores") else "")
        link = relpath(results.folder / name, page.parent).replace("\\", "/")
        said.append(f"{machine}, commit {report['commit'][:7]}: [{name}]({link})")
    note = f" {spec['note']}" if spec["note"] else ""
    return f"*{'; '.join(said)}.{note}*"


def made(spec, results, page, root):
    """The text between the marks."""
    heads = spec["heads"]
    lines = ["| " + " | ".join(heads + [column["label"] for column in spec["columns"]]) + " |",
             "|" + "---|" * (len(heads) + len(spec["columns"]))]
    grid = [[cell(results, spec, row, column) for column in spec["columns"]] for row in spec["rows"]]
    for index in range(len(spec["columns"]) if spec["best"] else 0):
        column = [line[index][1] for line in grid]
        known = [number for number in column if number is not None]
        for line, number in zip(grid, column, strict=True):
            if known and number == spec["best"](known):
                line[index] = (f"**{line[index][0]}**", number)
    for row, texts in zip(spec["rows"], grid, strict=True):
        labels = row["label"] if isinstance(row["label"], (tuple, list)) else [row["label"]]
        if len(labels) != len(heads):
            raise Fault(f"{spec['name']}: {row['label']} needs {len(heads)} labels")
        lines.append("| " + " | ".join([str(label).translate(ESCAPED) for label in labels] +
                                       [text for text, _ in texts]) + " |")
    return "\n".join(lines) + "\n\n" + source(spec, results, page, root) + "\n"


def table(name, file, rows, columns, *, heads=("",), where=None, value="{stat}/1000", stat="ns",
          digits=3, decimals=None, unit="", best=None, sparse=False, first=False, note=""):
    """One table. `rows` and `columns` are lists of (label, where) or dicts with more (see `each`, `of`).

    A cell is `value` of the rows that agree with the `where` of table, row and column; {stat} is the
    statistic, the table's or the row's. `file` may stand in a `where` as well. best: min or max, in bold.
    first: of a cell that a file has more than once, the first; without it that is a fault.
    """
    def entry(one):
        return one if isinstance(one, dict) else {"label": one[0], "where": one[1]}
    return {"name": name, "file": file, "rows": [entry(row) for row in rows],
            "columns": [entry(column) for column in columns], "heads": list(heads), "where": where or {},
            "value": value, "stat": stat, "digits": digits, "decimals": decimals, "unit": unit,
            "best": best, "sparse": sparse, "first": first, "note": note}


def figure(name, file, where, value="ns/1000", digits=3, decimals=None, unit="", first=False):
    """One figure within a sentence: `value` of the rows of the file that agree with `where`, or, where it is a
    function, what that makes of these rows (see `ratios`)."""
    return {"name": name, "where": {"file": file, **where}, "value": value, "digits": digits,
            "decimals": decimals, "unit": unit, "first": first, "inline": True}


def shown(spec, results):
    number = results.number(spec["where"], spec["value"], spec["first"])
    if number is None:
        raise Fault(f"no row of {spec['where']}")
    plain = rounded(number, spec["digits"]) if spec["decimals"] is None else \
        f"{number:,.{spec['decimals']}f}"
    return plain + spec["unit"]


def ratios(rows, field, above, below, *by):
    """For each group of rows that are equal in `by`, the median of a field of those that agree with `above`,
    divided by that of those that agree with `below`; groups that lack one of them are left out."""
    def median(group, where):
        found = [row[field] for row in group if field in row and all(row.get(key) == one for key, one in where.items())]
        return statistics.median(found) if found else None
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in by), []).append(row)
    pairs = [(median(group, above), median(group, below)) for group in groups.values()]
    return [a / b for a, b in pairs if None not in (a, b)]


def each(key, *values, label="{}"):
    """A row or column for each value of a key."""
    return [(label.format(value), {key: value}) for value in values]


def of(label, where=None, **more):
    """A row or column with more than a label and a where: value, stat, digits, decimals, unit, sparse,
    parts (each with a where or a value of its own)."""
    return {"label": label, "where": where or {}, **more}


def pages(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def fill(root, tables, results, write):
    """What differs or is wrong, a sentence each."""
    specs = {spec["name"]: spec for spec in tables}
    faults = [f"bench/tables.py has two tables {name}" for name in specs
              if sum(spec["name"] == name for spec in tables) > 1]
    used = set()
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(root)

        def filled(match):
            used.add(match[1])
            if match[1] not in specs or specs[match[1]].get("inline"):
                faults.append(f"{name}: bench/tables.py has no table {match[1]}")
                return match[0]
            try:
                return f"<!-- table: {match[1]} -->\n{made(specs[match[1]], results, page, root)}<!-- end -->"
            except Fault as fault:
                faults.append(f"{name}, table {match[1]}: {fault}")
                return match[0]

        def in_line(match):
            used.add(match[1])
            try:
                if not specs.get(match[1], {}).get("inline"):
                    raise Fault("bench/tables.py has no such figure")
                return f"<!-- figure: {match[1]} -->{shown(specs[match[1]], results)}<!-- / -->"
            except Fault as fault:
                faults.append(f"{name}, figure {match[1]}: {fault}")
                return match[0]

        updated = INLINE.sub(in_line, MARKED.sub(filled, text))
        if len(MARKED.findall(text)) != len(re.findall(r"^<!-- table: ", text, re.MULTILINE)):
            faults.append(f"{name}: a table without its end")
        if re.search(r"^\s*(?:[-*] )?<!-- figure: ", text, re.MULTILINE):
            faults.append(f"{name}: a figure begins a line, which ends its paragraph in Markdown")
        if updated != text:
            if write:
                page.write_text(updated, encoding="utf-8")
                print(f"{name}: written")
            else:
                faults.append(f"{name}: a table or figure is not that of its file; run scripts/bench_tables.py --write")
    faults += [f"no page has the table or figure {name}" for name in specs if name not in used]
    return faults


def listed(path):
    sys.modules.setdefault("bench_tables", sys.modules[__name__])
    spec = importlib.util.spec_from_file_location("tables", path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module.TABLES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent, type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail where a page differs")
    what.add_argument("--write", action="store_true", help="fill the pages")
    args = parser.parse_args()
    tables = listed(args.root / "bench/tables.py")
    faults = fill(args.root, tables, Results(args.root / "bench/results"), args.write)
    print("\n".join(faults) or f"{len(tables)} tables and figures, each as its file says")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
