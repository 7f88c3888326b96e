"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum whose update, a
matrix, is replaced by the nearest matrix with equal singular values. For
matrices only; embeddings and norms are AdamW's.
"""

from collections import defaultdict

import torch


def orthogonalised(g, steps=5):
    """g [matrices, rows, columns] = U S V' of each -> about U V', by Newton-Schulz steps.

    The quintic's coefficients are Jordan's: singular values end within 0.7 to 1.2, which is enough,
    after 5 steps. bf16 is enough as well.
    """
    x = g.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices, lr, momentum=0.95, weight_decay=0.0):
        by_shape = defaultdict(list)  # a group is orthogonalised in one go
        for matrix in matrices:
            by_shape[matrix.shape].append(matrix)
        super().__init__([{"params": group} for group in by_shape.values()],
                         {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            matrices, lr = group["params"], group["lr"]
            gradient = torch.stack([matrix.grad for matrix in matrices])
            state = self.state[matrices[0]]
            if not state:
                state["average"] = torch.zeros_like(gradient)
            state["average"].lerp_(gradient, 1 - group["momentum"])
            update = orthogonalised(gradient.lerp(state["average"], group["momentum"]))  # Nesterov
            rows, columns = gradient.shape[-2:]
            scale = max(1, rows / columns) ** 0.5
            for matrix, direction in zip(matrices, update):
                matrix.mul_(1 - lr * group["weight_decay"])
                matrix.add_(direction, alpha=-lr * scale)
