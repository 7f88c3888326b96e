"""Checks of what is kept: by the sampler's own sets where it gives them, else by what is drawn."""

import numpy as np

from sluice.conformance import rows as made
from sluice.conformance.definition import (CONVENTIONS, EXACT_DOUBT, FLOAT32_DOUBT, TIES, Params,
                                           kept_range, weights)

DRAWS_A_ROW = 400  # where sets are found by drawing
DRAWS_OF_KEPT = 25  # where the sampler gives its sets, to see that it draws from them
LOWEST = TIES[0]
LEAST_FLOAT32 = 1e-37  # of the largest probability: below it a float32 may be 0


def arrays_of(params, rows):
    """Parameters of equal rows as a sampler takes them."""
    return {"temperature": np.full(rows, params.temperature, np.float32),
            "top_k": np.full(rows, params.top_k, np.int32),
            "top_p": np.full(rows, params.top_p, np.float32),
            "min_p": np.full(rows, params.min_p, np.float32)}


def is_offered(sampler, params):
    return all(name in sampler.offers or value == getattr(Params(), name)
               for name, value in params._asdict().items())


def drawn_sets(sampler, logits, params, seed, draws):
    """The tokens that are drawn of each row."""
    rows = np.repeat(np.arange(len(logits)), draws)
    seeds = np.arange(len(rows), dtype=np.uint64) + np.uint64(seed * len(rows))
    ids = sampler.draw(logits[rows], arrays_of(params, len(rows)), seeds)
    drawn = np.zeros(logits.shape, bool)
    drawn[rows, ids] = True
    return drawn


def found_sets(sampler, logits, params, seed):
    """(sets, whether they are whole, drawn tokens): those that are drawn are only some of a set."""
    if sampler.keep is None:
        drawn = drawn_sets(sampler, logits, params, seed, DRAWS_A_ROW)
        return drawn, False, drawn
    kept = sampler.kept(logits, arrays_of(params, len(logits)))
    return kept, True, drawn_sets(sampler, logits, params, seed, DRAWS_OF_KEPT)


def judge(row, found, is_whole, params, convention):
    """"equal", "rounding" or "wrong", of one row."""
    for doubt, word in ((EXACT_DOUBT, "equal"), (FLOAT32_DOUBT, "rounding")):
        few, many = kept_range(row, params, convention, doubt)
        if word == "rounding" and params.temperature:
            few = few & (weights(row, params.temperature) > LEAST_FLOAT32)
        if (found <= many).all() and (not is_whole or (few <= found).all()):
            return word
        if is_whole and LOWEST in convention and has_values(row, found, few, many):
            return word
    return "wrong"


def has_values(row, found, few, many):
    """Whether it is one of these sets but for which of the tokens that tie it has."""
    count = found.sum()
    if not few.sum() <= count <= many.sum():
        return False
    return np.array_equal(np.sort(row[found]), np.sort(row[many])[len(row[many]) - count:])


class Sets:
    """Counts how the sets of rows compare with each convention; the best one is the sampler's."""

    def __init__(self, conventions=CONVENTIONS):
        self.counts = {one: {"equal": 0, "rounding": 0, "wrong": 0} for one in conventions}
        self.examples = {}

    def add(self, sampler, logits, params, what, seed=0):
        found, is_whole, drawn = found_sets(sampler, logits, params, seed)
        for at, row in enumerate(logits):
            for convention, counts in self.counts.items():
                word = judge(row, found[at], is_whole, params, convention)
                if (drawn[at] & ~found[at]).any():
                    word = "wrong"
                counts[word] += 1
                if word == "wrong" and convention not in self.examples:
                    few, many = kept_range(row, params, convention, EXACT_DOUBT)
                    self.examples[convention] = (
                        f"{what}, row {at}: {int(found[at].sum())} tokens "
                        f"{'kept' if is_whole else 'drawn'}, {int(few.sum())} expected"
                        f"{'' if few.sum() == many.sum() else f' to {int(many.sum())}'}, "
                        f"{int((found[at] & ~many).sum())} of them not in the set, "
                        f"{int((drawn[at] & ~found[at]).sum())} drawn and not kept")

    def best(self):
        return min(self.counts, key=lambda one: (self.counts[one]["wrong"],
                                                 self.counts[one]["rounding"]))

    def result(self):
        """(passed, sentence)"""
        best = self.best()
        counts = self.counts[best]
        total = sum(counts.values())
        words = f"{counts['equal']} of {total} rows exact"
        if counts["rounding"]:
            words += f", {counts['rounding']} differ as float32 rounds"
        if counts["wrong"]:
            words += f", {counts['wrong']} wrong: {self.examples[best]}"
        return counts["wrong"] == 0, words


def rows_of(vocab, rows, names=tuple(made.DISTRIBUTIONS)):
    for at, name in enumerate(names):
        yield name, made.distribution(name, rows, vocab, seed=at + 1)
