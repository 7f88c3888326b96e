"""Rows of scores to rank, on a GPU: the fifteen distributions of score_rows.h, in other numbers."""

import torch


def _padded(x):
    hidden = torch.rand(x.shape, device="cuda") < 0.9
    return x.masked_fill(hidden, -torch.inf)


def _recency(x):
    place = torch.linspace(0, 1, x.shape[1], device="cuda")
    return 0.5 * x + 6 * place * place


SCORES = {
    "normal": lambda x: x,
    "narrow": lambda x: 5 + 1e-3 * x,
    "narrowest": lambda x: 5 + 1e-6 * x,
    "uniform": torch.special.ndtr,
    "ascending": lambda x: x.sort(dim=1).values,
    "descending": lambda x: x.sort(dim=1, descending=True).values,
    "relu": torch.relu,
    "relu99": lambda x: x.where(x > 2.512, 0),  # all but 0.6 % are 0
    "exp": lambda x: torch.exp(4 * x),
    "padded": _padded,
    "big": lambda x: 1e6 * x,
    "constant": lambda x: torch.full_like(x, 1.5),
    "negative": lambda x: -torch.exp(x),
    "rounded": lambda x: x.bfloat16().float(),
    "recency": _recency,
}


def make_scores(name, rows, columns, seed=1):
    torch.manual_seed(seed)
    return SCORES[name](torch.randn((rows, columns), device="cuda")).contiguous()


def first_k(scores, k):
    """The answer of the total order, ascending: a stable sort, without top-k."""
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return order.sort(dim=1).values
