"""A decoder with random weights, one token a row at a time: RMSNorm, grouped-query attention with
rotary positions over a cache of a set length, SwiGLU, or routed experts. bfloat16, no bias.

The shapes are those of the models in Table 2 of Qrita (2026), less what does not change the work
(normalised queries, sliding windows as long as the context, sinks). Once the cache is full, a
token takes the place of the oldest one, so every step does the same work.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

ROPE_BASE, EPSILON = 500000.0, 1e-5


@dataclass(frozen=True)
class Shape:
    vocab: int
    width: int
    layers: int
    heads: int
    kv: int
    dim: int
    inner: int
    experts: int = 0
    top: int = 0


SHAPES = {
    "8b-128256": Shape(128256, 4096, 32, 32, 8, 128, 14336),           # Llama-3.1-8B
    "8b-151936": Shape(151936, 4096, 36, 32, 8, 128, 12288),           # Qwen3-8B
    "20b-a3b": Shape(201088, 2880, 24, 64, 8, 64, 2880, 32, 4),        # gpt-oss-20b, in bfloat16
    "4b": Shape(262208, 2560, 34, 8, 4, 256, 10240),                   # Gemma-3-4B
    "tiny": Shape(515, 64, 2, 4, 2, 16, 96),
    "tiny-moe": Shape(515, 64, 2, 4, 2, 16, 96, 8, 2),
}


class Plain:
    """What lies between the matrix products, in plain torch."""

    @staticmethod
    def add_norm(x, parts, gain, epsilon):
        if parts is not None:
            x.copy_(x.float() + parts.float().sum(1))
        return F.rms_norm(x.float(), x.shape[-1:], gain.float(), epsilon).to(x.dtype)

    @staticmethod
    def rotate(qkv, positions, keys, values, heads, log_base):
        rows, kv, context, dim = keys.shape
        position = positions[0]
        split = qkv.view(rows, heads + 2 * kv, dim)
        exponents = torch.arange(dim // 2, device=qkv.device) * (-2.0 / dim)
        angle = position.float() * torch.exp(exponents * log_base)
        first, second = split[:, :heads + kv].float().chunk(2, -1)
        turned = torch.cat([first * angle.cos() - second * angle.sin(),
                            second * angle.cos() + first * angle.sin()], -1).to(qkv.dtype)
        slot = (position % context)[None]
        keys.index_copy_(2, slot, turned[:, heads:, None])
        values.index_copy_(2, slot, split[:, heads + kv:, None])
        return turned[:, :heads].reshape(rows, kv, heads // kv, dim)

    @staticmethod
    def swiglu(both):
        gate, up = both.float().chunk(2, -1)
        return (F.silu(gate) * up).to(both.dtype)

    @staticmethod
    def experts(x, scores, up, down, top):
        values, chosen = scores.float().topk(top, -1)
        shares = values.softmax(-1)
        middle = Plain.swiglu(torch.einsum("rw,rtiw->rti", x, up[chosen]))
        out = torch.einsum("rti,rtwi->rtw", middle, down[chosen])
        return (out.float() * shares[..., None]).to(x.dtype)


class Decoder:
    """A step is `advance`; `hidden`, from the embedded tokens x to hidden states; and `feed`, which
    makes x the embeddings of new ids. The memory of up to `rows` rows is taken here."""

    def __init__(self, shape, rows, context, device, entropy, ops=Plain, seed=0):
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*size, deviation):
            made = torch.empty(size, dtype=torch.bfloat16, device=device)
            return made.normal_(0, deviation, generator=generator)

        def linear(outputs, inputs, *experts):
            return normal(*experts, outputs, inputs, deviation=inputs ** -0.5)

        self.shape, self.ops, self.context, self.device = shape, ops, context, device
        self.gain = torch.ones(shape.width, dtype=torch.bfloat16, device=device)
        self.layers = []
        for _ in range(shape.layers):
            layer = {"qkv": linear((shape.heads + 2 * shape.kv) * shape.dim, shape.width),
                     "out": linear(shape.width, shape.heads * shape.dim)}
            if shape.experts:
                layer |= {"router": linear(shape.experts, shape.width),
                          "up": linear(2 * shape.inner, shape.width, shape.experts),
                          "down": linear(shape.width, shape.inner, shape.experts)}
            else:
                layer |= {"up": linear(2 * shape.inner, shape.width),
                          "down": linear(shape.width, shape.inner)}
            self.layers.append(layer)
        self.caches = [normal(shape.layers, rows, shape.kv, context, shape.dim, deviation=1.0)
                       for _ in range(2)]
        self.embedding = normal(shape.vocab, shape.width, deviation=1.0)
        self.head = normal(shape.vocab, shape.width,
                           deviation=head_deviation(shape.vocab, shape.width, entropy))
        self.x = torch.empty((rows, shape.width), dtype=torch.bfloat16, device=device)
        # A row's own noise: positions of different rows are far apart, steps one.
        self.positions = torch.arange(rows, device=device) << 20
        self.ids = torch.randint(shape.vocab, (rows,), dtype=torch.int32, device=device,
                                 generator=generator)

    def begin(self, rows):
        """Every row at its first token."""
        self.positions.copy_(torch.arange(len(self.positions), device=self.device) << 20)
        torch.index_select(self.embedding, 0, self.ids[:rows], out=self.x[:rows])

    def advance(self):
        self.positions.add_(1)

    def hidden(self, rows):
        """Final hidden states of the rows at x, [rows, width], normalised."""
        x, parts, ops = self.x[:rows], None, self.ops
        for at, layer in enumerate(self.layers):
            keys, values = (cache[at, :rows] for cache in self.caches)
            normed = ops.add_norm(x, parts, self.gain, EPSILON)
            queries = ops.rotate(F.linear(normed, layer["qkv"]), self.positions, keys, values,
                                 self.shape.heads, math.log(ROPE_BASE))
            # The queries of one key head are rows of one product: its keys are read once.
            mixed = F.scaled_dot_product_attention(queries, keys, values)
            parts = F.linear(mixed.reshape(rows, -1), layer["out"])[:, None]
            normed = ops.add_norm(x, parts, self.gain, EPSILON)
            if self.shape.experts:
                parts = ops.experts(normed, F.linear(normed, layer["router"]), layer["up"],
                                    layer["down"], self.shape.top)
            else:
                parts = F.linear(ops.swiglu(F.linear(normed, layer["up"])), layer["down"])[:, None]
        return ops.add_norm(x, parts, self.gain, EPSILON)

    def feed(self, ids):
        torch.index_select(self.embedding, 0, ids, out=self.x[:len(ids)])

    def step_bytes(self, rows):
        """What a step cannot but read: dense weights, the cache, and the weights of the experts
        that are expected to have a row when choices are independent; without the head."""
        shape = self.shape
        total = self.caches[0][0, 0].numel() * 2 * 2 * shape.layers * rows
        for layer in self.layers:
            for name, weight in layer.items():
                share = 1.0
                if shape.experts and name in ("up", "down"):
                    share = 1 - (1 - shape.top / shape.experts) ** rows
                total += weight.numel() * 2 * share
        return round(total)


def mean_entropy(logits):
    """Of the softmax of rows, in nats."""
    logs = logits.float().log_softmax(dim=-1)
    return float(-(logs.exp() * logs.clamp_min(-1e4)).sum(-1).mean())


def head_deviation(vocab, width, entropy):
    """Of a head's elements: hidden states after the norm have length sqrt(width), so logits are
    N(0, s) with s = deviation * sqrt(width), and their softmax has fewer nats the larger s is."""
    logits = torch.randn((8, vocab), generator=torch.Generator().manual_seed(3))
    low, high = 0.0, 2 * math.sqrt(2 * math.log(vocab))
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_entropy(logits * middle) > entropy else (low, middle)
    return high / math.sqrt(width)
