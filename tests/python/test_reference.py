"""sluice.reference as it is installed: the same bits as the compiled half of the package."""

import sys

import numpy as np

import sluice
import sluice.reference as reference

PROFILES = sorted(reference.PROFILES)


def random_row(random, vocab):
    row = random.normal(0, 3, vocab)
    kind = random.integers(5)
    if kind == 1:  # ties
        row = np.round(row)
    elif kind == 2:  # most of it masked
        row[random.random(vocab) < 0.8] = -np.inf
    elif kind == 3:  # far below the largest, where weights end
        row = -20 * np.abs(row)
    elif kind == 4 and random.random() < 0.3:
        row[random.integers(vocab)] = random.choice([np.nan, np.inf])
    return row.astype(np.float32)


def random_params(random):
    some = {
        "temperature": [0.0, 0.7, 1.3, 1e-3, -1.0],  # the last gives a status
        "top_k": [1, 5, 50, -1],
        "top_p": [0.5, 0.9, 0.99, 1e-6],
        "min_p": [0.05, 0.5, 1.0],
        "top_n_sigma": [1.0, 0.3],
        "typical_p": [0.9, 0.2],
        "xtc_probability": [0.5, 1.0],
        "xtc_threshold": [0.0, 0.3],
    }
    return {name: float(random.choice(values)) if name != "top_k" else int(random.choice(values))
            for name, values in some.items() if random.random() < 0.35}


def bits(value):
    return np.float32(value).view("u4")


# 20 batches of 25 rows.
def test_500_random_rows():
    random = np.random.default_rng(0)
    defaults = {p["name"]: p["default"] for p in sluice.parameters()}
    for _ in range(20):
        vocab = int(random.integers(1, 300))
        rows = np.array([random_row(random, vocab) for _ in range(25)])
        params = [random_params(random) for _ in rows]
        profiles = [str(random.choice(PROFILES)) for _ in rows]
        keys = {"seed": random.integers(2**63, size=25),
                "position": random.integers(2**31, size=25)}
        columns = {name: [p.get(name, defaults[name]) for p in params] for name in (
            "temperature", "top_k", "top_p", "min_p", "top_n_sigma", "typical_p", "xtc_probability",
            "xtc_threshold")}
        method = str(random.choice(["gumbel", "cdf"]))
        cuts = sluice.select(rows, **columns, **keys, profile=profiles, masses=True)
        tokens = sluice.sample(rows, **columns, **keys, profile=profiles, draw_method=method)
        for r, row in enumerate(rows):
            key = reference.NoiseKey(int(keys["seed"][r]), int(keys["position"][r]))
            own = {**params[r], "profile": profiles[r], "key": key}
            selection = reference.select(row, **own)
            token = reference.sample(row, **own, draw_method=method)
            cut, mass, where = selection.cut, selection.mass, (r, own)
            assert cut == token.cut, where
            assert bits(cut.upper) == bits(cuts.upper[r]), where
            assert bits(cut.lower) == bits(cuts.lower[r]), where
            assert (cut.ties_dropped, cut.ties_kept, cut.count, cut.status) == (
                cuts.ties_dropped[r], cuts.ties_kept[r], cuts.counts[r], cuts.statuses[r]), where
            assert (mass.kept, mass.total, mass.margin) == (
                cuts.kept_masses[r], cuts.total_masses[r], cuts.margins[r]), where
            assert (token.id, token.status) == (tokens.ids[r], tokens.statuses[r]), where


def test_it_comes_with_the_package():
    assert reference is sluice.reference is sys.modules["sluice.reference"]
    assert reference.__file__.startswith(sluice.__file__.removesuffix("__init__.py"))
    assert set(reference.__all__) <= set(dir(reference))
