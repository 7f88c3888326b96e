"""How the stored model is rounded to eight bits, and its products as the runtime computes them.

A row w of a matrix becomes integers q of -127..127 and one scale: w is about q * scale. Ties round
to even. A row of activations is treated in the same way when it arrives, so that a product is an
exact integer times two scales (W8A8).
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def quantise_rows(weights: np.ndarray, power_of_two: bool = False):
    """[rows, columns] -> int8 of the same shape and the scales [rows, 1], fp32.

    power_of_two: the scale is the next power of two. Up to one bit of precision is lost, but
    q * scale is then exactly a bf16 number.
    """
    scale = np.abs(weights).max(axis=1, keepdims=True).astype(np.float32) / np.float32(127)
    scale[scale == 0] = 1
    if power_of_two:
        mantissa, exponent = np.frexp(scale)  # scale = mantissa * 2^exponent, 0.5 <= mantissa < 1
        scale = np.ldexp(np.float32(1), exponent - (mantissa == 0.5)).astype(np.float32)
    return np.clip(np.rint(weights / scale), -127, 127).astype(np.int8), scale


class Int8Linear(nn.Module):
    """nn.Linear without bias, from what quantise_rows() gave."""

    def __init__(self, weight: torch.Tensor, weight_scale: torch.Tensor):
        super().__init__()
        # fp32 holds the integer products exactly: |sum| <= columns * 127^2 < 2^24 to 1040 columns.
        if weight.shape[1] > 1040:
            raise SystemExit(f"Int8Linear: {weight.shape[1]} columns, at most 1040 are exact")
        self.register_buffer("weight", weight.float())
        self.register_buffer("weight_scale", weight_scale[:, 0])

    def forward(self, x):
        scale = x.abs().amax(dim=-1, keepdim=True) / 127
        codes = torch.round(x / scale.clamp(min=torch.finfo(torch.float32).tiny))
        return F.linear(codes, self.weight) * (scale * self.weight_scale)
