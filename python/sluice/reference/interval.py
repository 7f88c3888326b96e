"""What the selection rules work on: a sorted row, and the interval of it that is still kept.

Every rule of stages 12 to 15 tests a quantity that is monotone in the value, so each moves an end
of the interval and none makes a hole. (typical tests |a - h|, and a is monotone in x.) This is why
a rule may count the tokens that pass, in place of looking for where they end.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .order import by_total_order
from .weight import log_weight, weight_of


class Interval(NamedTuple):
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class SortedRow:
    """The tokens of a row that are not masked, by the total order, and what the filters weigh."""

    x: np.ndarray
    ids: np.ndarray
    t: np.ndarray  # log2 of the likelihood against the first token, at the filters' temperature
    weights: np.ndarray  # W of it, uint64

    @property
    def max(self) -> np.float32:
        """m, one value for all rules of the row."""
        return self.x[0]

    def mass(self, kept: Interval) -> int:
        return int(self.weights[kept.begin : kept.end].sum())

    def end_with_ties(self, end: int, limit: int) -> int:
        """The end moved back over tokens equal to the last kept one, but not past `limit`."""
        return end + int(np.count_nonzero(self.x[end:limit] == self.x[end - 1]))


def sorted_row(x: np.ndarray, scale: np.float32) -> SortedRow:
    order = by_total_order(x)
    ids = order[x[order] > -np.inf]
    kept = x[ids]
    t = log_weight(kept, kept[0], scale)
    return SortedRow(kept, ids, t, weight_of(t))
