"""The Cut: a kept set as two boundaries, equal from every algorithm on every backend.

Kept are the tokens strictly between the boundaries; of those equal to `lower` the first `ties_kept`
by id; of those equal to `upper` all but the first `ties_dropped`. The boundaries are canonical:
`lower` is the value of the last kept token, `upper` that of the first one, or +inf when the row's
first token is kept; a zero is +0. With a status both are +inf and the count is 0.
"""

from dataclasses import dataclass

import numpy as np

from .interval import Interval, SortedRow
from .row_status import Status
from .widen import masked_value, widen

INF = float("inf")


@dataclass(frozen=True)
class Cut:
    upper: float = INF
    lower: float = INF
    ties_dropped: int = 0
    ties_kept: int = 0
    count: int = 0
    status: Status = Status.OK


@dataclass(frozen=True)
class CutMass:
    """The exact masses of a Cut; the heaviest token of a row weighs 2^40."""

    kept: int = 0
    total: int = 0  # Z: what top-p was measured against
    margin: int = 2**64 - 1  # of top-p (top_p_margin); this when it is off


def cut_of_interval(row: SortedRow, kept: Interval) -> Cut:
    last = row.x[kept.end - 1]
    lower, ties_kept = float(last) + 0.0, int(np.count_nonzero(row.x[: kept.end] == last))
    if kept.begin == 0:
        return Cut(INF, lower, 0, ties_kept, kept.size)
    first = row.x[kept.begin]
    ties_dropped = int(np.count_nonzero(row.x[: kept.begin] == first))
    return Cut(float(first) + 0.0, lower, ties_dropped, ties_kept, kept.size)


def is_kept(x: np.ndarray, cut: Cut) -> np.ndarray:
    """For each token of a row, in the order of its ids."""
    at_upper, at_lower = x == cut.upper, x == cut.lower
    kept = (x <= cut.upper) & (x >= cut.lower)
    kept &= ~at_upper | (at_upper.cumsum() > cut.ties_dropped)
    kept &= ~at_lower | (at_lower.cumsum() <= cut.ties_kept)
    return kept


def mask(logits: np.ndarray, cut: Cut) -> np.ndarray:
    """A copy of a row with -inf in place of the tokens that its Cut drops; every other bit stays,
    and so does a row with a status."""
    logits = np.array(logits)
    if cut.status == Status.OK:
        logits[~is_kept(widen(logits), cut)] = masked_value(logits.dtype)
    return logits


def kept_bitmask(logits: np.ndarray, cut: Cut) -> np.ndarray:
    """ceil(V / 32) int32 words, bit i of word w is token 32 w + i. All 0 with a status."""
    x = widen(logits)
    bits = np.zeros((len(x) + 31) // 32 * 32, dtype=bool)
    if cut.status == Status.OK:
        bits[: len(x)] = is_kept(x, cut)
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)
