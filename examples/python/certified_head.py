"""From hidden states to tokens: a vocabulary projection that reads a quarter of its weights."""

import os
import sys
import tempfile

import numpy as np

import sluice

random = np.random.default_rng(1)
weight = random.normal(size=(4000, 256)).astype(np.float32)  # where a model's own would lie
hidden = (0.1 * weight[[11, 22, 33]] + 0.1 * random.normal(size=(3, 256))).astype(np.float32)
path = os.path.join(tempfile.mkdtemp(), "head.planes")


def show(rows, vocab):
    print(f"\rplanes: {rows} of {vocab} rows", end="", file=sys.stderr, flush=True)


# [head]
head = sluice.CertifiedHead(weight, threads=sluice.Threads(2), progress=show)  # builds the planes
head.save(path)  # without the weights; the next start maps the file and compares its hashes
head = sluice.CertifiedHead(weight, planes=path)

tokens = head.sample(hidden, temperature=0.8, top_p=0.9, seed=42, position=7)
print(tokens.ids, head.stats["bytes_read"] / head.stats["dense_bytes"])
# [head]

# [step]
sampler = sluice.Sampler(vocab=4000)
requests = [
    sampler.add(top_p=0.9, repetition_penalty=1.1, seed=1, prompt=[5, 7, 9]),
    sampler.add(temperature=0, logit_bias={22: -5.0}, seed=2),
    sampler.add(top_k=50, min_tokens=8, stop_token_ids=[33], seed=3),
]
tokens = sampler.step_from_head(head, hidden, requests)  # which the requests have accepted
# [step]

logits = sluice.dense_head(weight, hidden)
twin = sluice.Sampler(vocab=4000)
of_twin = [
    twin.add(top_p=0.9, repetition_penalty=1.1, seed=1, prompt=[5, 7, 9]),
    twin.add(temperature=0, logit_bias={22: -5.0}, seed=2),
    twin.add(top_k=50, min_tokens=8, stop_token_ids=[33], seed=3),
]
assert (twin.step(logits, of_twin).ids == tokens.ids).all()
assert tokens.ids[2] != 33 and sampler.tokens(requests[1]).tolist() == [tokens.ids[1]]
