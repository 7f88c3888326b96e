"""Stage 6: x + b, b clamped to [-100, 100]. Entries are applied in order; an id may appear more
than once.
"""

import numpy as np

from .arithmetic import F32


@np.errstate(over="ignore")
def apply_bias(x: np.ndarray, entries: list[tuple[int, float]]) -> None:
    for token, bias in entries:
        x[token] = x[token] + min(max(F32(bias), F32(-100)), F32(100))
