"""A certified head on a GPU: the tokens of the dense head from a quarter of its bytes, in a graph."""

import torch

import sluice

weight = torch.randn(4000, 512, device="cuda", dtype=torch.bfloat16) / 8
hidden = torch.randn(4, 512, device="cuda", dtype=torch.bfloat16)

# [head]
head = sluice.CertifiedHead(weight)  # planes are made on the host, once
head.reserve(rows=4)  # the memory of calls with up to four hidden states
params = sluice.DeviceParams(rows=4, top_k=50, top_p=0.9, seed=42, position=0)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    tokens = head.sample(hidden, params)
graph.replay()

logits = sluice.dense_head(weight, hidden)  # what the tokens are drawn from, never computed above
assert torch.equal(sluice.sample(logits, params).ids, tokens.ids)
# [head]

host = sluice.dense_head(weight.cpu(), hidden.cpu())
assert torch.equal(torch.from_numpy(host), logits.cpu())
print("ids", tokens.ids.tolist())
