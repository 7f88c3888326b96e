"""top-n-sigma: keep the tokens within n_sigma standard deviations of the largest value.

In fixed point, over the n kept tokens:

    e_i = min(rint((m - x_i) * 2^12), 2^20)    S1 = sum e    S2 = sum e^2    N = rint(n_sigma * 2^8)
    keep iff e_i <= floor(isqrt(N^2 (n S2 - S1^2)) / (n 2^8))

Temperature plays no part.
"""

import math

import numpy as np

from .arithmetic import F32
from .interval import Interval, SortedRow

FURTHEST = 1 << 20


@np.errstate(over="ignore")
def sigma_distance(x: np.ndarray, m: np.float32) -> np.ndarray:
    scaled = (m - x) * F32(4096)  # exact, or +inf
    return np.rint(np.minimum(scaled, F32(FURTHEST))).astype(np.int64)


def top_n_sigma(row: SortedRow, kept: Interval, n_sigma: float) -> Interval:
    e = sigma_distance(row.x[kept.begin : kept.end], row.max)
    n, s1, s2 = kept.size, int(e.sum()), int((e * e).sum())
    sigmas = int(np.rint(F32(n_sigma) * F32(256)))
    bound = math.isqrt(sigmas**2 * (n * s2 - s1**2)) // (n << 8)
    return Interval(kept.begin, kept.begin + int(np.count_nonzero(e <= bound)))
