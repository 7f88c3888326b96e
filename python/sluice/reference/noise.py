"""Noise: a pure function of (seed, position, choice, stream, token id). It does not depend on
batches, rows or shards, so a request draws the same tokens wherever it runs.

    block(index, plane) = Philox of the seed and the counter (position, index, s, plane)
    s = stream | choice << 8
    N = h * 2^32 + w, 48 bits: h = 16-bit field (id & 7) of block(id >> 3, 0),
                               w = word (id & 3) of block(id >> 2, 1)
    e = -log2(1 - (N + 1/2) / 2^48), an exponential variate    g = -log2(e), a Gumbel variate
"""

import numpy as np

from .arithmetic import F32, fixed32
from .log2 import log2_32, log2_quotient
from .params import NoiseKey
from .philox import philox

TARGET, DRAFT, ACCEPTANCE, RECOVERED, XTC, CDF = range(6)  # the streams


def gumbel_stream(key: NoiseKey) -> int:
    return DRAFT if key.stream == "draft" else TARGET


def cdf_stream(key: NoiseKey) -> int:
    return DRAFT if key.stream == "draft" else CDF


def blocks(key: NoiseKey, stream: int, index: np.ndarray, plane: int) -> np.ndarray:
    return philox(key.seed, key.position, index, stream | key.choice << 8, plane)


def noise_bits(key: NoiseKey, stream: int, ids: np.ndarray) -> np.ndarray:
    """N for each id."""
    ids = np.asarray(ids, dtype=np.int64)
    column = np.arange(len(ids))
    pair = blocks(key, stream, ids >> 3, 0)[(ids & 7) >> 1, column].astype(np.int64)
    high = (pair >> (16 * (ids & 1))) & 0xFFFF
    low = blocks(key, stream, ids >> 2, 1)[ids & 3, column].astype(np.int64)
    return high << 32 | low


def exponential(n: np.ndarray) -> np.ndarray:
    """e for each N. Near 0 the series is used, so that the largest scores keep their precision."""
    unit = F32(2.0**-49)
    # N < 2^46: -log2(1 + u) from its series, u = -(N + 1/2) / 2^48.
    is_small = n < 1 << 46
    u = np.where(is_small, -((2 * n + 1).astype(F32) * unit), F32(0))
    by_series = -(u * log2_quotient(u))
    # Otherwise from 1 - U = (rest + 1/2) / 2^48.
    rest = (1 << 48) - 1 - n
    by_log = -log2_32((2 * rest + 1).astype(F32) * unit)
    return np.where(is_small, by_series, by_log)


def gumbel(n: np.ndarray) -> np.ndarray:
    return -log2_32(exponential(n))


def uniform64(key: NoiseKey, stream: int) -> int:
    """One number for a row: words 0 and 1 of block(0, 0), low and high."""
    low, high = (int(word) for word in blocks(key, stream, np.zeros(1), 0)[:2, 0])
    return high << 32 | low


def uniform32(key: NoiseKey, stream: int, n: int = 0) -> int:
    """The n-th coin of a row: word n % 4 of block(n // 4, 0)."""
    return int(blocks(key, stream, np.full(1, n // 4), 0)[n % 4, 0])


def xtc_coin_falls(key: NoiseKey, probability: float) -> bool:
    return uniform32(key, XTC) < fixed32(probability)
