"""The status of a row, decided on the values after the adjustments, and its maximum m.

-inf means masked, and a masked token is never a reason for a status. Of several reasons the largest
is reported. A row with a status yields token -1.
"""

from enum import IntEnum

import numpy as np


class Status(IntEnum):
    OK = 0
    EMPTY_SUPPORT = 16  # every token is masked
    POS_INF_INPUT = 32  # an unmasked value is +inf
    NAN_INPUT = 48  # an unmasked value is NaN
    BAD_PARAM = 64  # a parameter of this row is out of range


def scan_row(x: np.ndarray) -> tuple[Status, np.float32]:
    """(status, m); m means nothing with a status."""
    if np.isnan(x).any():
        return Status.NAN_INPUT, np.float32(np.nan)
    m = x.max(initial=np.float32(-np.inf))
    if m == np.inf:
        return Status.POS_INF_INPUT, m
    if m == -np.inf:
        return Status.EMPTY_SUPPORT, m
    return Status.OK, m
