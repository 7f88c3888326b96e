"""The kept tokens of a row: their ids, values and weights.

The weights are those of the draw: at its temperature, against the row's maximum, which weighs 2^40.
"""

from typing import NamedTuple

import numpy as np

from .cut import Cut, is_kept
from .order import by_total_order
from .params import Params
from .row_status import Status, scan_row
from .temperature import draw_scale
from .weight import weights


class Candidates(NamedTuple):
    ids: np.ndarray
    logits: np.ndarray
    weights: np.ndarray


def candidates_of(x: np.ndarray, cut: Cut, params: Params, by_rank: bool) -> Candidates:
    """Ascending by id, or by the total order. A row with a status has none."""
    if cut.status != Status.OK:
        return Candidates(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint64))
    (ids,) = np.nonzero(is_kept(x, cut))
    if by_rank:
        ids = ids[by_total_order(x[ids])]
    status, m = scan_row(x)
    if status != Status.OK:  # a Cut of another row
        return Candidates(ids, x[ids], np.zeros(len(ids), np.uint64))
    return Candidates(ids, x[ids], weights(x[ids], m, draw_scale(params)))
