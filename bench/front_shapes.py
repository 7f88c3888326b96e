"""Folders of Llama models that never were trained: a front's load has the same tokens whatever the
weights are, and an engine makes these up (load_format dummy).

The vocabulary is that of models/default, whose tokenizer they have, so that every token is a text.
"""

import json
import shutil
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / "models/default"
SHAPES = {"0.1b": (8, 1024, 4096, 16, 4), "1b": (16, 2048, 8192, 32, 8),
          "8b": (32, 4096, 14336, 32, 8)}  # layers, width, of the MLP, heads, of keys


def write(shape, folder):
    layers, width, mlp, heads, key_heads = SHAPES[shape]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "attention_bias": False, "mlp_bias": False, "head_dim": width // heads,
              "vocab_size": 8192, "hidden_size": width, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": key_heads,
              "intermediate_size": mlp, "tie_word_embeddings": shape == "0.1b",
              "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text('{"bos_token_id": 0, "eos_token_id": 0}')
    (folder / "tokenizer_config.json").write_text(json.dumps(  # vLLM looks for its class
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>",
         "eos_token": "<|endoftext|>", "model_max_length": 4096}))
    for name in ("tokenizer.json", "chat_template.jinja"):
        shutil.copy(MODEL / name, folder)
    return str(folder)
