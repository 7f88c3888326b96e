"""The weight of a token: its probability against the most likely one, as an integer.

    d = fl(x - m)    t = fl(d * c)    n = floor(t)    f = fl(t - n)    W = floor(P(f) * 2^(n + 40))

P(f) ~ 2^f. W is 2^40 at x == m, 0 when t < -40 or x = -inf, and never rises as x falls. Sums of W
are exact in 64 bits for up to 2^23 tokens, so no order of summation can change a result.
"""

import numpy as np

from .arithmetic import F32, horner32

FULL_WEIGHT = 1 << 40

# P, from the constant up.
EXP2 = [
    float.fromhex(c)
    for c in (
        "0x1p+0",
        "0x1.62e4bap-1",
        "0x1.ebdb56p-3",
        "0x1.c91ce6p-5",
        "0x1.277856p-7",
        "0x1.e974fap-10",
    )
]


@np.errstate(over="ignore", under="ignore")
def log_weight(x: np.ndarray, m: np.float32, scale: np.float32) -> np.ndarray:
    """t <= 0: the logarithm to base 2 of the token's probability against the maximum's."""
    return (x - m) * scale


def weight_of(t: np.ndarray) -> np.ndarray:
    has_weight = t >= F32(-40)
    t = np.where(has_weight, t, F32(0))
    n = np.floor(t)
    f = t - n  # in [0, 1]: it may round up to 1
    r = horner32(EXP2, f).astype(np.float64)
    w = np.floor(np.ldexp(r, n.astype(np.int32) + 40))  # exact: r has 24 bits
    return np.where(has_weight, w, 0).astype(np.uint64)


def weights(x: np.ndarray, m: np.float32, scale: np.float32) -> np.ndarray:
    return weight_of(log_weight(x, m, scale))
