"""Tokens from logits on a GPU: eager, in a CUDA graph, and compiled."""

import torch

import sluice

# [sample]
logits = torch.randn(8, 128256, device="cuda", dtype=torch.bfloat16)
seeds = torch.arange(8, device="cuda")

tokens = sluice.sample(logits, temperature=0.8, top_k=50, top_p=0.9, seed=seeds, position=7)
hidden = torch.nn.Embedding(128256, 64, device="cuda")(tokens.ids)  # nothing waits for the GPU
# [sample]

assert hidden.shape == (8, 64) and not tokens.statuses.any()

# [graph]
params = sluice.DeviceParams(rows=8, temperature=0.8, top_k=50, top_p=0.9, seed=seeds)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    tokens = sluice.sample(logits, params)
for position in range(3):
    params.update_(position=position)  # in place: the graph reads what is there
    graph.replay()
# [graph]

rows = logits.cpu()
expected = sluice.sample(rows, temperature=0.8, top_k=50, top_p=0.9, seed=seeds.cpu(), position=2)
assert tokens.ids.tolist() == expected.ids.tolist()

# [compile]
@torch.compile(fullgraph=True)
def decode(hidden, head, seeds):
    logits = hidden @ head.T
    return sluice.sample(logits, top_k=50, seed=seeds).ids
# [compile]


states, head = torch.randn(8, 64, device="cuda"), torch.randn(1000, 64, device="cuda")
assert decode(states, head, seeds).shape == (8,)
print("tokens", tokens.ids.tolist())
