"""Sluice inside transformers, on a model of random weights."""

import torch
import transformers

import sluice.hf

torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=500, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
    num_attention_heads=4, pad_token_id=0, eos_token_id=None)).eval()
inputs = {"input_ids": torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]]),
          "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])}

# [processor]
processor = sluice.hf.LogitsProcessor(temperature=0.8, top_k=[50, 20], top_p=0.9)
model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=8, logits_processor=[processor])
# [processor]

# [generate]
sampling = sluice.hf.Generate(seed=[1, 2])  # one a prompt
output = model.generate(**inputs, do_sample=True, temperature=0.8, top_k=50, max_new_tokens=8,
                        custom_generate=sampling)
# [generate]

# [head]
dense = sluice.hf.replace_lm_head(model, k=50)
again = model.generate(**inputs, do_sample=True, temperature=0.8, top_k=50, max_new_tokens=8,
                       custom_generate=sampling)
print(model.lm_head.head.stats)
model.set_output_embeddings(dense)
# [head]

assert output.equal(again)
print("tokens", *output[0, 4:].tolist())
