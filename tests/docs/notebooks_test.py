#!/usr/bin/env python3
"""The code of docs/notebooks prints what the notebooks store.

    notebooks_test.py ROOT [NAME...]            runs each notebook and compares
    notebooks_test.py ROOT --write [NAME...]    stores what is printed

PYTHONPATH has the package sluice. Exits with 77, which skips the test, where the package or numpy is missing.
"""

import ast
import contextlib
import difflib
import importlib.util
import io
import json
import os
import sys
from pathlib import Path


def run_cell(source, names, where):
    """What a cell prints. A value at its end would be shown by Jupyter and not here, so it has to be None."""
    tree = ast.parse(source, where)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None and eval(compile(last, where, "eval"), names) is not None:
            raise SyntaxError(f"{where} ends with a value: print it")
    return printed.getvalue()


def stored(cell):
    return "".join("".join(output["text"]) for output in cell["outputs"])


def store(cell, text):
    lines = text.splitlines(keepends=True)
    cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []


def run(path, write):
    """The differences of a notebook's outputs; with `write`, stores the new ones."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names, faults, count = {"__name__": "__main__"}, [], 0
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        where = f"{path.name}, cell {number}"
        try:
            text = run_cell("".join(cell["source"]), names, where)
        except SystemExit as reason:
            print(f"{where} ends the notebook: {reason}")
            return faults
        count += 1
        if write:
            cell["execution_count"] = count
            store(cell, text)
        elif text != stored(cell):
            faults += [f"{where} prints another text than it stores:",
                       *difflib.unified_diff(stored(cell).splitlines(), text.splitlines(), "stored", "printed",
                                             lineterm="")]
    if write:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.name}: {count} cells")
    return faults


def main():
    root = Path(sys.argv[1]).resolve()
    chosen = [name for name in sys.argv[2:] if name != "--write"]
    for module in ("numpy", "sluice"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: no package {module}")
            return 77
    os.chdir(root)
    paths = [path for path in sorted((root / "docs/notebooks").glob("*.ipynb"))
             if not chosen or path.stem in chosen]
    faults = [fault for path in paths for fault in run(path, "--write" in sys.argv)]
    print("\n".join(faults))
    return 1 if faults or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
