"""The one logarithm of Sluice, to base 2, for y positive and normal:

    y = m * 2^k with m in [0.75, 1.5)    u = m - 1    log2(y) = fma(u, Q(u), k)

Q(u) ~ log2(1 + u) / u. The coefficients are the same in fp32 (noise) and fp64 (log-probabilities).
"""

import math

import numpy as np

from .arithmetic import F32, fma32, fma64, horner32, horner64

# Q, from the constant up.
LOG2_QUOTIENT = [
    float.fromhex(c)
    for c in (
        "0x1.715476p+0",
        "-0x1.715478p-1",
        "0x1.ec714p-2",
        "-0x1.715426p-2",
        "0x1.274d54p-2",
        "-0x1.ebf2cap-3",
        "0x1.ac8c92p-3",
        "-0x1.84e022p-3",
        "0x1.3132d8p-3",
        "-0x1.01bd1p-4",
    )
]


def log2_quotient(u: np.ndarray) -> np.ndarray:
    return horner32(LOG2_QUOTIENT, u)


def log2_32(y: np.ndarray) -> np.ndarray:
    half, exponent = np.frexp(y)  # y = half * 2^exponent, half in [0.5, 1)
    is_high = half >= F32(0.75)
    m = np.where(is_high, half, half + half)
    k = np.where(is_high, exponent, exponent - 1)
    u = m - F32(1)
    return fma32(u, log2_quotient(u), k.astype(F32))


def log2_64(y: float) -> float:
    half, exponent = math.frexp(y)
    m, k = (half, exponent) if half >= 0.75 else (2 * half, exponent - 1)
    u = m - 1
    return fma64(u, horner64(LOG2_QUOTIENT, u), k)
