"""Stage 9: a forced token (the end of a thinking budget, say). Its value becomes 0, all others
-inf, whatever they were.
"""

import numpy as np


def apply_forced(x: np.ndarray, forced: int) -> None:
    x[:] = np.float32(-np.inf)
    x[forced] = 0
