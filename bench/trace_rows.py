"""What `sluice trace` has written, and its properties. Needs numpy.

    trace = Trace.read(folder)
    trace.kept            [tokens, vocab] bool: the kept sets
    trace.overlaps()      of each kept set the share that was kept one token earlier
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass
class Trace:
    hidden: np.ndarray  # fp32 [tokens, dim]
    logits: np.ndarray  # fp32 [tokens, vocab]
    kept: np.ndarray  # bool [tokens, vocab]
    tokens: np.ndarray  # int32 [tokens]
    about: dict  # trace.json

    @classmethod
    def read(cls, folder):
        folder = Path(folder)
        arrays = {name: np.load(folder / f"{name}.npy")
                  for name in ("hidden", "logits", "kept", "tokens")}
        vocab = arrays["logits"].shape[1]
        arrays["kept"] = bits_of(arrays["kept"], vocab)
        return cls(**arrays, about=json.loads((folder / "trace.json").read_text(encoding="utf-8")))

    @property
    def parameters(self):
        return self.about["parameters"]

    def sizes(self):
        return self.kept.sum(axis=1)

    def overlaps(self, earlier=1):
        """Of each kept set that has one so many tokens earlier, the share that was kept there."""
        return (self.kept[earlier:] & self.kept[:-earlier]).sum(axis=1) / self.sizes()[earlier:]

    def cuts_differ(self):
        """Rows with a kept set that is not what their Cut says of the logits, or lacks the drawn token."""
        differ = 0
        for row, values, token, said in zip(self.kept, self.logits, self.tokens,
                                            self.about["tokens"]):
            cut = said["cut"]
            lower = np.float32(cut["lower"])
            expected = values > lower
            expected[np.flatnonzero(values == lower)[:cut["ties_kept"]]] = True
            is_same = (np.array_equal(row, expected) and row.sum() == cut["count"] and row[token]
                       and said["token"] == token)
            differ += not is_same
        return differ

    def boundaries(self):
        """The smallest logit of each kept set."""
        return np.where(self.kept, self.logits, np.inf).min(axis=1)


def bits_of(words, vocab):
    """Bitmasks of 32-bit words as rows of bool."""
    octets = np.ascontiguousarray(words.astype("<i4")).view(np.uint8)
    return np.unpackbits(octets, axis=1, bitorder="little")[:, :vocab].astype(bool)


def histogram(shares):
    """Of shares in [0, 1]: how many lie in each tenth, and those that are 1 by themselves."""
    tenths = np.minimum((np.asarray(shares) * 10).astype(int), 10)
    return np.bincount(tenths, minlength=11).tolist()


# The guess of this project's Qrita on a GPU, in the formulas of src/research/qrita/truncation.cuh (for p not
# the table of vLLM's Qrita, which guesses higher): a threshold some
# deviations above the mean, and a table that learns them. The sample is the whole row, which is what
# a block's first vectors are of a vocabulary as small as this model's. The kernel's answers are
# tests/research/qrita_cuda_test.cc's to check; this script counts how often its guess would hold.

LEAST_SIGMA, MOST_SIGMA = -8.0, 64.0


def upper_quantile(probability):
    """What a Gaussian exceeds with this probability (Abramowitz and Stegun 26.2.23)."""
    p = min(max(probability, 1e-7), 1.0 - 1e-7)
    t = np.sqrt(-2.0 * np.log(min(p, 1.0 - p)))
    z = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return z if p < 0.5 else -z


def room_of(rows, vocab):
    """Logits that the workspace of a batch holds for each of its rows."""
    note_bytes = (rows * 16 + 15) // 16 * 16
    budget = max(rows * vocab * 4 // 100, 256 * 1024)
    return min((budget - note_bytes) // (4 * rows), 8192, vocab)


class Truncation:
    """Guesses for top-p, row after row. With `learns` an entry of the table goes along."""

    def __init__(self, top_p, room, learns):
        self.top_p, self.room, self.learns, self.learned = top_p, room, learns, 0.0

    def holds(self, logits, boundary):
        """Whether what reaches the guessed threshold fits and holds the kept set; its smallest
        logit is `boundary`; and how many reach it."""
        mean, deviation = logits.mean(dtype=np.float64), logits.std(dtype=np.float64)
        sigma = self.learned
        if sigma == 0.0:
            sigma = 1.0 + upper_quantile(self.top_p)
            sigma -= 0.25 * abs(sigma)
            if self.room is not None:
                sigma = max(sigma, upper_quantile(0.6 * self.room / len(logits)))
        gathered = int((logits >= mean + sigma * deviation).sum())
        fits = self.room is None or gathered <= self.room
        if self.learns:
            self._learn(sigma, gathered, (boundary - mean) / deviation)
        return bool(fits and boundary >= mean + sigma * deviation), gathered

    def _learn(self, sigma, gathered, boundary):
        way, aim, rate = boundary - sigma, sigma, 0.1
        if way < 0:
            aim, rate = boundary + 0.25 * way, 0.5
        elif gathered > self.room:
            aim, rate = sigma + 0.75 * way, 0.5
        elif gathered > self.room / 2:
            aim = sigma + 0.02 * way
        elif gathered < self.room / 8:
            aim = sigma - 0.05 * way
        if LEAST_SIGMA <= aim <= MOST_SIGMA:
            self.learned = self.learned + rate * (aim - self.learned) if self.learned else aim
