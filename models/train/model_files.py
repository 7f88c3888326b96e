"""The two forms in which a model lies on disk.

checkpoint  one .safetensors, fp32, as train.py leaves it; its metadata say how it was trained
export      a folder with config.json and model.safetensors, int8, as export.py makes it: what the
            repository holds and the runtime reads
"""

import dataclasses
import json
from pathlib import Path

import torch

from int8 import Int8Linear
from model import Config, Llama
from tensors_file import read_tensors, write_tensors


def save_checkpoint(path: Path, model: Llama, training: dict) -> None:
    tensors = {name: tensor.detach().float().cpu().numpy()
               for name, tensor in model.state_dict().items()}
    write_tensors(path, tensors, {"format": "pt", "training": json.dumps(training),
                                  "config": json.dumps(dataclasses.asdict(model.config))})


def load_checkpoint(path: Path) -> Llama:
    tensors, metadata = read_tensors(path)
    model = Llama(Config(**json.loads(metadata["config"])))
    model.load_state_dict({name: torch.from_numpy(tensor.copy())
                           for name, tensor in tensors.items()})
    return model.eval()


def load_export(folder: Path) -> Llama:
    """Computes as the runtime does, on either device; its logits are fp32."""
    stored = json.loads((folder / "config.json").read_text())
    model = Llama(Config(
        vocab=stored["vocab_size"], dim=stored["hidden_size"], layers=stored["num_hidden_layers"],
        heads=stored["num_attention_heads"], kv_heads=stored["num_key_value_heads"],
        head_dim=stored["head_dim"], ffn_dim=stored["intermediate_size"],
        context=stored["max_position_embeddings"], rope_theta=stored["rope_theta"],
        norm_eps=stored["rms_norm_eps"]))
    arrays, _ = read_tensors(folder / "model.safetensors")
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        module_name, _, kind = name.rpartition(".")
        if kind == "weight_scale":
            continue
        module = model.get_submodule(module_name)
        if isinstance(module, torch.nn.Linear):
            parent, _, child = module_name.rpartition(".")
            linear = Int8Linear(tensor, tensors[f"{module_name}.weight_scale"])
            setattr(model.get_submodule(parent), child, linear)
        else:
            scale = tensors.get(f"{module_name}.weight_scale", 1)
            module.weight.data.copy_(tensor * scale)
    return model.eval()


def load_model(path: Path) -> Llama:
    return load_export(path) if path.is_dir() else load_checkpoint(path)
