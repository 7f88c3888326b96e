"""Arithmetic that rounds as the semantics say: binary32, to nearest even, once an operation.

numpy's own float32 operators do that already, as long as no other library of the process has set
the CPU to flush subnormals to zero; only the fused multiply-add is missing. Here it is made exact
from binary64, and for binary64 from rational numbers.
"""

from fractions import Fraction

import numpy as np

F32 = np.float32


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def fma32(a, b, c) -> np.ndarray:
    """fl32(a * b + c) with one rounding, for float32 arrays or numbers.

    In binary64 the product of two binary32 numbers is exact (24 + 24 <= 53 bits), the sum with c is
    not, and rounding it again to binary32 could go wrong when the first rounding lands on a tie.
    So the sum is rounded to odd instead: where it is inexact, of its two neighbours the one with
    the odd last bit is taken. An odd binary64 number is never a tie of binary32, and stands on the
    same side of every tie as the exact sum does (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums", 2008; it takes 24 + 2 bits).
    """
    product = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, dtype=np.float64)
    total = np.asarray(product + c)
    # TwoSum (Knuth): product + c == total + error, exactly.
    part = total - product
    error = (product - (total - part)) + (c - part)
    is_even = total.view(np.int64) & 1 == 0
    must_move = (error != 0) & is_even & np.isfinite(total)
    odd = np.where(must_move, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(F32)


def fma64(a: float, b: float, c: float) -> float:
    """fl64(a * b + c) with one rounding: exact rationals, and their division rounds correctly.

    (A sum of 0 comes out as +0; the one use, log2_64, never has a negative zero.)
    """
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def horner32(coefficients: list[float], x: np.ndarray) -> np.ndarray:
    """c0 + c1 x + c2 x^2 + ... from the last coefficient on, one fma a step."""
    result = np.full_like(x, coefficients[-1], dtype=F32)
    for c in reversed(coefficients[:-1]):
        result = fma32(result, x, F32(c))
    return result


def horner64(coefficients: list[float], x: float) -> float:
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = fma64(result, x, c)
    return result


def fixed32(x: float) -> int:
    """floor(x * 2^32): exact, because x has 24 bits."""
    return int(float(x) * 2.0**32)


def fixed40(x: float) -> int:
    """floor(x * 2^40)."""
    return int(float(x) * 2.0**40)
