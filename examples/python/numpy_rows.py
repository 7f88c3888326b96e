"""numpy arrays and CPU tensors: tokens, kept sets, replay, batches and threads."""

# [first]
import numpy as np

import sluice

random = np.random.default_rng(0)
logits = (4 * random.normal(size=(4, 128256))).astype(np.float32)  # four rows of a model's size

tokens = sluice.sample(logits, temperature=0.8, top_k=50, top_p=0.9, seed=[1, 2, 3, 4], position=7)
print(tokens.ids)  # int32, one id a row
# [first]

# [why]
last = int(logits[0].argmin())
print(sluice.explain(logits[0], last, temperature=0.8, top_k=50, top_p=0.9))
# [why]

# [arrays]
wide = random.normal(size=(2, 2000))  # float64, numpy's default
row = np.ascontiguousarray(wide[:, ::2], dtype=np.float32)  # float32, the last axis without gaps
one = sluice.sample(row[0], top_k=50, seed=1)  # a single row gives plain numbers
print(one.ids, row.dtype)
# [arrays]
assert isinstance(one.ids, int)

# [kept]
cuts = sluice.select(logits, temperature=0.8, top_k=50, top_p=0.9, masses=True)
print(cuts.counts, cuts.kept_masses / cuts.total_masses)  # how many are kept, and their share

kept = sluice.candidates(logits[0], temperature=0.8, top_k=50, top_p=0.9, order="rank")
print(kept.ids[:5], kept.logits[:5])  # the kept tokens themselves, the most likely first

masked = logits.copy()
sluice.mask_(masked, cuts=cuts)  # in place: every token that is not kept becomes -inf
# [kept]
assert [np.isfinite(values).sum() for values in masked] == list(cuts.counts)

# [explain]
print(sluice.explain(logits[0], int(kept.ids[0]), temperature=0.8, top_k=50, top_p=0.9))
# [explain]

# [replay]
unseeded = sluice.sample(logits, top_k=50)  # each row gets a random seed, and reports it
again = sluice.sample(logits, top_k=50, seed=unseeded.seeds)
assert (again.ids == unseeded.ids).all()
# [replay]

# [batch]
alone = sluice.sample(logits[2:3], temperature=0.8, top_k=50, top_p=0.9, seed=3, position=7)
assert alone.ids[0] == tokens.ids[2]  # the same token, whatever else is in the batch

mixed = sluice.sample(logits, temperature=[0, 0.7, 1, 1], top_k=[0, 50, 0, 20],
                      top_p=[1, 0.9, 0.95, 1], seed=[1, 2, 3, 4])  # parameters of each row
# [batch]
assert mixed.ids[0] == logits[0].argmax()

# [threads]
pool = sluice.Threads(2)  # yours: no call starts threads by itself
shared = sluice.sample(logits, top_k=50, top_p=0.9, seed=[1, 2, 3, 4], threads=pool)
# [threads]
assert (shared.ids == sluice.sample(logits, top_k=50, top_p=0.9, seed=[1, 2, 3, 4]).ids).all()

# [errors]
try:
    sluice.sample(logits, top_p=1.5)
except sluice.Error as error:
    print(error)  # names the parameter, the value and the range

broken = logits.copy()
broken[1, 5] = np.nan
tokens = sluice.sample(broken, top_k=50, seed=1)
print(tokens.ids[1], sluice.Status(tokens.statuses[1]))  # -1 and a status; the other rows are drawn
# [errors]
assert tokens.ids[1] == -1 and (np.delete(tokens.ids, 1) >= 0).all()

try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    # [torch]
    tensor = torch.from_numpy(logits).to(torch.bfloat16)  # read in place, without a copy
    ids = torch.from_numpy(sluice.sample(tensor, top_k=50, seed=[1, 2, 3, 4]).ids)
    # [torch]
    assert ids.shape == (4,)
