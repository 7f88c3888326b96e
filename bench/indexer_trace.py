"""Queries and keys of the indexers of sparse attention, layer by layer, as a text goes on.

A text of topics and Zipf words runs through a residual stream with random weights, where each layer
adds averages of the past, shorter ones first: what attention with random weights comes to. From its
states every layer has indexer queries and one key a token, normalised, with rotary embeddings
stretched by YaRN, as DeepSeek's indexer has them. Nothing here sets how much of one step's answer
is in the next one's: that comes out (topk_traces.py prints it).
"""

import math
from dataclasses import dataclass

import torch

WIDTH, HEADS, DIM, ROTARY = 512, 64, 128, 64
WORDS, TOPICS, TOPIC_TOKENS = 32768, 64, 400
BASE, TRAINED, FACTOR = 10000.0, 4096, 40.0  # of YaRN
FAST, SLOW = 32.0, 1.0


@dataclass(frozen=True)
class Layer:
    keys: torch.Tensor     # [tokens, DIM] bfloat16
    queries: torch.Tensor  # [steps, HEADS, DIM] bfloat16
    weights: torch.Tensor  # [steps, HEADS] float32


def yarn_frequencies(device):
    """Of the pairs of rotary dimensions: fast ones as they are, slow ones stretched."""
    pairs = torch.arange(0, ROTARY, 2, device=device, dtype=torch.float64)
    plain = BASE ** (-pairs / ROTARY)

    def pair_of(turns):
        return ROTARY * math.log(TRAINED / (turns * 2 * math.pi)) / (2 * math.log(BASE))

    low, high = math.floor(pair_of(FAST)), math.ceil(pair_of(SLOW))
    stretched = ((pairs / 2 - low) / (high - low)).clamp(0, 1)
    return plain / FACTOR * stretched + plain * (1 - stretched)


def rotate(x, positions):
    """The first ROTARY dimensions of the last axis; positions for the first axis."""
    angles = positions.double()[:, None] * yarn_frequencies(x.device)
    shape = (len(positions), *[1] * (x.dim() - 2), ROTARY // 2)
    cos, sin = angles.cos().float().view(shape), angles.sin().float().view(shape)
    even, odd = x[..., 0:ROTARY:2], x[..., 1:ROTARY:2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    return torch.cat([turned, x[..., ROTARY:]], dim=-1)


def normalised(x):
    return x / x.square().mean(dim=-1, keepdim=True).sqrt()


def past_mean(x, window):
    """Over the last `window` tokens, this one included."""
    sums = x.double().cumsum(dim=0)
    before = torch.zeros_like(sums)
    before[window:] = sums[:-window]
    count = torch.arange(1, len(x) + 1, device=x.device).clamp(max=window)
    return ((sums - before) / count[:, None]).float()


def text_states(tokens, device):
    """Embeddings of words: topics that last some hundred tokens prefer words of their own."""
    word = torch.randn((WORDS, WIDTH), device=device)
    common = torch.randn(WIDTH, device=device)  # embeddings of language models share a direction
    ranks = torch.arange(1, WORDS + 1, device=device).double().reciprocal()
    order = torch.stack([torch.randperm(WORDS, device=device) for _ in range(TOPICS)])
    changes = torch.rand(tokens, device=device) < 1 / TOPIC_TOKENS
    topic = torch.randint(TOPICS, (tokens,), device=device)[changes.cumsum(0)]
    rank = torch.multinomial(ranks, tokens, replacement=True)
    is_function_word = torch.rand(tokens, device=device) < 0.5
    ids = torch.where(is_function_word, rank, order[topic, rank])
    return normalised(word[ids] + common)


def layers_of(context, steps, count, seed=1, device="cuda"):
    """`count` layers over a text of context + steps tokens; the last `steps` of them are queries."""
    torch.manual_seed(seed)
    tokens = context + steps
    states = text_states(tokens, device)
    positions = torch.arange(tokens, device=device)

    def matrix(rows, columns):
        return torch.randn((rows, columns), device=device) / math.sqrt(rows)

    for index in range(count):
        keys = states @ matrix(WIDTH, DIM)
        keys = torch.nn.functional.layer_norm(
            keys, (DIM,), 1 + 0.3 * torch.randn(DIM, device=device),
            0.3 * torch.randn(DIM, device=device))
        queries = (states[context:] @ matrix(WIDTH, HEADS * DIM)).view(steps, HEADS, DIM)
        weights = states[context:] @ matrix(WIDTH, HEADS) / math.sqrt(HEADS * DIM)
        yield Layer(rotate(keys, positions).bfloat16(),
                    rotate(queries, positions[context:]).bfloat16(), weights.float())
        mixed = past_mean(states, min(4 ** (index + 1), tokens))
        states = normalised(states + normalised(mixed @ matrix(WIDTH, WIDTH)))


def scores_of(layer, step, context):
    """[1, context + step + 1] float32: of the tokens that query `step` sees."""
    keys = layer.keys[:context + step + 1]
    products = torch.relu(layer.queries[step].float() @ keys.float().T)
    return (layer.weights[step] @ products)[None]
