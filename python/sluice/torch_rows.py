"""Draws that give tensors of torch on the CPU as on CUDA: what sluice.hf and the plug-ins share."""

import numpy as np
import torch

from sluice.rows import sample

MAX_TEMPERATURE = torch.finfo(torch.float32).max  # engines check temperatures themselves


def chosen_seeds(logits):
    """One a row, from torch's generator of the device, so that torch.manual_seed repeats them."""
    return torch.randint(2**63 - 1, (logits.shape[0],), device=logits.device)


def draw(logits, *, seed, **keywords):
    """Token ids (int64, -1 in a row with a status) and statuses (uint8), next to the logits.

    ``seed``: int64, one a row, of which all 64 bits count.
    """
    if not logits.is_cuda:
        seed = np.ascontiguousarray(seed.numpy()).view(np.uint64)
    tokens = sample(logits, seed=seed, max_temperature=MAX_TEMPERATURE, **keywords)
    if logits.is_cuda:
        return tokens.ids.long(), tokens.statuses
    return torch.from_numpy(tokens.ids).long(), torch.from_numpy(np.asarray(tokens.statuses))


def tokens_or_zero(ids):
    """For engines that look every token up: 0 in a row that nothing can be drawn from."""
    return ids.clamp_(min=0)
