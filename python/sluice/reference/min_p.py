"""min-p: keep a token iff W >= floor(min_p * 2^40), that is, iff it is at least min_p times as
likely as the most likely token. At least one is kept: after typical, which may drop the most
likely token, none might be.
"""

import numpy as np

from .arithmetic import fixed40
from .interval import Interval, SortedRow


def min_p(row: SortedRow, kept: Interval, share: float) -> Interval:
    is_heavy = row.weights[kept.begin : kept.end] >= np.uint64(fixed40(share))
    return Interval(kept.begin, kept.begin + max(1, int(np.count_nonzero(is_heavy))))
