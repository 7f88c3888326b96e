"""What a user reads at the prompt: names, signatures, results and errors."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import sluice

LOGITS = np.zeros((2, 8), np.float32)
COPY = "np.ascontiguousarray(logits, dtype=np.float32) makes one"


def test_dir_lists_public_names_only():
    names = [name for name in dir(sluice) if not name.startswith("__")]
    assert set(sluice.__all__) <= set(names)
    assert not {"TYPE_CHECKING", "import_module", "rows", "errors", "_sluice"} & set(names)
    for name in sluice.__all__:
        assert getattr(sluice, name) is not None
    assert sluice.__version__.count(".") == 2


@pytest.mark.parametrize("name", ["sample", "select", "mask_", "topk", "dense_head", "CertifiedHead"])
def test_help_begins_with_the_arguments(name):
    call = getattr(sluice, name)
    given = inspect.signature(call).parameters
    twin = getattr(sluice._sluice, name)
    typed = (twin.__init__ if inspect.isclass(twin) else twin).__doc__.partition("\n\n")[0]
    for argument, parameter in given.items():
        assert re.search(rf"[(, ]{argument}: ", typed), argument
        default = re.search(rf"[(, ]{argument}: (?:[^=]*) = ([^,)]*)", typed)
        if parameter.default is not inspect.Parameter.empty:
            assert default and default[1] == repr(parameter.default), argument
    assert len(given) == len(re.findall(r"\w+: ", re.sub(r"\[[^\[\]]*\]", "", typed)))
    assert not inspect.getdoc(call).startswith(f"{name}("), "the text alone: help() has the arguments"
    assert "..." not in str(inspect.signature(call)) and "typing." not in str(inspect.signature(call))


def test_results_show_rows_that_are_not_ok():
    assert repr(sluice.sample(LOGITS, temperature=0)) == "TokenResults(ids=[0, 0])"
    bad = LOGITS.copy()
    bad[1, 3] = np.nan
    assert repr(sluice.sample(bad, temperature=0)) == "TokenResults(ids=[0, -1], statuses=[OK, NAN_INPUT])"
    assert repr(sluice.sample(bad[1], temperature=0)) == "TokenResults(ids=-1, status=NAN_INPUT)"
    assert repr(sluice.select(bad, top_k=2)) == "Cuts(counts=[2, 0], statuses=[OK, NAN_INPUT])"
    many = np.tile(bad, (10, 1))
    assert "... 10 not OK]" in repr(sluice.sample(many, temperature=0))


@pytest.mark.parametrize("logits", [LOGITS.astype(np.float64), LOGITS.tolist(), LOGITS[::-1], LOGITS[:, ::2]])
def test_what_to_do_with_another_array(logits):
    with pytest.raises(sluice.Error) as error:
        sluice.sample(logits)
    assert COPY in str(error.value)
    sluice.sample(np.ascontiguousarray(logits, dtype=np.float32))


def test_an_array_that_is_written_to_gets_no_copy():
    with pytest.raises(sluice.Error) as error:
        sluice.mask_(LOGITS.astype(np.float64), top_k=1)
    assert "ascontiguousarray" not in str(error.value)


@pytest.mark.parametrize("given, meant", [("topk", "top_k"), ("temprature", "temperature"), ("top_P", "top_p"),
                                          ("sed", "seed")])
def test_the_nearest_keyword_is_suggested(given, meant):
    with pytest.raises(sluice.ArgumentTypeError, match=rf"did you mean {meant}\? The keywords are temperature"):
        sluice.sample(LOGITS, **{given: 1})
    with pytest.raises(sluice.ArgumentTypeError, match="one of the keywords temperature"):
        sluice.sample(LOGITS, quetzalcoatl=1)


def test_sizes_are_called_as_arrays_call_them():
    with pytest.raises(sluice.Error, match=r"^seed\.size = 3 is not allowed: one for all rows or one a row, 2"):
        sluice.sample(LOGITS, seed=[1, 2, 3])


def test_a_part_that_was_not_built_says_what_it_needs(monkeypatch, capsys):
    for name in ("Tokenizer", "OutputStream"):
        monkeypatch.delattr(sluice, name)  # as in a build without the libraries
    with pytest.raises(AttributeError, match="this build of sluice has no text, .*sluice.Tokenizer: install simdjson"):
        sluice.Tokenizer  # noqa: B018
    assert not hasattr(sluice, "OutputStream")
    sluice.show_config()
    shown = capsys.readouterr().out
    assert "text: built without simdjson, PCRE2 and utf8proc\n" in shown and "engines: built without libzmq" in shown
    monkeypatch.undo()
    sluice.show_config()
    assert "text: available\nengines: available\n" in capsys.readouterr().out
    with pytest.raises(AttributeError, match="module 'sluice' has no attribute 'Tokeniser'"):
        sluice.Tokeniser  # noqa: B018


def test_no_error_of_the_package_shows_cplusplus():
    package = Path(sluice.__file__).parent
    shown = [f"{file.name}: {text}" for file in sorted(package.rglob("*.py"))
             for text in re.findall(r'"[^"\n]*(?:\.size\(\)|\bstd::|\bint32_t)[^"\n]*"', file.read_text(encoding="utf-8"))]
    assert shown == []
