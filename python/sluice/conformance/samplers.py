"""Samplers of others as the checks call them, and those that a user names.

A sampler is called with logits, float32 [rows, vocab], and by keyword arrays of one value a row:
temperature (0: the largest), top_k (0: all), top_p, min_p and seeds (uint64). It gets those that
its signature has, and returns an id a row. It may have an attribute `keep`, a function of the same
logits and parameters that gives the kept sets as bool [rows, vocab]; without it sets are found by
drawing.
"""

import importlib
import inspect

import numpy as np

PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "seeds")


class Sampler:
    """`offers`: which of PARAMETERS it has."""

    def __init__(self, name, function):
        self.name, self._function = name, function
        self.offers = _parameters_of(function)
        self.keep = getattr(function, "keep", None)

    def draw(self, logits, given, seeds):
        values = {**given, "seeds": seeds}
        ids = self._function(logits.copy(), **{name: values[name] for name in self.offers})
        return np.asarray(ids).reshape(-1).astype(np.int64)

    def kept(self, logits, given):
        offers = _parameters_of(self.keep)
        return np.asarray(self.keep(logits.copy(), **{name: given[name] for name in offers
                                               if name != "seeds"})).astype(bool)


def _parameters_of(function):
    found = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in found.values())
    return tuple(name for name in PARAMETERS if takes_all or name in found)


def _sluice():
    import sluice

    def sample(logits, temperature, top_k, top_p, min_p, seeds):
        return sluice.sample(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                             seed=seeds).ids

    def keep(logits, temperature, top_k, top_p, min_p):
        return sluice.mask_(logits.copy(), temperature=temperature, top_k=top_k, top_p=top_p,
                            min_p=min_p) > -np.inf

    sample.keep = keep
    return sample


def _numpy():
    """What a notebook has: a sort, a sum of float32, and numpy's generator."""
    def scaled(logits, temperature):
        rows = logits / np.where(temperature == 0, 1, temperature)[:, None].astype(np.float32)
        weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def keep(logits, temperature, top_k, top_p, min_p):
        kept = np.zeros(logits.shape, bool)
        for row, weights in enumerate(scaled(logits, temperature)):
            order = np.argsort(-weights, kind="stable")
            if temperature[row] == 0:
                kept[row, order[0]] = True
                continue
            order = order[weights[order] >= max(min_p[row] * weights.max(), 1e-45)]
            if top_k[row] > 0:
                order = order[:top_k[row]]
            sums = np.cumsum(weights[order])
            if top_p[row] < 1:
                order = order[:int(np.searchsorted(sums, top_p[row] * sums[-1])) + 1]
            kept[row, order] = True
        return kept

    def sample(logits, temperature, top_k, top_p, min_p, seeds):
        kept = keep(logits, temperature, top_k, top_p, min_p)
        weights = np.where(kept, scaled(logits, temperature), 0).astype(np.float64)
        return [np.random.default_rng(int(seed)).choice(len(row), p=row / row.sum())
                for row, seed in zip(weights, seeds)]

    sample.keep = keep
    return sample


def _torch():
    """As many write it: sort, cumsum, multinomial with torch's generator, which has no seed a row."""
    import torch

    def masked(logits, temperature, top_k, top_p):
        rows = torch.from_numpy(logits.copy())
        rows /= torch.from_numpy(np.where(temperature == 0, 1, temperature)).float()[:, None]
        vocab = rows.shape[1]
        ordered, order = rows.sort(dim=-1, descending=True, stable=True)
        k = torch.from_numpy(np.where(top_k == 0, vocab, top_k).astype(np.int64)).clamp(max=vocab)
        ordered[torch.arange(vocab)[None] >= k[:, None]] = -torch.inf
        weights = ordered.softmax(dim=-1)
        before = weights.cumsum(dim=-1) - weights
        is_cut = torch.from_numpy(top_p < 1)[:, None]
        cut = is_cut & (before >= torch.from_numpy(top_p.astype(np.float32))[:, None])
        cut[:, 0] = False
        ordered[cut] = -torch.inf
        ordered[torch.from_numpy(temperature == 0), 1:] = -torch.inf
        return torch.empty_like(rows).scatter_(1, order, ordered)

    def sample(logits, temperature, top_k, top_p):
        return torch.multinomial(masked(logits, temperature, top_k, top_p).softmax(dim=-1), 1)[:, 0]

    sample.keep = lambda logits, temperature, top_k, top_p: (
        masked(logits, temperature, top_k, top_p) > -torch.inf).numpy()
    return sample


