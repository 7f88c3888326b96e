"""What the tests of sluice.reference share: the package itself, imported alone, and rows to test
with."""

import dataclasses
import sys

import c_api
import numpy as np
import pytest

sys.path.insert(0, str(c_api.ROOT / "python" / "sluice"))
import reference  # noqa: E402

needs_library = pytest.mark.skipif(
    not c_api.LIBRARY, reason="SLUICE_C_LIBRARY does not name the shared C library"
)
DTYPES = ("float32", "bfloat16", "float16")
INF, NAN = np.float32(np.inf), np.float32(np.nan)


def narrowed(x: np.ndarray, dtype: str) -> np.ndarray:
    """fp32 values rounded to a dtype; bf16 as its bits."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype)
    as_bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((as_bits + 0x7FFF + (as_bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (as_bits >> 16).astype(np.uint16) | np.uint16(0x40), rounded)


def with_padding(matrix: np.ndarray, width: int) -> np.ndarray:
    """The same matrix inside a wider one, of which the rest is garbage."""
    rows, columns = matrix.shape
    wide = np.empty((rows, columns + width), dtype=matrix.dtype)
    wide[:] = matrix.dtype.type(0x7FC0 if matrix.dtype == np.uint16 else np.nan)
    wide[:, :columns] = matrix
    return wide[:, :columns]


def random_row(vocab: int, random: np.random.Generator) -> np.ndarray:
    """Rows such as decoding gives, and the shapes that selection finds hard."""
    kind = random.integers(10)
    body = random.normal(-2.0, 1.6, vocab)
    if kind <= 2:  # some tens of tokens above a body: peaked, mid, flat
        top, spread = [(15.0, 1.0), (12.0, 0.1), (9.0, 0.1)][kind]
        for i in range(min(40, vocab)):
            body[random.integers(vocab)] = top - 2.0 - spread * i * (0.5 + random.random())
        row = body
    elif kind == 3:
        row = random.normal(0.0, 1.0, vocab)
    elif kind == 4:  # ties as bf16 arithmetic leaves them
        row = reference.widen(narrowed(body.astype(np.float32), "bfloat16"))
    elif kind == 5:  # ties everywhere
        row = random.integers(8, size=vocab) * 0.5
    elif kind == 6:
        row = np.arange(vocab) * 12.0 / vocab
    elif kind == 7:  # most of it masked
        row = np.where(random.random(vocab) < 0.9, -np.inf, body)
        row[random.integers(vocab)] = 1.0
    elif kind == 8:  # far below the maximum, where weights end
        row = -random.random(vocab) * 60.0
    else:  # a narrow top, and a tail about W = 2^16, below which typical weighs nothing
        row = -16.0 - 1.5 * random.random(vocab)
        row[random.integers(vocab, size=6)] = -0.004 * random.random(6)
    return row.astype(np.float32)


def hostile_rows(vocab: int) -> list[np.ndarray]:
    """Of about the given size; those of tests/support/rows.cc and a few more."""
    n = np.arange(vocab)
    ramp = (n * 0.125).astype(np.float32)

    def full(x: float) -> np.ndarray:
        return np.full(vocab, x, np.float32)

    def with_(row: np.ndarray, *places: tuple[int, float]) -> np.ndarray:
        row = np.array(row, np.float32)
        for at, x in places:
            row[at % len(row)] = x
        return row

    denormal = np.float32(2.0**-24)
    smallest = np.float32(2.0**-149)
    sign = np.where(n % 3 == 0, -1, 1)
    sparse = np.where(n % 3 == 0, n % 5, -np.inf)
    rows = [
        full(1.5),
        np.where(n % 2 == 0, 0.0, -0.0),
        full(-INF),
        with_(full(-INF), (vocab // 2, 2.0)),
        with_(full(-INF), (vocab - 1, 2.0), (0, 2.0)),
        with_(ramp, (0, NAN)),
        with_(ramp, (vocab - 1, NAN)),
        with_(ramp, (vocab // 2, -NAN)),
        with_(ramp, (vocab // 2, INF)),
        with_(ramp, (1, INF), (2, NAN)),
        full(INF),
        with_(full(-INF), (0, NAN)),
        sign * denormal * (n % 7),
        sign * smallest * (n % 7),
        with_(full(-65504.0), (vocab // 2, 1.0), (vocab // 3, 0.5)),
        with_(full(-1e9), (vocab // 2, 1.0), (vocab // 3, 0.5)),
        with_(full(-700.0), (vocab - 1, 0.0)),
        with_(ramp, (0, 65504.0), (1, -65504.0)),
        with_(ramp, (0, np.finfo(np.float32).max), (1, np.finfo(np.float32).min)),
        np.where(n % 2 == 0, 100.0, -100.0),
        n // 8 % 4,
        ramp,
        ramp[::-1],
        sparse,
        ramp[: vocab // 2 | 1],
        full(0.0)[:1],
        full(-INF)[:1],
        full(NAN)[:1],
        full(1.0)[:2],
    ]
    return [np.array(row, np.float32) for row in rows]


def random_profile(random: np.random.Generator) -> "reference.Profile":
    if random.random() < 0.5:
        return random.choice(list(reference.PROFILES.values()))
    switches = c_api.PROFILE_SWITCHES.items()
    return reference.Profile(**{name: str(random.choice(values)) for name, values in switches})


def random_select_params(vocab: int, random: np.random.Generator) -> "reference.Params":
    """Each filter is off, ordinary, anywhere, or at an end of its range."""
    changes = {"profile": random_profile(random)}

    def maybe(share: float, name: str, *values) -> None:
        if random.random() < share:
            changes[name] = values[random.integers(len(values))]

    anywhere = float(random.random()) or 0.5
    maybe(0.8, "temperature", 0.7, 0.0, 0.01, 1e-6, 2.0, 1.3, 0.01 + anywhere)
    maybe(0.5, "top_k", -1, 0, 1, 2, 5, 50, vocab - 1, vocab, vocab + 1, 1 + vocab // 3, 2**31 - 1)
    maybe(0.5, "top_p", 0.9, 0.5, 1e-12, 0.999999, 0.99999994, 0.1, 1.0, anywhere)
    maybe(0.3, "min_p", 0.05, 0.5, 1.0, 1e-6, 1e-13, anywhere)
    maybe(0.25, "top_n_sigma", 1.0, 0.3, 1e-3, 16.0, 2.5, 3 * anywhere)
    maybe(0.25, "typical_p", 0.9, 0.5, 0.05, 1e-12, anywhere)
    maybe(0.3, "xtc_probability", 0.5, 1.0)
    maybe(0.5, "xtc_threshold", 0.1, 0.0, 0.3, 1e-4, 1.0, anywhere)
    # Out of range, for the status.
    maybe(0.01, "top_p", 0.0, -0.5, 1.5, float("nan"), 1e-60)
    maybe(0.01, "temperature", -1.0, 3.0, float("inf"), float("nan"))
    maybe(0.01, "top_k", -2)
    maybe(0.01, "min_p", 1.0000001, -1e-30)
    return reference.Params(**changes)


EXTREME_PARAMS = [
    reference.Params(**changes)
    for changes in (
        {},
        {"temperature": 0.0},
        {"temperature": 0.01},
        {"temperature": 1e-30},
        {"top_k": 0},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": 1 << 30},
        {"top_p": 0.0},
        {"top_p": 0.5},
        {"top_p": 1e-12},
        {"top_p": 0.99999994},
        {"top_p": 1.0},
        {"top_k": 7, "top_p": 0.5},
        {"min_p": 0.5},
        {"min_p": 1.0},
        {"top_n_sigma": 1.0},
        {"top_n_sigma": 16.0},
        {"typical_p": 0.5},
        {"typical_p": 0.1},
        {"xtc_probability": 1.0},
        {"typical_p": 0.9, "xtc_probability": 1.0, "xtc_threshold": 0.0},
        {"typical_p": 0.5, "min_p": 0.5, "top_p": 0.5, "top_k": 9, "xtc_probability": 1.0},
    )
]


def random_key(random: np.random.Generator) -> "reference.NoiseKey":
    return reference.NoiseKey(
        seed=int(random.integers(2**64, dtype=np.uint64)),
        position=int(random.integers(2**32)) if random.random() < 0.5 else 17,
        choice=int(random.integers(1 << 24)) if random.random() < 0.5 else 0,
        stream=str(random.choice(c_api.STREAMS)),
    )


def plain(result) -> tuple:
    """A Cut, CutMass or other dataclass of the reference as c_api.plain gives its C twin."""
    values = (getattr(result, f.name) for f in dataclasses.fields(result))
    return tuple(c_api.bits(v) if isinstance(v, float) else int(v) for v in values)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit; NaNs are equal to each other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype != np.float32:
        return bool((a == b).all())
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())
