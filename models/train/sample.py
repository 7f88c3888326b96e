#!/usr/bin/env python3
"""Writes a few lines with the model, to look at it before the runtime does; needs `tokenizers`.

    sample.py DATA MODEL "Once upon a time" [--temperature 0.8 --top-p 0.95 --seed 1 --tokens 200]

Every token costs a whole forward pass over the text so far: simple and slow.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer

from model_files import load_model


def draw(logits, temperature: float, top_p: float, generator) -> int:
    probabilities, ids = torch.softmax(logits / temperature, dim=-1).sort(descending=True)
    before = probabilities.cumsum(-1) - probabilities
    kept = probabilities * (before < top_p)
    return ids[torch.multinomial(kept, 1, generator=generator)].item()


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer.json"))
    model = load_model(arguments.model)
    generator = torch.Generator().manual_seed(arguments.seed)
    ids = tokenizer.encode(arguments.prompt).ids
    for _ in range(arguments.tokens):
        logits = model(torch.tensor([ids[-model.config.context:]]))[0, -1]
        ids.append(draw(logits, arguments.temperature, arguments.top_p, generator))
        if ids[-1] == 0:
            break
    print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
