"""Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
a pure function from a 64-bit key, the seed, and a 128-bit counter to 128 random bits.
"""

import numpy as np

LOW = 0xFFFFFFFF


def philox(seed: int, c0: int, c1: np.ndarray, c2: int, c3: int) -> np.ndarray:
    """The blocks of the counters (c0, c1, c2, c3), one for each element of c1: words[4, len(c1)].

    The key is the seed, low word first.
    """
    k0, k1 = seed & LOW, seed >> 32
    c1 = np.asarray(c1, dtype=np.uint64)
    # Words of 32 bits in arrays of 64, so that their products have room.
    c0, c2, c3 = (np.full_like(c1, word) for word in (c0, c2, c3))
    low, high = np.uint64(LOW), np.uint64(32)
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0 = (p1 >> high) ^ c1 ^ np.uint64(k0)
        c1 = p1 & low
        c2 = (p0 >> high) ^ c3 ^ np.uint64(k1)
        c3 = p0 & low
        k0 = (k0 + 0x9E3779B9) & LOW
        k1 = (k1 + 0xBB67AE85) & LOW
    return np.stack([c0, c1, c2, c3])
