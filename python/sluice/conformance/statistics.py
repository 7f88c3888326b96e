"""How far counts of draws are from their probabilities."""

import numpy as np

SIGMAS = 5.5  # a right sampler passes this once in 50 million checks
_LEAST = 8  # draws expected of a cell; less likely tokens share one


def deviation(ids, probabilities):
    """Chi-square of the draws as a deviation of N(0, 1), by the cube root of Wilson and Hilferty; an
    impossible draw is infinitely far."""
    count = len(ids)
    if (ids < 0).any() or (probabilities[ids] == 0).any():
        return np.inf
    seen = np.bincount(ids, minlength=len(probabilities)).astype(float)
    expected = probabilities * count
    rare = expected < _LEAST
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] < _LEAST and len(expected) > 1:  # too few for a cell of their own
            seen[-2] += seen[-1]
            expected[-2] += expected[-1]
            seen, expected = seen[:-1], expected[:-1]
    freedom = len(expected) - 1
    if freedom == 0:
        return 0.0
    square = ((seen - expected) ** 2 / expected).sum()
    mean = 1 - 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - mean) / np.sqrt(2 / (9 * freedom)))
