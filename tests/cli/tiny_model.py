"""A folder with a Llama of random weights and the vocabulary of a fixture, for tests of the command.

    write(folder, root)  # root: of the repository
"""

import json
import random
import shutil
import struct
from pathlib import Path

VOCAB, DIM, HEADS, FFN, LAYERS, CONTEXT = 427, 32, 4, 48, 2, 96


def write(folder, root, context=CONTEXT, vocab=VOCAB, generation_config=None, chat_template=None):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(root) / "tests/fixtures/tokenizers/llama3.json", folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": vocab, "hidden_size": DIM, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2, "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "eos_token_id": None}))
    if generation_config is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)

    source = random.Random(7)
    header, data = {}, bytearray()

    def add(name, *shape, deviation=0.3, mean=0.0):
        count = 1
        for size in shape:
            count *= size
        values = [source.gauss(mean, deviation) for _ in range(count)]
        begin = len(data)
        data.extend(struct.pack(f"<{count}f", *values))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}

    add("model.embed_tokens.weight", vocab, DIM, deviation=0.5)
    add("model.norm.weight", DIM, deviation=0.1, mean=1.0)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            add(f"{prefix}{name}.weight", DIM, deviation=0.1, mean=1.0)
        for name, rows in (("q", DIM), ("k", DIM // 2), ("v", DIM // 2), ("o", DIM)):
            add(f"{prefix}self_attn.{name}_proj.weight", rows, DIM)
        add(f"{prefix}mlp.gate_proj.weight", FFN, DIM)
        add(f"{prefix}mlp.up_proj.weight", FFN, DIM)
        add(f"{prefix}mlp.down_proj.weight", DIM, FFN)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
