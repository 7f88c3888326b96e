"""top-p: walk the total order and keep a token iff the mass strictly before it is below the target;
at least one.

    P32 = floor(p * 2^32)    target = ceil(P32 * Z / 2^32)

Z is the mass of the tokens that the rule is measured on. An inclusive boundary also keeps the token
that starts exactly at the target; with ties = all, tokens equal to the last kept one stay as well.
p = 1 is not this rule's: it keeps even tokens of weight 0.
"""

import numpy as np

from .arithmetic import fixed32
from .interval import Interval, SortedRow
from .params import Profile


def target_mass(p: float, total: int) -> int:
    return (fixed32(p) * total + (1 << 32) - 1) >> 32


def top_p(row: SortedRow, measured: Interval, p: float, profile: Profile) -> Interval:
    target = target_mass(p, row.mass(measured))
    weights = row.weights[measured.begin : measured.end]
    mass_before = weights.cumsum() - weights
    if profile.top_p_boundary == "inclusive":
        is_kept = mass_before <= np.uint64(target)
    else:
        is_kept = mass_before < np.uint64(target)
    end = measured.begin + max(1, int(np.count_nonzero(is_kept)))
    if profile.ties == "all":
        end = row.end_with_ties(end, measured.end)
    return Interval(measured.begin, end)


def top_p_margin(row: SortedRow, measured: Interval, p: float, profile: Profile) -> int:
    """How far the boundary is from moving by one token, in units of mass: the smaller distance from
    the target to the mass before the last token that is kept, and to the mass up to and with it."""
    target = target_mass(p, row.mass(measured))
    nucleus = top_p(row, measured, p, profile)
    through = row.mass(nucleus)
    before = through - int(row.weights[nucleus.end - 1])
    return min(abs(target - before), abs(through - target))
