#!/usr/bin/env python3
"""Rounds a checkpoint to int8 and writes the folder that the runtime reads: the last step.

    export.py CHECKPOINT DATA FOLDER

Writes config.json, model.safetensors, tokenizer.json and generation_config.json as Hugging Face
names and stores them. Tensors are named as by compressed-tensors and lie in the order in which a
token's forward pass reads them:
    X.weight I8 [out, in], X.weight_scale F32 [out, 1]     matrices (int8.py)
    model.embed_tokens.weight, .weight_scale               likewise; the scales are powers of two,
                                                           for the head is read as bf16, exactly
    the norms                                              F32
"""

import argparse
import json
import shutil
from pathlib import Path

from int8 import quantise_rows
from model import Config
from tensors_file import read_tensors, write_tensors

EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}

WEIGHTS = {**EIGHT_BITS, "strategy": "channel"}

QUANTISATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],  # the embeddings, of which only the weights are rounded
    "config_groups": {
        "group_0": {
            "format": "int-quantized",  # else it is packed where activations are not rounded
            "targets": ["Linear"],
            "weights": WEIGHTS,
            "input_activations": {**EIGHT_BITS, "strategy": "token", "dynamic": True},
        },
        "group_1": {"format": "int-quantized", "targets": ["Embedding"], "weights": WEIGHTS},
    },
}


def hugging_face_config(config: Config) -> dict:
    return {
        # Mistral's decoder is Llama's, and transformers takes heads of any width for it: Llama's
        # must be hidden_size / num_attention_heads wide.
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "vocab_size": config.vocab,
        "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "sliding_window": None,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
        "quantization_config": QUANTISATION,
    }


# At 0.5 and below so small a model runs into loops.
GENERATION = {"bos_token_id": 0, "eos_token_id": 0, "do_sample": True, "temperature": 0.8,
              "top_p": 0.95}


def quantised(tensors: dict) -> dict:
    stored = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            is_embedding = name == "model.embed_tokens.weight"
            codes, scale = quantise_rows(tensor, power_of_two=is_embedding)
            stored[name], stored[f"{name}_scale"] = codes, scale
        else:
            stored[name] = tensor
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()

    tensors, metadata = read_tensors(arguments.checkpoint)
    config = Config(**json.loads(metadata["config"]))
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("config.json", hugging_face_config(config)),
                        ("generation_config.json", GENERATION)):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    shutil.copyfile(arguments.data / "tokenizer.json", folder / "tokenizer.json")
    write_tensors(folder / "model.safetensors", quantised(tensors),
                  {"format": "pt", "training": metadata["training"]})
    size = (folder / "model.safetensors").stat().st_size
    print(f"export: {sum(t.size for t in tensors.values()):,} parameters, {size:,} bytes, {folder}")


if __name__ == "__main__":
    main()
