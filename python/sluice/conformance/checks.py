"""The checks of a report card, in its order. Each is (name, promise, function of a sampler and a size);
a function gives (outcome, sentence), where outcome is "pass", "fail", "note" or "not offered"."""

import itertools
from typing import NamedTuple

import numpy as np

from sluice.conformance import rows as made
from sluice.conformance.definition import CONVENTIONS, TIES, Params, kept_range, probabilities
from sluice.conformance.sets import Sets, arrays_of, is_offered, rows_of
from sluice.conformance.statistics import SIGMAS, deviation

ORDER = tuple(one for one in CONVENTIONS if one.min_p == "before top-k")
LOWEST, ALL = (next(one for one in ORDER if {one.ties_k, one.ties_p} == {ties}) for ties in TIES)
NO_SEEDS = "it takes no seed of a row"


class Size(NamedTuple):
    vocab: int = 512
    rows: int = 8  # of each distribution
    draws: int = 20000  # of each row


class Result(NamedTuple):
    name: str
    promise: str
    outcome: str
    sentence: str


def _sets(sampler, size, some, names=tuple(made.DISTRIBUTIONS), conventions=ORDER):
    some = [params for params in some if is_offered(sampler, params)]
    if not some:
        return "not offered", "it does not take these parameters"
    sets = Sets(conventions)
    for params in some:
        for name, logits in rows_of(size.vocab, size.rows, names):
            if name == "two steps of float32" and params.temperature != 1:
                continue  # a quotient of float32 ties them anew: what is kept then is chance
            sets.add(sampler, logits, params, f"{name}, {_shown(params)}")
    passed, sentence = sets.result()
    return ("pass" if passed else "fail"), sentence, sets.best()


def _shown(params):
    return ", ".join(f"{name} = {value}" for name, value in params._asdict().items()
                     if value != getattr(Params(), name)) or "no filter"


def top_k(sampler, size):
    return _sets(sampler, size, [Params(top_k=k) for k in (1, 2, 50, size.vocab, 2 * size.vocab)])[:2]


def top_p(sampler, size):
    return _sets(sampler, size, [Params(top_p=p) for p in (1e-6, 0.1, 0.5, 0.9, 0.999)])[:2]


def both(sampler, size):
    outcome, sentence, *best = _sets(sampler, size, [
        Params(top_k=k, top_p=p, temperature=t)
        for k, p, t in ((50, 0.9, 1.0), (5, 0.5, 1.0), (50, 0.9, 0.6), (200, 0.95, 1.5))])
    return outcome, sentence + (f"; top-p is {best[0].order}" if best else "")


def min_p(sampler, size):
    outcome, sentence, *best = _sets(sampler, size, [
        Params(min_p=0.05), Params(min_p=0.1, top_k=20), Params(min_p=0.02, top_p=0.9),
        Params(min_p=0.1, top_k=40, top_p=0.8)], conventions=CONVENTIONS)
    return outcome, sentence + (f"; min-p comes {best[0].min_p}" if best else "")


def ties(sampler, size):
    """Rows where the boundary falls among tokens that tie."""
    if sampler.keep is None:
        return "not offered", "it gives no sets, and drawn tokens do not show one"
    logits = made.plateau(size.rows * 4, size.vocab, seed=5)
    params = Params(top_k=20)
    kept = sampler.kept(logits, arrays_of(params, len(logits)))
    counts = kept.sum(axis=-1)
    lowest = all((kept[at] == kept_range(row, params, LOWEST, 0)[0]).all()
                 for at, row in enumerate(logits))
    if lowest:
        return "pass", "exactly k, of those that tie the lowest ids"
    if (counts == 20).all():
        again = sampler.kept(logits[:, ::-1].copy(), arrays_of(params, len(logits)))[:, ::-1]
        depends = "by place" if not (again == kept).all() else "by something else"
        return "note", f"exactly k, of those that tie some, {depends}"
    ties_all = all((kept[at] == kept_range(row, params, ALL, 0)[0]).all()
                   for at, row in enumerate(logits))
    return "note", (f"all that tie: {counts.min()} to {counts.max()} tokens for k = 20" if ties_all
                    else f"{counts.min()} to {counts.max()} tokens for k = 20")


def greedy(sampler, size):
    if "temperature" not in sampler.offers:
        return "not offered", "it takes no temperature"
    wrong = rows = lowest = tied = 0
    some = [Params(temperature=0), Params(temperature=0, top_k=20, top_p=0.5, min_p=0.1)]
    for (_, logits), params in itertools.product(rows_of(size.vocab, size.rows), some):
        ids = _ids(sampler, logits, params)
        largest = logits == logits.max(axis=-1, keepdims=True)
        rows += len(ids)
        wrong += int((~largest[np.arange(len(ids)), ids]).sum())
        many = largest.sum(axis=-1) > 1
        tied += int(many.sum())
        lowest += int((ids == largest.argmax(axis=-1))[many].sum())
    if wrong:
        return "fail", f"{wrong} of {rows} rows got a token that is not the largest"
    words = f"{rows} rows; of {tied} with several largest ones {lowest} got the lowest id"
    return ("pass" if lowest == tied else "note"), words


