"""What a row keeps, and how likely its tokens are: sorted and summed in 80-bit floats, one row at a time.

Samplers that are both right differ in four rules, which a Convention names. A mass that is within
`doubt` of the boundary leaves the token there open: sums of float32, as most samplers make them, are
off by some 1e-6, which is not a wrong set.
"""

import itertools
from typing import NamedTuple

import numpy as np

EXACT_DOUBT, FLOAT32_DOUBT = 1e-13, 4e-6  # of the mass; exp and sums of 80 bits are off by less

TIES = ("the lowest ids", "all of them")


class Convention(NamedTuple):
    order: str  # of top-p: "of the k kept", or "of all tokens"
    ties_k: str  # at top-k's boundary: "the lowest ids", or "all of them"
    ties_p: str  # at top-p's
    min_p: str  # "before top-k", or "after top-p"


CONVENTIONS = tuple(itertools.starmap(Convention, itertools.product(
    ("of the k kept", "of all tokens"), TIES, TIES, ("before top-k", "after top-p"))))


class Params(NamedTuple):
    temperature: float = 1.0  # 0: the largest
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0


def weights(row, temperature):
    """exp(logit / temperature), 1 for the largest; the row has a largest one that is finite."""
    logits = row.astype(np.longdouble)
    return np.exp((logits - logits.max()) / np.longdouble(temperature))


def _top_k(order, logits, k, ties):
    kept = order[:k]
    if ties == "all of them" and k < len(order):
        kept = order[:int((logits[order] >= logits[kept[-1]]).sum())]
    return kept


def _top_p(order, logits, mass, p, ties):
    """How many of the first tokens of `order` hold p of the mass."""
    sums = np.cumsum(mass[order])
    at = int(np.searchsorted(sums, np.longdouble(p) * sums[-1])) + 1
    at = min(max(at, 1), len(order))
    if ties == "all of them":
        at = int((logits[order] >= logits[order[at - 1]]).sum())
    return at


def kept_range(row, params, convention, doubt):
    """(smallest, largest) of the sets that may be kept, as arrays of bool."""
    if params.temperature == 0:
        first = np.zeros(len(row), bool)
        largest = row == row.max()
        first[np.flatnonzero(largest)[:1]] = True
        return first, largest
    mass = weights(row, params.temperature)
    order = np.lexsort((np.arange(len(row)), -row.astype(np.longdouble)))
    order = order[mass[order] > 0] if np.isneginf(row).any() else order

    def after_min_p(tokens, at_least):
        return tokens[mass[tokens] >= at_least]

    sets = []
    for slack in (-doubt, doubt):  # the fewest tokens, the most
        least = np.longdouble(np.float32(params.min_p)) * (1 - slack)
        candidates = (after_min_p(order, least) if convention.min_p == "before top-k" else order)
        k = params.top_k if 0 < params.top_k < len(candidates) else len(candidates)
        tokens = of_k = _top_k(candidates, row, k, convention.ties_k)
        if params.top_p < 1:
            whole = of_k if convention.order == "of the k kept" else candidates
            count = _top_p(whole, row, mass, np.float32(params.top_p) + slack, convention.ties_p)
            tokens = of_k[:min(count, len(of_k))]
        if convention.min_p == "after top-p":
            tokens = after_min_p(tokens, least)
        member = np.zeros(len(row), bool)
        member[tokens] = True
        sets.append(member)
    return tuple(sets)


def probabilities(row, kept, temperature):
    mass = np.where(kept, weights(row, temperature or 1.0), 0)
    return (mass / mass.sum()).astype(np.float64)
