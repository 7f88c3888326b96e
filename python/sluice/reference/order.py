"""The total order: a before b iff x_a > x_b, or x_a == x_b and id_a < id_b. +0 equals -0.

The one order for greedy, top-k, top-p, log-probability lists and shard merges. No NaN takes part.
"""

import numpy as np


def by_total_order(x: np.ndarray) -> np.ndarray:
    """The ids of a row, first in the order first."""
    return np.argsort(-x, kind="stable")  # stable: ties stay in the order of their ids
