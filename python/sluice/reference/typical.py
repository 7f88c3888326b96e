"""Typical sampling: keep the tokens with a surprise nearest to the mean surprise, until they hold
a share p of the mass.

In fixed point, over the kept tokens with W > 0, w = W >> 16:

    a_i = rint(-t_i * 2^12)    h = floor(sum(w a) / sum(w))    key_i = |a_i - h|

K is the least key such that the tokens with key <= K hold mass >= target; all of those are kept.
a never falls as x falls, so they are an interval of the order. The target is that of top-p.
"""

import numpy as np

from .arithmetic import F32
from .interval import Interval, SortedRow
from .top_p import target_mass


def typical(row: SortedRow, kept: Interval, p: float) -> Interval:
    weights = row.weights[kept.begin : kept.end]
    weights = weights[weights > 0]  # the first ones: W never rises
    t = row.t[kept.begin : kept.begin + len(weights)]

    surprise = np.rint(-t * F32(4096)).astype(np.int64)
    w = (weights >> np.uint64(16)).astype(np.int64)
    mean = int((w * surprise).sum()) // int(w.sum())
    key = np.abs(surprise - mean)

    target = target_mass(p, int(weights.sum()))
    nearest = np.argsort(key, kind="stable")
    running = weights[nearest].cumsum()
    largest_key = key[nearest[np.count_nonzero(running < np.uint64(target))]]
    (kept_tokens,) = np.nonzero(key <= largest_key)
    return Interval(kept.begin + int(kept_tokens[0]), kept.begin + int(kept_tokens[-1]) + 1)
