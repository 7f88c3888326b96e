"""Every public name has a docstring with an example, and every example is true."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sluice


def documented():
    """(name, docstring) of the package, its public names and the methods of its classes."""
    yield "sluice", sluice.__doc__
    for name in sluice.__all__:
        item = getattr(sluice, name)
        yield name, item.__doc__
        if not inspect.isclass(item):
            continue
        for member, value in vars(item).items():
            if not member.startswith("_") and callable(value) and not isinstance(value, type):
                yield f"{name}.{member}", value.__doc__


DOCS = dict(documented())
ROOT = Path(__file__).parent.parent.parent  # examples name models as they lie there


def has_grammar_engine():
    try:
        sluice.GrammarCompiler([b"a", b""], stop_tokens=[1])
    except sluice.UnavailableError:
        return False
    return True


@pytest.mark.parametrize("name", DOCS)
def test_examples(name, monkeypatch):
    if name.startswith("Grammar") and not has_grammar_engine():
        pytest.skip("no grammar engine, which the package xgrammar has")
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest(
        DOCS[name] or "", {"sluice": sluice, "np": np}, name, None, 0)
    assert test.examples, f"{name} has no example"
    log = []
    doctest.DocTestRunner().run(test, out=log.append)
    assert not log, "".join(log)


@pytest.mark.parametrize("name", ["sample.py", "numpy_rows.py", "migrate.py", "certified_head.py",
                                  "grammar_masks.py"])
def test_the_snippets_of_the_pages_run(name):
    example = ROOT / "examples" / "python" / name
    if not example.exists():
        pytest.skip("the sources are not at hand")
    subprocess.run([sys.executable, example], check=True)


def test_properties_have_docstrings():
    for name in sluice.__all__:
        item = getattr(sluice, name)
        if inspect.isclass(item) and not issubclass(item, (int, Exception)):
            for member, value in vars(item).items():
                assert member.startswith("_") or value.__doc__, f"{name}.{member}"
