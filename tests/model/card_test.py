#!/usr/bin/env python3
"""What models/default and models/train say of the built-in model is what its weights say of
themselves, in the header of model.safetensors. Usage: card_test.py ROOT.
"""

import json
import math
import re
import shlex
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
WEIGHTS = ROOT / "models/default/model.safetensors"


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def header():
    with open(WEIGHTS, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


TENSORS = header()
TRAINING = json.loads(TENSORS.pop("__metadata__")["training"])
CARD = read("models/default/README.md")


class Card(unittest.TestCase):
    def test_it_was_trained_on_all_books_of_the_list(self):
        self.assertIn(TRAINING["corpus_sha256"], read("models/default/SOURCES.md"))
        self.assertTrue(TRAINING["all"])

    def test_the_card_has_its_sizes(self):
        parameters = sum(math.prod(tensor["shape"]) for name, tensor in TENSORS.items()
                         if not name.endswith("_scale"))
        self.assertIn(f"| parameters | {parameters:,} |", CARD)
        self.assertIn(f"matrix; {WEIGHTS.stat().st_size / 1e6:.1f} MB |", CARD)

    def test_the_card_has_its_recipe(self):
        recipe = " ".join(CARD.partition("## Recipe")[2].partition("##")[0].split())
        for said in ("{tokens_seen:.0f} million tokens", "in {steps} steps of {batch} x 1024",
                     "Muon at {matrix_rate} ", "AdamW at {embedding_rate} ",
                     "over the last {decay_share:.0%} of the run", "dropout {dropout}",
                     "weight decay {weight_decay}", "seed {seed}", "torch 2.11"):
            values = {**TRAINING, "tokens_seen": TRAINING["tokens_seen"] / 1e6}
            self.assertIn(said.format(**values).replace("45%", "45 %"), recipe)

    def test_run_sh_trains_as_it_was_trained(self):
        recipe = re.search(r"^recipe=\((.*)\)$", read("models/train/run.sh"), re.MULTILINE)
        words = shlex.split(recipe[1])
        given = {"compile": words.pop() == "--compile"}
        for option, value in zip(words[::2], words[1::2], strict=True):
            given[option.removeprefix("--").replace("-", "_")] = float(value)
        defaults = dict(re.findall(r'add_argument\("--([a-z-]+)", type=\w+, default=([\d.e-]+)',
                                   read("models/train/train.py")))
        results = {"all", "held_out", "steps", "tokens_seen", "corpus_sha256", "torch"}
        for name, value in TRAINING.items():
            if name not in results:
                expected = given.get(name, defaults.get(name.replace("_", "-")))
                self.assertEqual(value, float(expected), name)
        self.assertLessEqual(given.keys(), TRAINING.keys())


if __name__ == "__main__":
    unittest.main()
