#!/usr/bin/env python3
"""Bits per byte on the held-out books: how many bits the model needs for a byte of unseen text.

    evaluate.py DATA MODEL [--json FILE]     MODEL: a checkpoint, or the folder of an export

A book is cut into windows of `context` tokens and nothing is carried from one to the next, so each
token is predicted once, from 1 to `context` tokens. Unlike a loss per token, the figure does not
depend on the tokenizer. A checkpoint is computed in fp32, an export in W8A8 as by the runtime.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from books import Book, open_library
from model import Llama, losses
from model_files import load_model


@torch.no_grad()
def book_nats(model: Llama, book: Book, batch: int, device: str) -> float:
    """The loss of the whole book in nats."""
    context = model.config.context
    padding = -(len(book.tokens) - 1) % (batch * context)  # batches of one shape suit torch.compile
    inputs = torch.nn.functional.pad(book.tokens[:-1], (0, padding), value=0)
    targets = torch.nn.functional.pad(book.tokens[1:], (0, padding), value=-100)
    total = 0.0
    for x, y in zip(inputs.view(-1, batch, context), targets.view(-1, batch, context)):
        total += losses(model(x.to(device)), y.to(device)).double().sum().item()
    return total


def evaluate(model: Llama, books: list[Book], batch: int, device: str) -> dict[str, float]:
    """File name -> bits per byte, and "all": of all books together."""
    was_training = model.training
    model.eval()
    nats = {book.file: book_nats(model, book, batch, device) for book in books}
    model.train(was_training)
    bits = {book.file: nats[book.file] / math.log(2) / book.bytes for book in books}
    bits["all"] = sum(nats.values()) / math.log(2) / sum(book.bytes for book in books)
    return bits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    library = open_library(arguments.data)
    model = load_model(arguments.model).to(arguments.device)
    bits = evaluate(model, library.held_out, arguments.batch, arguments.device)
    for name, value in bits.items():
        print(f"{name:40} {value:.4f} bits per byte")
    if arguments.json:
        arguments.json.write_text(json.dumps(bits, indent=1) + "\n")


if __name__ == "__main__":
    main()
