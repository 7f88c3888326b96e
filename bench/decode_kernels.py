"""Triton kernels for a decode step: what lies between the matrix products, and routed experts.

The same functions as decode_model.Plain, in bfloat16, each one launch; sums are in float32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_norm_kernel(x, parts, count, gain, normed, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    values = tl.load(x + row * width + at, mask=inside, other=0).to(tl.float32)
    for part in range(count):
        values += tl.load(parts + (row * count + part) * width + at, mask=inside, other=0)
    values = values.to(tl.bfloat16)
    if count > 0:
        tl.store(x + row * width + at, values, mask=inside)
    values = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / width + epsilon)
    tl.store(normed + row * width + at, values * scale * tl.load(gain + at, mask=inside, other=0),
             mask=inside)


@triton.jit
def rotate_kernel(qkv, positions, queries, keys, values, context, row_stride, log_base,
                  HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(positions)
    half = tl.arange(0, DIM // 2)
    source = qkv + (row * (HEADS + 2 * KV) + head) * DIM
    first = tl.load(source + half).to(tl.float32)
    second = tl.load(source + DIM // 2 + half).to(tl.float32)
    if head < HEADS + KV:
        angle = position.to(tl.float32) * tl.exp(half.to(tl.float32) * (-2.0 / DIM) * log_base)
        cosine, sine = tl.cos(angle), tl.sin(angle)
        first, second = first * cosine - second * sine, second * cosine + first * sine
    slot = (position % context) * DIM
    if head < HEADS:
        target = queries + (row * HEADS + head) * DIM
    elif head < HEADS + KV:
        target = keys + row * row_stride + (head - HEADS) * context * DIM + slot
    else:
        target = values + row * row_stride + (head - HEADS - KV) * context * DIM + slot
    tl.store(target + half, first)
    tl.store(target + DIM // 2 + half, second)


@triton.jit
def swiglu_kernel(both, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both + row * 2 * width + at, mask=at < width).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + at, mask=at < width).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up, mask=at < width)


@triton.jit
def route_kernel(scores, experts, shares, EXPERTS: tl.constexpr, TOP: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, EXPERTS)
    all_scores = tl.load(scores + row * EXPERTS + at).to(tl.float32)
    most, left, total = tl.max(all_scores), all_scores, 0.0
    for _ in tl.static_range(TOP):
        best = tl.max(left)
        total += tl.exp(best - most)
        left = tl.where(at == tl.argmax(left, 0), -float("inf"), left)
    left = all_scores  # again, now that the sum is known
    for choice in tl.static_range(TOP):
        expert = tl.argmax(left, 0)
        tl.store(experts + row * TOP + choice, expert)
        tl.store(shares + row * TOP + choice, tl.exp(tl.max(left) - most) / total)
        left = tl.where(at == expert, -float("inf"), left)


@triton.jit
def slots_of(experts, expert, start, slots, SLOTS: tl.constexpr, M: tl.constexpr):
    """Of the slots that `expert` has: those number start to start + M, and which exist."""
    at = tl.arange(0, SLOTS)
    mine = (tl.load(experts + at, mask=at < slots, other=-1) == expert).to(tl.int32)
    rank = tl.cumsum(mine, 0) - mine
    wanted = start + tl.arange(0, M)
    found = (mine[None, :] == 1) & (rank[None, :] == wanted[:, None])
    return tl.sum(tl.where(found, at[None, :], 0), 1), wanted < tl.sum(mine)


@triton.jit
def expert_up_kernel(x, weights, experts, out, slots, width, inner, TOP: tl.constexpr,
                     SLOTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    expert, n = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N)
    at = tl.arange(0, SLOTS)
    count = tl.sum((tl.load(experts + at, mask=at < slots, other=-1) == expert).to(tl.int32))
    gate_rows = weights + (expert.to(tl.int64) * 2 * inner + n[None, :]) * width
    for start in range(0, count, M):
        rows, there = slots_of(experts, expert, start, slots, SLOTS, M)
        gate = tl.zeros((M, N), tl.float32)
        up = tl.zeros((M, N), tl.float32)
        for first in range(0, width, K):
            k = first + tl.arange(0, K)
            states = tl.load(x + (rows // TOP)[:, None] * width + k[None, :],
                             mask=there[:, None] & (k < width)[None, :], other=0)
            mask = (n < inner)[None, :] & (k < width)[:, None]
            gate += tl.dot(states, tl.load(gate_rows + k[:, None], mask=mask, other=0))
            up += tl.dot(states, tl.load(gate_rows + inner * width + k[:, None], mask=mask,
                                         other=0))
        tl.store(out + rows[:, None] * inner + n[None, :], gate * tl.sigmoid(gate) * up,
                 mask=there[:, None] & (n < inner)[None, :])


@triton.jit
def expert_down_kernel(x, weights, experts, shares, out, slots, inner, width,
                       SLOTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    expert, n = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N)
    at = tl.arange(0, SLOTS)
    count = tl.sum((tl.load(experts + at, mask=at < slots, other=-1) == expert).to(tl.int32))
    rows_of_n = weights + (expert.to(tl.int64) * width + n[None, :]) * inner
    for start in range(0, count, M):
        rows, there = slots_of(experts, expert, start, slots, SLOTS, M)
        sums = tl.zeros((M, N), tl.float32)
        for first in range(0, inner, K):
            k = first + tl.arange(0, K)
            states = tl.load(x + rows[:, None] * inner + k[None, :],
                             mask=there[:, None] & (k < inner)[None, :], other=0)
            mask = (n < width)[None, :] & (k < inner)[:, None]
            sums += tl.dot(states, tl.load(rows_of_n + k[:, None], mask=mask, other=0))
        share = tl.load(shares + rows, mask=there, other=0)
        tl.store(out + rows[:, None] * width + n[None, :], sums * share[:, None],
                 mask=there[:, None] & (n < width)[None, :])


class Fused:
    @staticmethod
    def add_norm(x, parts, gain, epsilon):
        """x += the sum of its parts, [rows, count, width] or None; gives x, normalised."""
        normed = torch.empty_like(x)
        count = 0 if parts is None else parts.shape[1]
        add_norm_kernel[(x.shape[0],)](
            x, x if parts is None else parts, count, gain, normed, x.shape[1], epsilon,
            BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return normed

    @staticmethod
    def rotate(qkv, positions, keys, values, heads, log_base):
        """Queries by position; keys and values into their slot of the caches."""
        rows, kv, context, dim = keys.shape
        queries = qkv.new_empty((rows, kv, heads // kv, dim))
        rotate_kernel[(rows, heads + 2 * kv)](
            qkv, positions, queries, keys, values, context, keys.stride(0), log_base, HEADS=heads,
            KV=kv, DIM=dim, num_warps=1)
        return queries

    @staticmethod
    def swiglu(both):
        rows, width = both.shape[0], both.shape[1] // 2
        out = both.new_empty((rows, width))
        swiglu_kernel[(rows, triton.cdiv(width, 1024))](both, out, width, BLOCK=1024)
        return out

    @staticmethod
    def experts(x, scores, up, down, top):
        """The outputs of the routed experts, [rows, top, width], by their shares; a program reads
        the weights of an expert that has no row not at all."""
        rows, width = x.shape
        count, inner, slots = down.shape[0], down.shape[2], rows * top
        chosen = torch.empty((rows, top), dtype=torch.int32, device=x.device)
        shares = torch.empty((rows, top), device=x.device)
        route_kernel[(rows,)](scores, chosen, shares, EXPERTS=count, TOP=top, num_warps=1)
        middle = x.new_empty((slots, inner))
        out = x.new_empty((rows, top, width))
        n = 32 if rows <= 8 else 64
        tile = {"SLOTS": triton.next_power_of_2(slots), "M": 16 if rows <= 64 else 32, "N": n,
                "K": 128, "num_warps": 4, "num_stages": 3}
        expert_up_kernel[(triton.cdiv(inner, n), count)](
            x, up, chosen, middle, slots, width, inner, TOP=top, **tile)
        expert_down_kernel[(triton.cdiv(width, n), count)](
            middle, down, chosen, shares, out, slots, inner, width, **tile)
        return out
