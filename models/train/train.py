#!/usr/bin/env python3
"""Trains the model: step 2, one GPU, minutes. torch and numpy are all it needs.

    train.py DATA OUT --held-out --tokens 264e6     without the held-out books, to be measured
    train.py DATA OUT --all --tokens 264e6          on all books, to be shipped

Writes OUT/checkpoint.safetensors (model_files.py) and OUT/log.jsonl: a line every few seconds with
the loss since the last line (nats a token, under dropout) and the bits per byte of the held-out
books, which with --all the model has read. Training ends with --tokens or --seconds, whichever
comes first; the learning rate follows. With --tokens alone the run depends on nothing but its
arguments, and on one machine repeats but for the order in which a GPU adds.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from books import Library, open_library, training_batches
from evaluate import evaluate
from model import Config, Llama, losses
from model_files import save_checkpoint
from muon import Muon

WARM_UP_STEPS = 100
FINAL_RATE = 0.05  # of the full rate
GRADIENT_CLIP = 1.0

# The sizes that are options; the vocabulary is the data's.
SIZES = ("dim", "layers", "heads", "kv_heads", "head_dim", "ffn_dim", "context")


def rate(step: int, progress: float, decay_share: float) -> float:
    """The share of the full learning rate: up, constant, and down in a straight line."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    decay = min(1.0, max(0.0, 1 - progress) / decay_share)
    return warm_up * (FINAL_RATE + (1 - FINAL_RATE) * decay)


def make_optimisers(model: Llama, arguments) -> list[torch.optim.Optimizer]:
    embedding = model.model["embed_tokens"].weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    norms = [p for p in model.parameters() if p.ndim == 1]
    adam_groups = [{"params": [embedding], "weight_decay": arguments.weight_decay},
                   {"params": norms, "weight_decay": 0.0}]
    return [Muon(matrices, lr=arguments.matrix_rate, weight_decay=arguments.weight_decay),
            torch.optim.AdamW(adam_groups, lr=arguments.embedding_rate, betas=(0.9, 0.95),
                              fused=embedding.is_cuda)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    books = parser.add_mutually_exclusive_group(required=True)
    books.add_argument("--held-out", action="store_true", help="leave the held-out books out")
    books.add_argument("--all", action="store_true", help="train on every book")
    parser.add_argument("--tokens", type=float, default=float("inf"), help="budget")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="budget")
    parser.add_argument("--batch", type=int, default=32, help="windows a step")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--matrix-rate", type=float, default=0.02, help="learning rate of Muon")
    parser.add_argument("--embedding-rate", type=float, default=3e-3, help="learning rate of AdamW")
    parser.add_argument("--decay-share", type=float, default=0.45,
                        help="of the run, at its end, in which the rates fall")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile, 20 to 60 s at first")
    parser.add_argument("--log-seconds", type=float, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int,
                            default=getattr(Config, name))
    arguments = parser.parse_args()
    if arguments.tokens == arguments.seconds == float("inf"):
        parser.error("--tokens or --seconds is needed")
    return arguments


class Log:
    """A line every few seconds, on stdout and in log.jsonl."""

    def __init__(self, path: Path, every: float):
        self.file = open(path, "w", encoding="utf-8")
        self.every = every
        self.last = time.monotonic()
        self.losses = []  # tensors: to read each at once would make the GPU wait

    def is_due(self) -> bool:
        return time.monotonic() - self.last >= self.every

    def write(self, step: int, tokens: int, epochs: float, seconds: float, bits: dict) -> None:
        loss = torch.stack(self.losses).mean().item()
        row = {"step": step, "tokens": tokens, "epochs": round(epochs, 2),
               "seconds": round(seconds, 1), "loss": round(loss, 4),
               "bits_per_byte": {name: round(value, 4) for name, value in bits.items()}}
        print(json.dumps(row), file=self.file, flush=True)
        print(f"{seconds:6.0f} s  step {step:6}  {tokens / 1e6:6.1f} M tokens  {epochs:5.1f} epochs"
              f"  loss {loss:.3f}  {bits['all']:.4f} bits per byte", flush=True)
        self.losses.clear()
        self.last = time.monotonic()


def train(model: Llama, library: Library, arguments) -> dict:
    """Trains in place; returns the steps and tokens it took."""
    device = arguments.device
    text = library.training_tokens(with_held_out=arguments.all).to(device)
    generator = torch.Generator().manual_seed(arguments.seed)  # the order of the text
    batches = training_batches(text, arguments.batch, model.config.context, generator)
    mixed_precision = torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu")
    optimisers = make_optimisers(model, arguments)
    groups = [(group, group["lr"]) for optimiser in optimisers for group in optimiser.param_groups]
    log = Log(arguments.out / "log.jsonl", arguments.log_seconds)
    batch_losses = losses
    if arguments.compile:
        for layer in model.model["layers"]:  # alike, so one compilation serves all
            layer.compile()
        batch_losses = torch.compile(losses)

    step, progress, start = 0, 0.0, None
    while progress < 1:
        for group, full_rate in groups:
            group["lr"] = full_rate * rate(step, progress, arguments.decay_share)
        inputs, targets = next(batches)
        with mixed_precision:
            loss = batch_losses(model(inputs), targets).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()

        step += 1
        tokens = step * inputs.numel()
        seconds = time.monotonic() - start if start else 0.0
        progress = max(tokens / arguments.tokens, seconds / arguments.seconds)
        log.losses.append(loss.detach())
        if step == 1 or log.is_due() or progress >= 1:
            with mixed_precision:
                bits = evaluate(model, library.held_out, arguments.batch, device)
            log.write(step, tokens, tokens / len(text), seconds, bits)
        # The first step and measurement may compile; the clock starts behind them.
        start = start or time.monotonic()
    return {"steps": step, "tokens_seen": tokens}


def main() -> None:
    arguments = parse_arguments()
    library = open_library(arguments.data)
    torch.manual_seed(arguments.seed)  # weights and dropout
    sizes = {name: getattr(arguments, name) for name in SIZES}
    model = Llama(Config(vocab=library.vocab, **sizes), arguments.dropout)
    model.to(arguments.device).train()
    arguments.out.mkdir(parents=True, exist_ok=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"train: {parameters:,} parameters, torch {torch.__version__}, {arguments.device}",
          flush=True)

    result = train(model, library, arguments)
    settings = {name: value for name, value in vars(arguments).items()
                if name not in (*SIZES, "data", "out", "device", "log_seconds")
                and value != float("inf")}
    save_checkpoint(arguments.out / "checkpoint.safetensors", model,
                    {**settings, **result, "corpus_sha256": library.corpus_sha256,
                     "torch": torch.__version__})


if __name__ == "__main__":
    main()