def masked(sampler, size):
    """A token of -inf is never drawn."""
    logits = made.distribution("nine of ten masked", 4, size.vocab, seed=3)
    many = np.repeat(logits, size.draws // 10, axis=0)
    ids = _ids(sampler, many, Params())
    bad = int(np.isneginf(many[np.arange(len(ids)), ids]).sum())
    return ("pass" if bad == 0 else "fail"), f"{bad} of {len(ids)} draws gave a masked token"


def extremes(sampler, size):
    """Finite rows of which one token has nearly all of the mass."""
    wrong = []
    for name, (row, expected) in made.extreme(size.vocab).items():
        ids = _ids(sampler, np.repeat(row[None], 8, axis=0), Params())
        if (ids != expected).any():
            wrong.append(f"{name}: {sorted(set(ids.tolist()))[:4]} where {expected} is the token")
    return ("fail", "; ".join(wrong)) if wrong else ("pass", "4 kinds of rows")


def neighbours(sampler, size):
    """What stands in other rows, NaN too, changes nothing."""
    good = made.distribution("of a model", 5, size.vocab, seed=9)
    params, seeds = Params(top_k=50, top_p=0.9), np.arange(5, dtype=np.uint64)
    expected = _draw(sampler, good, params, seeds) if "seeds" in sampler.offers else None
    kept = kept_range_of(good, params)
    lost = []
    for name, row in made.hostile(size.vocab).items():
        rows = np.repeat(good, 2, axis=0)
        rows[1::2] = row
        try:
            ids = _draw(sampler, rows, params, np.repeat(seeds, 2))[::2]
        except Exception as error:
            lost.append(f"{name}: {type(error).__name__}, and the whole batch has no tokens")
            continue
        if expected is not None and (ids != expected).any():
            lost.append(f"{name}: {int((ids != expected).sum())} of 5 neighbours get other tokens")
        elif expected is None and not kept[np.arange(5), ids].all():
            lost.append(f"{name}: a neighbour gets a token that it does not keep")
    return ("fail", "; ".join(lost)) if lost else ("pass", "5 kinds of rows that have no draw")


def mixed(sampler, size):
    """Rows of one batch with parameters of their own."""
    some = [one for one in (Params(), Params(top_k=3), Params(top_p=0.3), Params(min_p=0.3),
                            Params(temperature=0), Params(temperature=0.5, top_k=30, top_p=0.7),
                            Params(top_k=50, top_p=0.9, min_p=0.05)) if is_offered(sampler, one)]
    if len(some) < 2:
        return "not offered", "it takes no parameter of a row"
    logits = made.distribution("of a model", len(some), size.vocab, seed=11)
    rows = np.tile(np.arange(len(some)), 100)
    given = {name: np.concatenate([arrays_of(some[row], 1)[name] for row in rows])
             for name in arrays_of(Params(), 1)}
    ids = sampler.draw(logits[rows], given, np.arange(len(rows), dtype=np.uint64))
    may = np.stack([np.logical_or.reduce([kept_range(row, params, one, 1e-5)[1]
                                          for one in CONVENTIONS])
                    for row, params in zip(logits, some)])
    for row, params in enumerate(some):
        if not may[row, ids[rows == row]].all():
            return "fail", f"a row with {_shown(params)} got a token that it does not keep"
        if may[row].sum() > 10 and len(set(ids[rows == row].tolist())) < 3:
            return "fail", f"a row with {_shown(params)} got fewer tokens than it keeps"
    return "pass", f"{len(some)} kinds of parameters in a batch of {len(rows)} rows"


def kept_range_of(logits, params):
    return np.stack([np.logical_or.reduce([kept_range(row, params, one, 1e-5)[1] for one in ORDER])
                     for row in logits])


def distribution(sampler, size):
    """Draws against exact probabilities."""
    worst, where, tested = 0.0, "", 0
    some = [Params(), Params(temperature=0.7), Params(top_k=10), Params(top_p=0.8),
            Params(min_p=0.05), Params(top_k=40, top_p=0.9, temperature=1.3)]
    for at, params in enumerate(some):
        if not is_offered(sampler, params):
            continue
        for name in ("of a model", "nine of ten masked", "long tail"):
            row = made.distribution(name, 1, size.vocab, seed=20 + at)[0]
            ids = _ids(sampler, np.repeat(row[None], size.draws, axis=0), params)
            # A convention of its own is seen by the sets; here the best one is taken.
            found = min((deviation(ids, probabilities(row, kept_range(row, params, one, 0)[0],
                                                      params.temperature)) for one in ORDER))
            tested += 1
            if found > worst:
                worst, where = found, f"{name}, {_shown(params)}"
    words = f"{tested} rows of {size.draws} draws, the worst {worst:.1f} deviations from chi-square"
    return ("pass", words) if worst < SIGMAS else ("fail", f"{words} ({where})")


def repeats(sampler, size):
    if "seeds" not in sampler.offers:
        return "not offered", NO_SEEDS
    logits, params = made.distribution("of a model", 64, size.vocab, seed=4), Params(top_p=0.95)
    seeds = np.arange(64, dtype=np.uint64)
    first, again = (_ids(sampler, logits, params, seeds) for _ in range(2))
    if (first != again).any():
        return "fail", f"{int((first != again).sum())} of 64 rows differ the second time"
    for bit in (0, 15, 31, 32, 63):
        other = _ids(sampler, logits, params, seeds ^ np.uint64(1 << bit))
        if (first == other).mean() > 0.9:
            return "fail", f"seeds that differ in bit {bit} give the same tokens"
    return "pass", "64 rows twice, and other tokens by seeds that differ in one bit"


def batches(sampler, size):
    if "seeds" not in sampler.offers:
        return "not offered", NO_SEEDS
    logits, params = made.distribution("of a model", 96, size.vocab, seed=6), Params(top_p=0.95)
    seeds = np.arange(96, dtype=np.uint64) * np.uint64(7)
    together = _ids(sampler, logits, params, seeds)
    alone = np.array([_ids(sampler, logits[at:at + 1], params, seeds[at:at + 1])[0]
                      for at in range(96)])
    order = np.random.default_rng(1).permutation(96)
    moved = np.empty_like(together)
    moved[order] = _ids(sampler, logits[order], params, seeds[order])
    bad = [f"{int((other != together).sum())} of 96 tokens differ {where}"
           for other, where in ((alone, "alone"), (moved, "in another order"))
           if (other != together).any()]
    return ("fail", "; ".join(bad)) if bad else ("pass", "96 rows together, alone, in another order")


def seeds_of_rows(sampler, size):
    """Neighbouring seeds on neighbouring rows do not draw alike."""
    if "seeds" not in sampler.offers:
        return "not offered", NO_SEEDS
    row = np.zeros(2, np.float32)
    seeds = np.arange(size.draws, dtype=np.uint64)
    ids = _ids(sampler, np.repeat(row[None], size.draws, axis=0), Params(), seeds)
    pairs = ids[:-1] * 2 + ids[1:]
    found = max(deviation(ids, np.full(2, 0.5)), deviation(pairs[::2], np.full(4, 0.25)))
    words = f"{size.draws} seeds in a row, pairs {found:.1f} deviations from chi-square"
    return ("pass" if found < SIGMAS else "fail"), words


def _draw(sampler, logits, params, seeds=None):
    if seeds is None:
        seeds = np.arange(len(logits), dtype=np.uint64) + np.uint64(12345)
    ids = sampler.draw(logits, arrays_of(params, len(logits)), seeds)
    if len(ids) != len(logits):
        raise ValueError(f"{len(ids)} ids for {len(logits)} rows")
    return ids


def _ids(sampler, logits, params, seeds=None):
    """Of rows that all have a draw."""
    ids = _draw(sampler, logits, params, seeds)
    if (ids < 0).any() or (ids >= logits.shape[1]).any():
        raise ValueError(f"ids from {ids.min()} to {ids.max()} of {logits.shape[1]} tokens")
    return ids


CHECKS = (
    ("top-k", "keeps the k most likely tokens", top_k),
    ("top-p", "keeps the fewest tokens that hold p of the mass", top_p),
    ("top-k and top-p", "keeps what both define", both),
    ("min-p", "keeps tokens of at least min-p times the largest probability", min_p),
    ("ties", "keeps exactly k where more tie, and always the same ones", ties),
    ("greedy", "gives the most likely token at temperature 0", greedy),
    ("masks", "never draws a token of -inf", masked),
    ("extremes", "draws the right token from numbers at the ends of float32", extremes),
    ("mixed", "gives each row of a batch its own parameters", mixed),
    ("neighbours", "draws the same whatever stands in other rows", neighbours),
    ("distribution", "draws as often as the probabilities say", distribution),
    ("repeats", "draws the same again by the same seed", repeats),
    ("batches", "draws the same alone, in a batch, in any place", batches),
    ("seeds", "draws independently by neighbouring seeds", seeds_of_rows),
)


def run(sampler, size=Size(), progress=lambda name: None):
    """Results of all checks; an exception of the sampler fails its check."""
    results = []
    for name, promise, check in CHECKS:
        progress(name)
        try:
            outcome, sentence = check(sampler, size)
        except Exception as error:
            outcome, sentence = "fail", f"{type(error).__name__}: {error}"
        results.append(Result(name, promise, outcome, sentence))
    return results