def _transformers():
    """generate()'s warpers in its order, one row at a time, because they take one value for all."""
    import torch
    from transformers.generation import logits_process as warpers

    def masked(logits, temperature, top_k, top_p, min_p):
        rows = []
        for row, t, k, p, least in zip(torch.from_numpy(logits.copy()), temperature, top_k, top_p,
                                       min_p):
            row = row[None]
            if t == 0:
                kept = torch.full_like(row, -torch.inf)
                kept[0, row.argmax()] = 0
                rows.append(kept)
                continue
            chain = [warpers.TemperatureLogitsWarper(float(t))] if t != 1 else []
            chain += [warpers.TopKLogitsWarper(int(k))] if k > 0 else []
            chain += [warpers.TopPLogitsWarper(float(p))] if p < 1 else []
            chain += [warpers.MinPLogitsWarper(float(least))] if least > 0 else []
            for warper in chain:
                row = warper(None, row)
            rows.append(row)
        return torch.cat(rows) if rows else torch.empty(logits.shape)

    def sample(logits, temperature, top_k, top_p, min_p):
        rows = masked(logits, temperature, top_k, top_p, min_p)
        return torch.multinomial(rows.softmax(dim=-1), 1)[:, 0]

    sample.keep = lambda logits, temperature, top_k, top_p, min_p: (
        masked(logits, temperature, top_k, top_p, min_p) > -torch.inf).numpy()
    return sample


def _vllm():
    """The functions of vLLM's V1 sampler that its native path calls."""
    import torch

    ops = importlib.import_module("vllm.v1.sample.ops.topk_topp_sampler")

    def masked(logits, temperature, top_k, top_p):
        rows = torch.from_numpy(logits.copy())
        rows /= torch.from_numpy(np.where(temperature == 0, 1, temperature)).float()[:, None]
        k = torch.from_numpy(np.where(top_k == 0, logits.shape[1], top_k).astype(np.int64))
        p = torch.from_numpy(top_p.astype(np.float32))
        masked = ops.apply_top_k_top_p(rows, k.clamp(max=logits.shape[1]), p)
        greedy = torch.from_numpy(temperature == 0)
        largest = rows.argmax(dim=-1, keepdim=True)
        only = torch.full_like(rows, -torch.inf).scatter_(1, largest, 0)
        return torch.where(greedy[:, None], only, masked)

    def sample(logits, temperature, top_k, top_p, seeds):
        weights = masked(logits, temperature, top_k, top_p).softmax(dim=-1)
        return ops.random_sample(weights, {row: torch.Generator().manual_seed(int(seed) % 2**63)
                                           for row, seed in enumerate(seeds)})

    sample.keep = lambda logits, temperature, top_k, top_p: (
        masked(logits, temperature, top_k, top_p) > -torch.inf).numpy()
    return sample


def _sglang():
    """The function of SGLang's backend "pytorch", without the seeds of its deterministic mode."""
    import torch

    module = importlib.import_module("sglang.srt.layers.sampler")

    def given(logits, temperature, top_k, top_p, min_p):
        scale = torch.from_numpy(np.where(temperature == 0, 1, temperature)).float()
        weights = (torch.from_numpy(logits) / scale[:, None]).softmax(dim=-1)
        k = np.where(temperature == 0, 1, np.where(top_k == 0, 1 << 30, top_k)).astype(np.int32)
        return (weights, torch.from_numpy(k), torch.from_numpy(top_p.astype(np.float32)),
                torch.from_numpy(min_p.astype(np.float32)), bool((min_p > 0).any()))

    def sample(logits, temperature, top_k, top_p, min_p):
        return module.top_k_top_p_min_p_sampling_from_probs_torch(
            *given(logits, temperature, top_k, top_p, min_p), None, None)

    def keep(logits, temperature, top_k, top_p, min_p):
        _, weights, ids, _ = module.top_k_top_p_min_p_sampling_from_probs_torch(
            *given(logits, temperature, top_k, top_p, min_p), None, None,
            return_filtered_probs=True)
        return torch.zeros_like(weights).scatter_(1, ids.long(), weights) > 0

    sample.keep = keep
    return sample


def _flashinfer():
    """FlashInfer's joint filter, on a GPU."""
    import flashinfer
    import torch

    def sample(logits, temperature, top_k, top_p):
        rows = torch.from_numpy(logits).cuda()
        scale = torch.from_numpy(np.where(temperature == 0, 1, temperature)).float().cuda()
        k = np.where(temperature == 0, 1, np.where(top_k == 0, logits.shape[1], top_k))
        return flashinfer.sampling.top_k_top_p_sampling_from_logits(
            rows / scale[:, None], torch.from_numpy(k.astype(np.int32)).cuda(),
            torch.from_numpy(top_p.astype(np.float32)).cuda(), filter_apply_order="joint").cpu()

    return sample


NAMES = {"sluice": _sluice, "numpy": _numpy, "torch": _torch, "transformers": _transformers,
         "vllm": _vllm, "sglang": _sglang, "flashinfer": _flashinfer}


def load(name):
    """One of NAMES, or MODULE:FUNCTION."""
    if name in NAMES:
        return Sampler(name, NAMES[name]())
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"sampler = {name!r} is not one of {', '.join(NAMES)}, nor MODULE:FUNCTION")
    function = importlib.import_module(module)
    for part in attribute.split("."):
        function = getattr(function, part)
    return Sampler(name, function)
