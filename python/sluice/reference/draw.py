"""Stage 16: one token from a Cut.

    gumbel   the kept token with the largest fl(t + g), ties by the total order
    cdf      the first kept token in id order at which the running mass exceeds (U * mass) >> 64, U the
             uniform number of 64 bits of the row; a set of mass 0 gives its first token in the
             total order

t and the masses are at the temperature of the draw, m is the maximum of the whole row.
"""

import numpy as np

from .cut import Cut, is_kept
from .noise import cdf_stream, gumbel, gumbel_stream, noise_bits, uniform64
from .order import by_total_order
from .params import NoiseKey, Params
from .row_status import scan_row
from .temperature import draw_scale
from .weight import log_weight, weights


def first_kept(x: np.ndarray, cut: Cut) -> int:
    """In the total order; -1 when a Cut of another row keeps nothing."""
    (ids,) = np.nonzero(is_kept(x, cut))
    return int(ids[by_total_order(x[ids])[0]]) if len(ids) > 0 else -1


def draw_gumbel(x: np.ndarray, cut: Cut, m: np.float32, scale: np.float32, key: NoiseKey) -> int:
    (ids,) = np.nonzero(is_kept(x, cut))
    if len(ids) == 0:
        return -1
    t = log_weight(x[ids], m, scale)
    scores = t + gumbel(noise_bits(key, gumbel_stream(key), ids))
    best = ids[scores == scores.max()]
    return int(best[by_total_order(x[best])[0]])


def kept_weights(x: np.ndarray, cut: Cut, m: np.float32, scale: np.float32) -> np.ndarray:
    """W of the kept tokens, 0 for the others, in id order."""
    return np.where(is_kept(x, cut), weights(x, m, scale), np.uint64(0))


def draw_by_mass(mass: np.ndarray, key: NoiseKey, stream: int) -> int:
    """The first token at which the running mass exceeds its share of the whole; -1 when there is none."""
    running = mass.cumsum()
    threshold = uniform64(key, stream) * int(running[-1]) >> 64
    ids = np.flatnonzero(running > np.uint64(threshold))
    return int(ids[0]) if len(ids) > 0 else -1


def draw_cdf(x: np.ndarray, cut: Cut, m: np.float32, scale: np.float32, key: NoiseKey) -> int:
    token = draw_by_mass(kept_weights(x, cut, m, scale), key, cdf_stream(key))
    return token if token >= 0 else first_kept(x, cut)


def draw_token(x: np.ndarray, cut: Cut, params: Params, key: NoiseKey) -> int:
    """x: the adjusted values that the Cut was made of."""
    draw = draw_cdf if params.draw_method == "cdf" else draw_gumbel
    return draw(x, cut, scan_row(x)[1], draw_scale(params), key)
