"""Whole steps of requests on a GPU, one after the other without a wait, and the CPU's tokens."""

import torch

import sluice

logits = torch.randn(2, 1000, device="cuda")

# [step]
sampler = sluice.DeviceSampler(vocab=1000, max_requests=2, max_tokens=4096)
requests = [sampler.add(top_k=50, repetition_penalty=1.1, seed=7, prompt=[1, 2, 3]),
            sampler.add(temperature=0.7, top_p=0.9, seed=8)]
step = sampler.step(logits, requests)  # enqueued on the current stream
next_ids = step.ids  # on the device, for the next forward pass
following = sampler.step(logits, requests)  # nobody has waited yet
ids = step.get().ids  # waits for one copy
# [step]

host = sluice.Sampler(vocab=1000)
expected = [host.add(top_k=50, repetition_penalty=1.1, seed=7, prompt=[1, 2, 3]),
            host.add(temperature=0.7, top_p=0.9, seed=8)]
for one in (step, following):
    assert host.step(logits.cpu().numpy(), expected).ids.tolist() == one.get().ids.tolist()
assert next_ids.tolist() == ids.tolist() and sampler.waits == 0
print("ids", ids.tolist())
