"""From rows of logits to tokens: what an engine does after each forward pass."""

# [sample]
import numpy as np

import sluice

logits = np.array([[1.5, 0.25, 3.0, 2.75, -1.0, 2.5]], dtype=np.float32)  # or a torch tensor

# Without history: any rows, any parameters, one value or one a row.
tokens = sluice.sample(logits, temperature=0.8, top_k=4, top_p=0.9, seed=42, position=7)
print(f"token {tokens.ids[0]}, drawn from {tokens.cuts.counts[0]} candidates")

# With it: penalties, masks and drafts act on each request's own tokens.
sampler = sluice.Sampler(vocab=6)
request = sampler.add(top_k=4, top_p=0.9, repetition_penalty=1.1, seed=42, prompt=[2, 0])
tokens = sampler.step(logits, [request])
print(f"history {sampler.tokens(request).tolist()}")
# [sample]

assert sampler.tokens(request).tolist() == [2, 0, *tokens.ids]
