"""SamplingParams has every parameter of params.def, and so has everything that shows them."""

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

import sluice

OTHER_VALUES = {
    "temperature": 0.8, "top_k": 4, "top_p": 0.9, "min_p": 0.1, "top_n_sigma": 1.5,
    "typical_p": 0.5, "xtc_probability": 0.25, "xtc_threshold": 0.2, "repetition_penalty": 1.1,
    "frequency_penalty": -0.5, "presence_penalty": 0.75, "min_tokens": 3, "dry_multiplier": 0.8,
    "dry_base": 2.0, "dry_allowed_length": 3, "dry_range": 64, "dry_sequence_breakers": [1, 2],
    "logit_bias": {3: -1.5}, "allowed_token_ids": [1, 2, 3], "bad_words": [[1], [2, 3]],
    "stop_token_ids": [2], "seed": 2**64 - 1, "draw_method": "cdf", "draft_mode": "reject",
    "logprobs": 5, "logprob_mode": "processed_logits", "profile": "hf",
}


def declared():
    """The names in params.def, read as text; None where the sources are not at hand."""
    path = Path(__file__).parents[2] / "include" / "sluice" / "params.def"
    if not path.exists():
        return None
    entry = re.compile(r"^SLUICE_\w+_PARAM\(\w+, (\w+),", re.MULTILINE)
    return entry.findall(path.read_text(encoding="utf-8"))


def test_the_page_of_parameters_has_the_keywords():
    page = Path(__file__).parents[2] / "docs" / "parameters.md"
    if not page.exists():
        pytest.skip("the sources are not at hand")
    rows = re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [parameter["name"] for parameter in sluice.parameters()]


NAMES = [info["name"] for info in sluice.parameters()]


def test_no_parameter_is_missing():
    names = declared()
    if names is None:
        pytest.skip("params.def is not beside the tests")
    assert sorted(names) == sorted(NAMES) == sorted(OTHER_VALUES)


def test_every_parameter_is_an_attribute_with_a_docstring():
    for info in sluice.parameters():
        attribute = inspect.getattr_static(sluice.SamplingParams, info["name"])
        assert attribute.__doc__ == info["help"]
        assert info["help"] in sluice.SamplingParams.__doc__
        assert getattr(sluice.SamplingParams(), info["name"]) == info["default"]


def test_every_parameter_is_in_the_stub():
    stub = Path(sluice.__file__).with_name("_sluice.pyi").read_text(encoding="utf-8")
    constructor = re.search(r"class SamplingParams:.*?def __init__\((.*?)\) -> None", stub, re.S)
    for name in NAMES:
        assert f"{name}: " in constructor.group(1)
        assert f"def {name}(self)" in stub
    for function in ("select", "sample", "mask_", "candidates", "verify", "add"):
        signature = re.search(rf"def {function}\((.*?)\) -> ", stub, re.S).group(1)
        for name in NAMES if function == "add" else NAMES[:8]:
            assert f"{name}: " in signature, (function, name)


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_parameter_goes_in_and_comes_out(name):
    value = OTHER_VALUES[name]
    params = sluice.SamplingParams(**{name: value})
    assert getattr(params, name) == value
    assert repr(params) == f"SamplingParams({name}={value!r})"
    assert eval(repr(params), vars(sluice)) == params != sluice.SamplingParams()
    by_hand = sluice.SamplingParams()
    setattr(by_hand, name, value)
    assert by_hand == params
    assert sluice.SamplingParams().replace(**{name: value}) == params


def test_params_are_pickled_and_copied():
    params = sluice.SamplingParams(**OTHER_VALUES)
    assert pickle.loads(pickle.dumps(params)) == params
    assert copy.deepcopy(params) == copy.copy(params) == params
    assert params != "params"


def test_what_can_change_has_no_hash():
    with pytest.raises(TypeError):
        hash(sluice.SamplingParams())


@pytest.mark.parametrize("name, value, allowed", [
    ("temperature", -1.0, "[0, "),
    ("temperature", float("nan"), "[0, "),
    ("top_k", -2, "[-1, 2147483647]"),
    ("top_k", 2**40, "[-1, 2147483647]"),
    ("top_p", 0.0, "(0, 1]"),
    ("top_p", 1e400, "(0, 1]"),
    ("min_p", 1.5, "[0, 1]"),
    ("repetition_penalty", 0.0, "(0, "),
    ("frequency_penalty", 3.0, "[-2, 2]"),
    ("min_tokens", -1, "[0, 2147483647]"),
    ("dry_base", 0.5, "[1, 100]"),
    ("seed", -1, "[0, 18446744073709551615]"),
    ("seed", 2**64, "[0, 18446744073709551615]"),
    ("logprobs", -2, "[-1, 8388608]"),
    ("allowed_token_ids", [], "at least one token id"),
    ("allowed_token_ids", [-1], "[0, 8388607]"),
    ("bad_words", [[]], "at least one token id a word"),
    ("stop_token_ids", [2**31], "[-2147483648, 2147483647]"),
    ("logit_bias", {1: float("nan")}, "a number"),
    ("draw_method", "dice", "gumbel, cdf"),
    ("profile", "openai", "vllm, hf, sglang, llamacpp, tensorrt-llm"),
])
def test_a_value_out_of_range_is_named(name, value, allowed):
    for make in (lambda: sluice.SamplingParams(**{name: value}),
                 lambda: setattr(sluice.SamplingParams(), name, value),
                 lambda: sluice.Sampler(vocab=8).add(**{name: value})):
        with pytest.raises(sluice.Error) as caught:
            make()
        error = caught.value
        assert error.parameter == name
        assert error.allowed.startswith(allowed)
        assert str(error) == f"{name} = {error.value} is not allowed: {error.allowed}"
        assert not isinstance(error, TypeError)


@pytest.mark.parametrize("name, value", [
    ("temperature", "hot"), ("temperature", [1.0]), ("top_k", 1.5), ("top_k", "4"), ("seed", 0.5),
    ("allowed_token_ids", 3), ("allowed_token_ids", "abc"), ("bad_words", [1]), ("bad_words", "ab"),
    ("logit_bias", [1]), ("profile", 3), ("draw_method", 1), ("logprobs", "all"),
])
def test_a_value_of_another_type_is_a_type_error(name, value):
    with pytest.raises(TypeError) as caught:
        sluice.SamplingParams(**{name: value})
    assert isinstance(caught.value, sluice.Error) and caught.value.parameter == name
