"""top-k: exactly min(k, kept) tokens, the first in the total order; k = 0 and k = -1 keep all.

With ties = all, tokens equal to the last of them stay as well.
"""

from .interval import Interval, SortedRow
from .params import Profile


def top_k(row: SortedRow, kept: Interval, k: int, profile: Profile) -> Interval:
    if k <= 0 or k >= kept.size:
        return kept
    end = kept.begin + k
    if profile.ties == "all":
        end = row.end_with_ties(end, kept.end)
    return Interval(kept.begin, end)
