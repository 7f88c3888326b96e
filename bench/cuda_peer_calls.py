"""The peers that cuda_peers.py times, on which tasks, and how each is called.

A call takes logits and returns a tensor: the ids of a draw, or the masked logits, in place or not.
One peer is also timed without its softmax: its calls take probabilities.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

import sluice

TASKS = {  # name: (is a mask, filters)
    "sample-k50-p0.9": (False, {"top_k": 50, "top_p": 0.9}),
    "sample-k1000-p0.9": (False, {"top_k": 1000, "top_p": 0.9}),
    "sample-p0.7": (False, {"top_p": 0.7}),
    "sample": (False, {}),
    "mask-k10": (True, {"top_k": 10}),
    "mask-k50-p0.9": (True, {"top_k": 50, "top_p": 0.9}),
    "mask-p0.7": (True, {"top_p": 0.7}),
}


@dataclass(frozen=True)
class Setting:
    masks: bool
    filters: dict
    batch: int
    vocab: int
    seed: int = 7

    @property
    def k(self):
        return self.filters.get("top_k")

    @property
    def p(self):
        return self.filters.get("top_p")

    def with_seed(self, seed):
        return replace(self, seed=seed)

    def row_k(self):
        return None if self.k is None else torch.full((self.batch,), self.k, dtype=torch.int32,
                                                      device="cuda")

    def row_p(self):
        return None if self.p is None else torch.full((self.batch,), self.p, device="cuda")


@dataclass(frozen=True)
class Peer:
    name: str
    serves: callable  # a Setting
    make: callable    # of a Setting, the call
    profile: str = "vllm"  # the engine with its order of filters
    forget: callable = lambda: None  # frees what it keeps from call to call
    takes_probabilities: bool = False  # instead of logits


def ours(setting):
    positions = torch.arange(setting.batch, device="cuda")
    params = sluice.DeviceParams(rows=setting.batch, **setting.filters, seed=setting.seed,
                                 position=positions)
    if setting.masks:
        return lambda logits: sluice.mask_(logits, params)
    return lambda logits: sluice.sample(logits, params).ids


def with_noise(mask, setting):
    """A mask, softmax, exponential noise and argmax, as engines sample without a fused kernel."""
    def call(logits):
        probabilities = mask(logits).softmax(dim=-1, dtype=torch.float32)
        noise = torch.empty_like(probabilities).exponential_()
        return probabilities.div_(noise).argmax(dim=-1)

    torch.manual_seed(setting.seed)
    return call


def masked_or_drawn(apply):
    """Peers that mask in place: `apply(logits, k, p)` with one k and p a row, or none."""
    def make(setting):
        k, p = setting.row_k(), setting.row_p()

        def mask(logits):
            return apply(logits, k, p)

        return mask if setting.masks else with_noise(mask, setting)

    return make


def torch_topk(setting):
    def top(logits):
        values, ids = logits.topk(setting.k, dim=-1)
        if setting.p is not None:
            before = values.softmax(dim=-1).cumsum(dim=-1) - values.softmax(dim=-1)
            values = values.masked_fill(before >= setting.p, -torch.inf)
        return values, ids

    def mask(logits):
        values, ids = top(logits)
        return logits.fill_(-torch.inf).scatter_(1, ids, values)

    def draw(logits):
        values, ids = top(logits)
        return ids.gather(1, values.softmax(dim=-1).multinomial(1))[:, 0]

    torch.manual_seed(setting.seed)
    return mask if setting.masks else draw


def torch_multinomial(setting):
    torch.manual_seed(setting.seed)
    return lambda logits: logits.softmax(dim=-1).multinomial(1)[:, 0]


PEERS = [Peer("sluice", lambda s: True, ours)]


def load_flashinfer(modules):
    from flashinfer import cake_sampling, sampling

    if modules:  # where nothing can be compiled
        import tvm_ffi
        from flashinfer import topk
        from flashinfer.jit import cake_sampling as cake_build

        class Compiled:
            def __init__(self, name):
                self.name = name

            def build_and_load(self):
                return tvm_ffi.load_module(str(Path(modules) / f"{self.name}.so"))

        sampling.gen_sampling_module = lambda: Compiled("sampling")
        topk.gen_topk_module = lambda: Compiled("topk")
        cake_build.gen_cake_sampling_module = lambda: Compiled("cake_sampling")

    def both(order, per_row):
        def make(s):
            k, p = (s.row_k(), s.row_p()) if per_row else (s.k, s.p)
            return lambda logits: sampling.top_k_top_p_sampling_from_logits(
                logits, k, p, filter_apply_order=order, seed=s.seed, offset=0)
        return make

    def top_p(s):
        return lambda logits: sampling.top_p_sampling_from_probs(
            sampling.softmax(logits), s.p, seed=s.seed, offset=0)

    def unfiltered(s):
        return lambda logits: sampling.sampling_from_logits(logits, seed=s.seed, offset=0)

    def cake_alone(s):
        return lambda probabilities: cake_sampling.top_k_top_p_sampling_from_probs(
            probabilities, s.k, s.p, philox_seed=s.seed, philox_offset=0)

    def cake(s):
        draw = cake_alone(s)
        return lambda logits: draw(sampling.softmax(logits))

    def samples_both(s):
        return not s.masks and s.k is not None and s.p is not None

    PEERS.extend([
        Peer("flashinfer-k-first", samples_both, both("top_k_first", False)),
        Peer("flashinfer-k-first-rows", samples_both, both("top_k_first", True)),
        Peer("flashinfer-joint", samples_both, both("joint", False), profile="sglang"),
        Peer("flashinfer-cake", samples_both, cake),
        Peer("flashinfer-cake-alone", samples_both, cake_alone, takes_probabilities=True),
        Peer("flashinfer-top-p", lambda s: not s.masks and s.k is None and s.p is not None, top_p),
        Peer("flashinfer-logits", lambda s: not s.masks and not s.filters, unfiltered),
        Peer("flashinfer-mask", lambda s: s.masks and s.p is None,
             lambda s: lambda logits: sampling.top_k_mask_logits(logits, s.k)),
    ])


def load_vllm(folder):
    from cuda_vllm import load

    by_triton, by_sorting, forget = load(folder)
    PEERS.extend([
        Peer("vllm-triton", lambda s: bool(s.filters), masked_or_drawn(by_triton), forget=forget),
        Peer("vllm-sort", lambda s: bool(s.filters), masked_or_drawn(by_sorting)),
    ])


def load_torch():
    PEERS.extend([
        Peer("torch-topk", lambda s: s.k is not None, torch_topk),
        Peer("torch-multinomial", lambda s: not s.masks and not s.filters, torch_multinomial),
        Peer("torch-noise", lambda s: not s.masks and not s.filters,
             lambda s: with_noise(lambda logits: logits, s)),
    ])


def load_peers(vllm, flashinfer_modules):
    """Fills PEERS; yields why one is left out."""
    try:
        load_flashinfer(flashinfer_modules)
    except ImportError as error:
        yield f"without FlashInfer: {error}"
    if vllm is None:
        yield "without vLLM: --vllm names a folder with its files"
    else:
        load_vllm(vllm)
    load_torch()
