"""XTC: with some probability, drop all but the last of the tokens above a threshold, so that a
likely but not the likeliest continuation is taken.

    thr32 = max(1, floor(threshold * 2^32))    s = number of kept tokens with W * 2^32 >= thr32 * Z

If the coin falls (noise.py) and s >= 2, the first s - 1 in the total order are dropped. thr32 is at
least 1, so that a token of weight 0 is never what remains.
"""

import numpy as np

from .arithmetic import fixed32
from .interval import Interval, SortedRow


def xtc(row: SortedRow, kept: Interval, threshold: float) -> Interval:
    threshold32 = max(1, fixed32(threshold))
    # W * 2^32 >= product, as a bound on the integer W.
    least = (threshold32 * row.mass(kept) + (1 << 32) - 1) >> 32
    above = int(np.count_nonzero(row.weights[kept.begin : kept.end] >= np.uint64(least)))
    if above < 2:
        return kept
    return Interval(kept.begin + above - 1, kept.end)
