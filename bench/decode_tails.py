"""The tails that end_to_end.py puts after the last layer: from hidden states, or their logits, to ids.

Every tail says what its tokens must be: those of the reference for the same logits, or any of the
exact set, or nothing where nothing is sampled.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

import sluice
from cuda_peer_calls import PEERS, Setting, load_peers

TASKS = {"k50-p0.9": {"top_k": 50, "top_p": 0.9}, "no-filter": {}, "greedy": {"temperature": 0.0}}
PEER_NAMES = ("flashinfer-k-first", "flashinfer-k-first-rows", "flashinfer-joint",
              "flashinfer-logits", "vllm-triton", "torch-noise")
SEED = 7


@dataclass(frozen=True)
class Tail:
    name: str
    draw: callable                     # of hidden states and logits: ids
    needs_logits: bool = True
    prepare: callable = None           # what needs no logits: enqueued during the layers
    captured: bool = True              # in the graph of the step, or called after it
    expected: callable = None          # of hidden, logits, ids: wrong rows
    facts: callable = lambda hidden: {}


@dataclass(frozen=True)
class Batch:
    """The rows of a step: their parameters, and where their noise stands."""

    rows: int
    filters: dict
    positions: torch.Tensor

    @property
    def device(self):
        return self.positions.device

    def wrong_tokens(self, logits, ids, positions=None):
        positions = self.positions if positions is None else positions
        wanted = sluice.sample(logits, **self.filters, seed=SEED,
                               position=positions[:len(logits)].cpu().numpy()).ids
        return int((wanted != ids).sum())

    def wrong_draws(self, logits, ids, profile):
        words = sluice.kept_bitmask(logits, **self.filters, profile=profile)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        return int((bits[np.arange(len(ids)), ids] == 0).sum())


def tokens_of(result):
    return result.ids if isinstance(result.ids, torch.Tensor) else torch.from_numpy(result.ids)


def sampled(batch):
    """Sluice on logits: parameters on the device, with positions that follow the step."""
    if batch.device.type == "cpu":
        def draw(hidden, logits):
            return tokens_of(sluice.sample(logits, **batch.filters, seed=SEED,
                                           position=batch.positions.numpy()))
        return draw, None
    params = sluice.DeviceParams(rows=batch.rows, **batch.filters, seed=SEED,
                                 position=batch.positions)
    return (lambda hidden, logits: sluice.sample(logits, params).ids,
            lambda: params.update_(position=batch.positions))


def ours(batch):
    draw, prepare = sampled(batch)
    return Tail("sluice", draw, prepare=prepare,
                expected=lambda hidden, logits, ids: batch.wrong_tokens(logits, ids))


def our_step(batch, vocab):
    """Requests of a sampler; its step is a graph of its own."""
    make = sluice.Sampler if batch.device.type == "cpu" else sluice.DeviceSampler
    sampler = make(vocab=vocab, max_requests=batch.rows)
    requests = [sampler.add(**batch.filters, seed=SEED + row) for row in range(batch.rows)]
    steps = SimpleNamespace(done=0)

    def draw(hidden, logits):
        steps.done += 1
        return tokens_of(sampler.step(logits, requests))

    def wrong(hidden, logits, ids):
        wanted = sluice.sample(logits, **batch.filters, position=steps.done - 1,
                               seed=np.arange(SEED, SEED + len(logits), dtype=np.uint64))
        return int((wanted.ids != ids).sum())

    return Tail("sluice-requests", draw, captured=False, expected=wrong)


def certified(batch, head, weight):
    """From hidden states by the planes of `head`: the tokens of the dense head's own logits."""
    if batch.device.type == "cpu":
        def draw(hidden, logits):
            return tokens_of(head.sample(hidden, **batch.filters, seed=SEED,
                                         position=batch.positions.numpy()))
        tail = Tail("sluice-certified", draw, needs_logits=False)
    else:
        head.reserve(batch.rows)
        params = sluice.DeviceParams(rows=batch.rows, **batch.filters, seed=SEED,
                                     position=batch.positions)
        reports = torch.zeros((batch.rows, 2), dtype=torch.int32, device=batch.device)

        def facts(hidden):
            head.sample(hidden, params, reports=reports)
            ways = reports[:, 0] & 255
            return {"dense_rows": int((ways == 3).sum()),
                    "survivors": round(float(reports[:, 1].float().mean()))}

        tail = Tail("sluice-certified", lambda hidden, logits: head.sample(hidden, params).ids,
                    needs_logits=False, facts=facts,
                    prepare=lambda: params.update_(position=batch.positions))

    def wrong(hidden, logits, ids):
        own = sluice.dense_head(weight, hidden[:len(ids)])
        return batch.wrong_tokens(own.cpu().numpy() if isinstance(own, torch.Tensor) else own, ids)

    return replace(tail, expected=wrong)


def torch_sort(batch):
    """Sorts the row, as samplers without kernels of their own do."""
    k, p = batch.filters.get("top_k"), batch.filters.get("top_p")

    def draw(hidden, logits):
        values, order = logits.float().sort(dim=-1, descending=True)
        values[:, k:] = -torch.inf
        probabilities = values.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = values.masked_fill_(before >= p, -torch.inf).softmax(dim=-1)
        noise = torch.empty_like(probabilities).exponential_()
        return order.gather(1, probabilities.div_(noise).argmax(dim=-1, keepdim=True))[:, 0]

    return Tail("torch-sort", draw,
                expected=lambda hidden, logits, ids: batch.wrong_draws(logits, ids, "vllm"))


def torch_argmax(batch):
    return Tail("torch-argmax", lambda hidden, logits: logits.argmax(dim=-1),
                expected=lambda hidden, logits, ids: batch.wrong_tokens(logits, ids))


def of_peer(peer, batch, vocab):
    call = peer.make(Setting(False, batch.filters, batch.rows, vocab, SEED))
    return Tail(peer.name, lambda hidden, logits: call(logits.float()),
                expected=lambda hidden, logits, ids: batch.wrong_draws(logits, ids, peer.profile))


def skipped(ids):
    return Tail("skipped", lambda hidden, logits: ids)


def without_head(ids):
    return Tail("no-head", lambda hidden, logits: ids, needs_logits=False)


def tails_of(task, batch, shape, head, weight):
    """Those of a task by name, as functions that make them."""
    made = {"sluice": lambda: ours(batch),
            "sluice-certified": lambda: certified(batch, head, weight)}
    if task == "k50-p0.9":
        made["sluice-requests"] = lambda: our_step(batch, shape.vocab)
        made["torch-sort"] = lambda: torch_sort(batch)
    if task == "greedy":
        made["torch-argmax"] = lambda: torch_argmax(batch)
    elif batch.device.type == "cuda":
        setting = Setting(False, batch.filters, batch.rows, shape.vocab, SEED)
        made |= {peer.name: lambda peer=peer: of_peer(peer, batch, shape.vocab)
                 for peer in PEERS if peer.name in PEER_NAMES and peer.serves(setting)}
    return made


__all__ = ["Batch", "TASKS", "Tail", "load_peers", "skipped", "tails_of", "without_head"]
