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
following = sampler.step(logits, requests)  # nothing has waited yet
ids = step.get().ids  # waits for one copy
# [step]

host = sluice.Sampler(vocab=1000)
expected = [host.add(top_k=50, repetition_penalty=1.1, seed=7, prompt=[1, 2, 3]),
            host.add(temperature=0.7, top_p=0.9, seed=8)]
for one in (step, following):
    assert host.step(logits.cpu().numpy(), expected).ids.tolist() == one.get().ids.tolist()
assert next_ids.tolist() == ids.tolist() and sampler.waits == 0


# [processors]
def forbid_the_last(rows):  # enqueued like the rest: nothing here waits for the device
    last = rows.tokens.gather(0, rows.token_count.long() - 1)
    rows.logits.index_fill_(1, last.long(), -torch.inf)


sampler = sluice.DeviceSampler(vocab=1000, max_requests=2, max_processed_rows=1, kept=True,
                               masses=True)
requests = [sampler.add(top_k=50, seed=7, prompt=[1, 2, 3], processors=[forbid_the_last]),
            sampler.add(top_p=0.9, seed=8)]
step = sampler.step(logits, requests)
kept = step.kept  # int32 [rows, ceil(vocab / 32)] on the device, a bit a token
masses = step.get().cuts.kept_masses  # of the host, as the ids of the answer
# [processors]


def forbid_the_last_on_the_host(tokens, prompt_length, logits):
    logits[tokens[-1]] = float("-inf")


host = sluice.Sampler(vocab=1000)
expected = [host.add(top_k=50, seed=7, prompt=[1, 2, 3], processors=[forbid_the_last_on_the_host]),
            host.add(top_p=0.9, seed=8)]
for one in (step, sampler.step(logits, requests)):
    same = host.step(logits.cpu().numpy(), expected, kept=True, masses=True)
    assert same.ids.tolist() == one.get().ids.tolist()
    assert same.kept.tolist() == one.kept.tolist()
    assert same.cuts.kept_masses.tolist() == one.get().cuts.kept_masses.tolist()
print("ids", ids.tolist())
