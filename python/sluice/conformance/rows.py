"""Rows of logits: fifteen distributions, and rows that break samplers."""

import numpy as np


def _relu(noise):
    return np.maximum(noise, 0)


def _ramp(noise):
    return 0.5 * noise + 6 * np.linspace(0, 1, noise.shape[-1]) ** 2


def _mostly_masked(noise):
    place = np.arange(noise.shape[-1])
    return np.where(place % 10 == 0, noise, -np.inf)


def _rounded(noise):
    """To the 8 bits of bfloat16, which makes ties."""
    return (np.round(noise.astype(np.float32) * 64) / 64).astype(np.float32)


DISTRIBUTIONS = {
    "normal": lambda noise: noise,
    "of a model": lambda noise: 2.5 * noise,
    "narrow": lambda noise: 5 + 1e-3 * noise,
    "two steps of float32": lambda noise: 5 + 1e-6 * noise,
    "ascending": lambda noise: np.sort(noise, axis=-1),
    "descending": lambda noise: -np.sort(noise, axis=-1),
    "half of it zero": _relu,
    "nearly all zero": lambda noise: _relu(noise - 2.5),
    "long tail": lambda noise: np.exp(2 * noise),
    "nine of ten masked": _mostly_masked,
    "large": lambda noise: 1e4 * noise,
    "constant": lambda noise: np.full_like(noise, 1.5),
    "negative": lambda noise: -np.exp(noise),
    "rounded": _rounded,
    "ramp": _ramp,
}


def distribution(name, rows, vocab, seed):
    noise = np.random.default_rng(seed).normal(size=(rows, vocab))
    return DISTRIBUTIONS[name](noise).astype(np.float32)


def plateau(rows, vocab, seed):
    """Some tokens above, many that tie, the rest below."""
    source = np.random.default_rng(seed)
    values = np.zeros((rows, vocab), np.float32)
    for row in values:
        places = source.permutation(vocab)
        row[places[:3]] = source.uniform(1, 3, 3)
        row[places[vocab // 2:]] = source.uniform(-5, -1, vocab - vocab // 2)
    return values


def hostile(vocab):
    """name: row; what is drawn from them is not defined, but their neighbours are."""
    rows = {"a NaN": np.zeros(vocab), "all NaN": np.full(vocab, np.nan),
            "an infinity": np.zeros(vocab), "two infinities": np.zeros(vocab),
            "all masked": np.full(vocab, -np.inf)}
    rows["a NaN"][vocab // 3] = np.nan
    rows["an infinity"][vocab // 3] = np.inf
    rows["two infinities"][[1, vocab // 2]] = np.inf
    return {name: row.astype(np.float32) for name, row in rows.items()}


def extreme(vocab):
    """name: (row, the one token that can be drawn); finite rows at the ends of float32."""
    single, huge, tiny, last = (np.full(vocab, value) for value in (-np.inf, -3e38, -1e-42, 0.0))
    single[vocab - 2] = -7
    huge[5] = 3e38
    tiny[9] = 200
    last[vocab - 1] = 300
    return {"all masked but one": (single.astype(np.float32), vocab - 2),
            "3e38 and -3e38": (huge.astype(np.float32), 5),
            "subnormal numbers": (tiny.astype(np.float32), 9),
            "the last token": (last.astype(np.float32), vocab - 1)}
