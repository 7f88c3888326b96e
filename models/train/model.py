"""The model: a decoder of the Llama family.

RMSNorm, rotary positions in the half-rotation layout, SwiGLU, no biases, embeddings that are also
the head. Modules have the names of Hugging Face's LlamaForCausalLM, so state_dict() is a checkpoint
that others load as it is. Nothing here knows how the model is trained or stored.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 8192
    dim: int = 320
    layers: int = 8
    heads: int = 6
    kv_heads: int = 2  # a token's keys and values are read as often as its weights, in long texts
    head_dim: int = 64
    ffn_dim: int = 960
    context: int = 1024
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def __post_init__(self):
        if self.heads % self.kv_heads:
            raise SystemExit(f"heads {self.heads}: a multiple of kv_heads, {self.kv_heads}, is "
                             "needed")
        if self.head_dim % 2:
            raise SystemExit(f"head_dim {self.head_dim}: an even number is needed")


class RMSNorm(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.eps = config.norm_eps
        self.weight = nn.Parameter(torch.ones(config.dim))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_tables(config: Config):
    """cos and sin [context, head_dim / 2] of each position's angles."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(config.context, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """x [batch, heads, time, head_dim]: element i of a head turns with i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.queries_a_key = config.heads // config.kv_heads
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, queries, bias=False)
        self.k_proj = nn.Linear(config.dim, keys, bias=False)
        self.v_proj = nn.Linear(config.dim, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.dim, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (shared.repeat_interleave(self.queries_a_key, dim=1) for shared in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.up_proj = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.down_proj = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Config, dropout: float):
        super().__init__()
        self.input_layernorm = RMSNorm(config)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config)
        self.mlp = FeedForward(config)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cos, sin):
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Llama(nn.Module):
    def __init__(self, config: Config, dropout: float = 0.0):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(config.vocab, config.dim),
            "layers": nn.ModuleList(Layer(config, dropout) for _ in range(config.layers)),
            "norm": RMSNorm(config),
        })
        self.dropout = nn.Dropout(dropout)
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise()

    def _initialise(self):
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                # What is added to the residual stream 2 * layers times starts so much smaller.
                is_added = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * self.config.layers) ** 0.5 if is_added else 0.02
                nn.init.normal_(weight, std=std)

    def forward(self, tokens):
        """tokens [batch, time], time <= context -> logits [batch, time, vocab]."""
        time = tokens.shape[1]
        cos, sin = self.cos[:time], self.sin[:time]
        x = self.dropout(self.model["embed_tokens"](tokens))
        for layer in self.model["layers"]:
            x = layer(x, cos, sin)
        return F.linear(self.model["norm"](x), self.model["embed_tokens"].weight)


def losses(logits, targets):
    """Cross-entropy in nats, one for each target; 0 where the target is -100."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none",
                           ignore_index=-100)
