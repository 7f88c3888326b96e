"""The prepared books (prepare.py's DATA folder) as tensors: what training and evaluation read."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch


@dataclasses.dataclass(frozen=True)
class Book:
    file: str
    bytes: int  # of its text, for bits per byte
    held_out: bool
    tokens: torch.Tensor  # int64, the first is <|endoftext|>


@dataclasses.dataclass(frozen=True)
class Library:
    corpus_sha256: str
    vocab: int
    books: list[Book]

    @property
    def held_out(self) -> list[Book]:
        return [book for book in self.books if book.held_out]

    def training_tokens(self, with_held_out: bool) -> torch.Tensor:
        return torch.cat([book.tokens for book in self.books if with_held_out or not book.held_out])


def open_library(data: Path) -> Library:
    index = json.loads((data / "books.json").read_text())
    tokens = torch.from_numpy(np.fromfile(data / "tokens.bin", dtype="<u2").astype(np.int64))
    counts = [row["tokens"] for row in index["books"]]
    if sum(counts) != len(tokens):
        raise SystemExit(f"{data}: tokens.bin has {len(tokens)} tokens, books.json {sum(counts)}")
    books = [Book(row["file"], row["bytes"], row["held_out"], part)
             for row, part in zip(index["books"], tokens.split(counts))]
    return Library(index["corpus_sha256"], index["vocab"], books)


def training_batches(tokens: torch.Tensor, batch: int, context: int,
                     generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (inputs, targets), each [batch, context], on the device of `tokens`.

    An epoch is every window of the text once, in random order. Its windows begin at a random
    offset, so that a token does not keep its place in the context from epoch to epoch.
    """
    if len(tokens) < (batch + 1) * context + 1:
        raise SystemExit(f"{len(tokens)} tokens are too few for batches of {batch} x {context}")
    place = torch.arange(context + 1, device=tokens.device)
    while True:
        offset = torch.randint(context, (), generator=generator).item()
        windows = (len(tokens) - 1 - offset) // context
        starts = torch.randperm(windows, generator=generator) * context + offset
        for first in range(0, windows - batch + 1, batch):
            rows = starts[first:first + batch].to(tokens.device)
            window = tokens[rows[:, None] + place]
            yield window[:, :-1], window[:, 1:]
