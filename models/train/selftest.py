#!/usr/bin/env python3
"""Runs every step on made-up books and a model of 30,000 weights: a minute on a CPU.

    selftest.py

What it promises: the model learns; an export has the layout of its contract; what it computes is
close to the checkpoint; transformers, where it is installed, loads both and finds the same loss.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from books import open_library
from int8 import quantise_rows
from model import losses
from model_files import load_checkpoint, load_export
from prepare import HELD_OUT
from tensors_file import read_tensors

HERE = Path(__file__).parent


def run(script: str, *arguments) -> None:
    subprocess.run([sys.executable, str(HERE / script), *map(str, arguments)], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # threads cost more than they do


def make_corpus(folder: Path) -> None:
    """Books of sentences that have a pattern to learn."""
    random.seed(1)
    folder.mkdir()
    for name in ("a.txt", "b.txt", *HELD_OUT):
        sentences = (f'"The {random.choice(("king", "queen", "fox", "witch"))} had '
                     f'{random.choice(("three sons", "a golden apple", "no bread"))}," said she.'
                     for _ in range(1000))
        folder.joinpath(name).write_text("\n\n".join(sentences))


def check_layout(export: Path) -> None:
    content = (export / "model.safetensors").read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    assert data % 64 == 0, data
    tensors, _ = read_tensors(export / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.dtype == np.int8:
            assert tensors[f"{name}_scale"].shape == (len(tensor), 1), name
        else:
            assert name.endswith(("_scale", "norm.weight")), name
    embeddings = tensors["model.embed_tokens.weight"].astype(np.float32)
    embeddings *= tensors["model.embed_tokens.weight_scale"]
    assert not (embeddings.view(np.uint32) & 0xFFFF).any(), "the embeddings are not bf16 numbers"


def check_rounding() -> None:
    row = np.array([[127, 2.5, -3.5, -127, 0.5, 0]], dtype=np.float32)
    codes, scale = quantise_rows(np.concatenate([row, 0 * row, row * 4, row * 4.5]), True)
    assert codes[0].tolist() == [127, 2, -4, -127, 0, 0] and not codes[1].any()
    assert scale[:, 0].tolist() == [1, 1, 4, 8]


def check_transformers(checkpoint: Path, export: Path, work: Path, tokens,
                       expected: float) -> None:
    """The checkpoint's loss, and the loss of the export's weights without rounded activations."""
    from transformers import LlamaForCausalLM  # an optional package
    for weights, tolerance in ((checkpoint, 1e-4), (export / "model.safetensors", 0.02)):
        tensors, _ = read_tensors(weights)
        config = json.loads((export / "config.json").read_text())
        del config["quantization_config"]
        (work / "config.json").write_text(json.dumps(config))
        state = {name: torch.from_numpy(tensor * tensors.get(f"{name}_scale", np.float32(1)))
                 for name, tensor in tensors.items() if not name.endswith("_scale")}
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        model = LlamaForCausalLM.from_pretrained(None, config=LlamaForCausalLM.config_class
                                                 .from_pretrained(work), state_dict=state)
        loss = model(tokens, labels=tokens).loss.item()
        print(f"selftest: transformers {loss:.5f} nats a token, here {expected:.5f}: "
              f"{weights.name}")
        assert abs(loss - expected) < tolerance, (loss, expected)


@torch.no_grad()
def main() -> None:
    check_rounding()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        data, out, export = work / "data", work / "out", work / "export"
        make_corpus(work / "corpus")
        run("prepare.py", work / "corpus", data, "--vocab", 280)
        run("train.py", data, out, "--held-out", "--tokens", 150e3, "--batch", 8, "--dim", 32,
            "--layers", 2, "--heads", 4, "--kv-heads", 2, "--head-dim", 16, "--ffn-dim", 64,
            "--context", 64, "--device", "cpu")
        run("export.py", out / "checkpoint.safetensors", data, export)
        run("evaluate.py", data, export, "--json", work / "bits.json", "--device", "cpu")
        check_layout(export)

        lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        bits = [line["bits_per_byte"]["all"] for line in lines]
        assert bits[-1] < 0.25 * bits[0], bits
        exported = json.loads((work / "bits.json").read_text())["all"]
        assert abs(exported / bits[-1] - 1) < 0.02, (exported, bits[-1])

        checkpoint = load_checkpoint(out / "checkpoint.safetensors")
        assert load_export(export).config == checkpoint.config
        if importlib.util.find_spec("transformers"):
            tokens = open_library(data).held_out[0].tokens[None, :64]
            nats = losses(checkpoint(tokens[:, :-1]), tokens[:, 1:]).mean().item()
            check_transformers(out / "checkpoint.safetensors", export, work, tokens, nats)
        else:
            print("selftest: transformers is not installed, not compared")
    print("selftest: passed")


if __name__ == "__main__":
    main()
