"""topk for scores: exactly min(k, visible) indices under the total order.

Infinities are ordinary scores; a NaN among the visible scores is a status. Scores after the
visible length are never looked at. Row r of a request with next_n rows sees the first
length - next_n + r + 1 scores, so that its last row sees the whole length.
"""

import numpy as np

from .order import by_total_order
from .row_status import Status


def visible_length(length: int, next_n: int, step: int) -> int:
    return max(0, length - next_n + step + 1)


def topk_row(x: np.ndarray, k: int, is_sorted: bool) -> tuple[np.ndarray, np.ndarray, Status]:
    """(indices[k], values[k], status) of the visible scores: -1 and -inf after the last. Indices
    ascend, unless they are to stay sorted by the total order."""
    indices = np.full(k, -1, dtype=np.int32)
    values = np.full(k, -np.inf, dtype=np.float32)
    if np.isnan(x).any():
        return indices, values, Status.NAN_INPUT
    best = by_total_order(x)[:k]
    if not is_sorted:
        best = np.sort(best)
    indices[: len(best)] = best
    values[: len(best)] = x[best]
    return indices, values, Status.OK
