"""The first 2048 of an indexer's scores on a GPU: eager, in a CUDA graph, and as an operator."""

import torch

import sluice
import sluice.tensors

# [topk]
scores = torch.randn(8, 131072, device="cuda")  # two requests of four rows: a token and its drafts
lengths = torch.tensor([131072, 90000], dtype=torch.int32, device="cuda")

top = sluice.topk(scores, 2048, lengths=lengths, next_n=4)
scores_of_top, indices = top.values, top.indices  # indices ascend; sorted=True: by score
# [topk]

assert indices.shape == (8, 2048) and int(indices[4:].max()) < 90000
assert torch.equal(scores_of_top, scores.gather(1, indices.long()))

# [graph]
out = sluice.tensors.TopkTensors(torch.empty((8, 2048), dtype=torch.int32, device="cuda"))
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    sluice.topk(scores, 2048, lengths=lengths, next_n=4, out=out)  # allocates nothing
for step in range(3):
    lengths.add_(-4)
    graph.replay()
# [graph]

expected = sluice.topk(scores.cpu(), 2048, lengths=lengths.tolist(), next_n=4).indices
assert out.indices.tolist() == expected.tolist()

# [operator]
torch.ops.sluice.indexer_topk_decode(scores, lengths, out.indices, 4, 2048, pre_idx=None,
                                     heuristic_scratch=None)
# [operator]

assert out.indices.tolist() == expected.tolist()
print("indices", out.indices[0, :5].tolist())
