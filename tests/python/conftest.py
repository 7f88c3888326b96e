"""What the tests of the package share: backends, rows of decoding, rows that break samplers."""

import numpy as np
import pytest

import sluice

BACKENDS = [info["name"] for info in sluice.backends() if info["available"]]

# Keywords of calls on rows that exercise every filter.
PARAMS = [
    {},
    {"temperature": 0},
    {"top_k": 3},
    {"top_p": 0.7, "temperature": 0.8},
    {"top_k": 20, "top_p": 0.9, "min_p": 0.05},
    {"top_n_sigma": 1.0},
    {"typical_p": 0.5},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"top_k": 4, "top_p": 0.8, "profile": "hf"},
    {"top_k": 4, "top_p": 0.8, "min_p": 0.1, "profile": "sglang"},
]

inf, nan = np.inf, np.nan


def hostile_rows(vocab=67):
    """One row a line: what samplers trip over."""
    rows = np.zeros((12, vocab), np.float32)
    rows[1] = -inf
    rows[2] = -inf
    rows[2, 5] = 1
    rows[3, 7] = nan
    rows[4, 7] = inf
    rows[5] = 1e-42
    rows[6] = -1e9
    rows[6, 3] = 0
    rows[7] = np.arange(vocab) % 3
    rows[8, ::2] = -0.0
    rows[9] = np.arange(vocab)
    rows[10] = -np.arange(vocab)
    rows[11, :] = 3e38
    return rows


def random_rows(rows=20, vocab=257, seed=1):
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 3, (rows, vocab)).astype(np.float32)
    values[::4] = np.round(values[::4])  # ties
    values[1::4, ::3] = -inf
    return values


ALL_ROWS = {"hostile": hostile_rows(), "random": random_rows(), "one-token": np.zeros((2, 1), "f4")}


@pytest.fixture(params=ALL_ROWS)
def rows(request):
    return ALL_ROWS[request.param]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(params=PARAMS, ids=str)
def params(request):
    return request.param


def columns(result):
    """Every property of a result that is there, as arrays."""
    found = {}
    for name in dir(type(result)):
        if name.startswith("_") or name == "cuts":
            continue
        try:
            found[name] = np.asarray(getattr(result, name))
        except AttributeError:
            pass
    return found


def assert_same(a, b):
    a, b = columns(a), columns(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
