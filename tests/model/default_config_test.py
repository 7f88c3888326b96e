#!/usr/bin/env python3
"""What transformers makes of the config.json of the built-in model.

Usage: default_config_test.py SLUICE ROOT. The second test needs numpy, torch, transformers and compressed-tensors.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
MODEL = ROOT / "models/default"
CONFIG = json.loads((MODEL / "config.json").read_text())
PROMPT = "Once upon a time there was"

try:
    import compressed_tensors  # noqa: F401
    import numpy
    import torch
    import transformers
except ImportError:
    transformers = None


class DefaultConfig(unittest.TestCase):
    def test_it_keeps_the_rules_of_transformers(self):
        if CONFIG["model_type"] == "llama":  # LlamaConfig.validate_architecture
            self.assertEqual(CONFIG["hidden_size"] % CONFIG["num_attention_heads"], 0)
        self.assertIsNone(CONFIG.get("sliding_window", 4096))  # Mistral's own is 4096
        quantization = CONFIG["quantization_config"]
        for group in quantization["config_groups"].values():
            self.assertEqual(group.get("format"), quantization["format"])

    @unittest.skipIf(transformers is None, "no torch with transformers and compressed-tensors")
    def test_transformers_computes_its_logits(self):
        loading = transformers.CompressedTensorsConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, quantization_config=loading)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([SLUICE, "trace", PROMPT, "--max-tokens", "1", "--seed", "1", "--quiet",
                            "--output", folder], check=True, capture_output=True)
            ours = numpy.load(Path(folder) / "logits.npy").reshape(-1)
        ids = transformers.AutoTokenizer.from_pretrained(MODEL)(PROMPT).input_ids
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits[0, -1].numpy()
        # Activations are rounded to eight bits here and not there.
        self.assertGreater(numpy.corrcoef(ours, theirs)[0, 1], 0.999)
        self.assertEqual(ours.argmax(), theirs.argmax())


if __name__ == "__main__":
    unittest.main()
