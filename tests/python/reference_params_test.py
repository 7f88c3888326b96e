"""The parameters of sluice.reference are those of params.def and of the C++ profiles."""

import dataclasses
import re

import c_api
import numpy as np
import pytest
from reference_support import needs_library, reference

DEFINED = c_api.read_params_def()
FIELDS = {f.name: f for f in dataclasses.fields(reference.Params)}
CONSTANTS = {
    "SLUICE_MAX_FLOAT": float.fromhex("0x1.fffffep+127"),
    "SLUICE_MAX_INT": 2**31 - 1,
    "SLUICE_MAX_UINT64": 2**64 - 1,
}


def number(text: str) -> float:
    if text in CONSTANTS:
        return CONSTANTS[text]
    shifted = re.fullmatch(r"(\d+) << (\d+)", text)
    if shifted:
        return int(shifted[1]) << int(shifted[2])
    return float(text.removesuffix("f"))


def snake_case(constant: str) -> str:
    """DraftMode::kRawLogprobs as raw_logprobs."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", constant.split("::k")[1]).lower()


def test_every_parameter_is_there_and_no_other():
    assert len(DEFINED) >= 25  # else the file was not understood
    assert [p.name for p in DEFINED] == list(FIELDS)
    text = (c_api.ROOT / "include/sluice/params.def").read_text(encoding="utf-8")
    assert len(re.findall(r"^SLUICE_\w+_PARAM\(", text, re.M)) == len(DEFINED)


@pytest.mark.parametrize("defined", DEFINED, ids=lambda p: p.name)
def test_default_and_range(defined):
    own = getattr(reference.Params(), defined.name)
    if defined.kind in ("SELECT", "REQUEST"):
        expected = number(defined.default)
        assert own == (float(np.float32(expected)) if defined.type == "float" else expected)
        assert type(own) is (float if defined.type == "float" else int)
    elif defined.kind == "OPTIONAL" or defined.type == "OptionalTokenIds":
        assert own is None
    elif defined.kind == "LIST":
        assert own == ()
    elif defined.type == "Profile":
        assert own == reference.PROFILES["vllm"]
    else:
        assert own == snake_case(defined.default)

    metadata = FIELDS[defined.name].metadata
    assert bool(metadata) == (defined.range is not None)
    if defined.range is not None:
        kind, low, high = defined.range
        assert metadata["opens"] == (kind == "OPEN_CLOSED")
        assert (metadata["low"], metadata["high"]) == (number(low), number(high))
        assert metadata["selects"] == (defined.kind == "SELECT")


def test_the_example_of_the_package():
    lines = [line[4:] for line in reference.__doc__.splitlines() if line.startswith("    ")]
    names = {"reference": reference, "np": np}
    code = [line for line in lines if not line.startswith(("import", "from"))]
    exec("\n".join(code[:1]), names)  # noqa: S102
    values = [eval(line.split("#")[0], names) for line in code[1:] if line]  # noqa: S307
    assert (values[0] == [1, 2]).all() and values[1] in (0, 1, 2)


def test_real_parameters_are_rounded_once():
    params = reference.Params(top_p=0.9, temperature=1e300, min_p=1e-60)
    assert params.top_p == float(np.float32(0.9))
    assert (params.temperature, params.min_p) == (np.inf, 0.0)


@needs_library
def test_profiles_are_those_of_the_library():
    names = []
    for index in range(c_api.lib.sluice_profile_count()):
        name = c_api.c.c_char_p()
        c_api.call("sluice_profile_name_at", index, c_api.c.byref(name))
        profile = c_api.Profile()
        c_api.call("sluice_profile_by_name", name, profile)
        names.append(name.value.decode())
        assert c_api.plain(profile) == c_api.plain(c_api.to_profile(reference.PROFILES[names[-1]]))
    assert names == list(reference.PROFILES)
