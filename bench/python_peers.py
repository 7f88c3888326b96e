"""What people sample with from Python: numpy, torch, transformers and llama.cpp's sampler chain.

Each function peers_of_*() gives the peers of one package, or raises an exception that says why not. A
peer computes what Sluice computes for a task, as it is usually written, on one fp32 row and one
thread.
"""

import ctypes
import os
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

SHARE = 0.9  # their p
K = {"top-50": 50, "top-2048": 2048, "k50-p0.9-draw": 50}


@dataclass
class Peer:
    task: str
    name: str
    call: Callable[[Any], Any]  # what is timed
    answer: Callable[[Any], int]  # of its result: how many tokens are kept, or the token
    prepare: Callable[[np.ndarray], Any] = lambda row: row  # not timed
    target: float = 0.0  # how many times faster Sluice is to be on hot rows; 0: no promise


def nucleus_size(row):
    weights = np.sort(np.exp(row.astype(np.float64) - row.max()))[::-1]
    return int(np.searchsorted(np.cumsum(weights), SHARE * weights.sum()) + 1)


def peers_of_numpy():
    random = np.random.default_rng(1)

    def top_k(k):
        def run(row):
            ids = np.argpartition(row, -k)[-k:]
            return ids[np.argsort(row[ids])[::-1]]
        return run

    def softmax(row):
        weights = np.exp(row - row.max())
        return weights / weights.sum()

    def top_p(row):
        order = np.argsort(row)[::-1]
        mass = np.cumsum(softmax(row)[order])
        return order[:np.searchsorted(mass, SHARE) + 1]

    def draw_from(ids, probabilities):
        return ids[np.searchsorted(np.cumsum(probabilities), random.random(dtype=np.float32)
                                   * probabilities.sum())]

    def top_k_top_p_draw(row):
        ids = top_k(50)(row)
        probabilities = softmax(row[ids])
        count = np.searchsorted(np.cumsum(probabilities), SHARE) + 1
        return draw_from(ids[:count], probabilities[:count])

    def draw(row):
        mass = np.cumsum(softmax(row))
        return min(np.searchsorted(mass, random.random(dtype=np.float32) * mass[-1]), row.size - 1)

    return [
        Peer("greedy", "numpy argmax", np.argmax, int),
        Peer("top-50", "numpy argpartition", top_k(50), len),
        Peer("top-2048", "numpy argpartition", top_k(2048), len),
        Peer("top-p", "numpy argsort, cumsum", top_p, len),
        Peer("k50-p0.9-draw", "numpy argpartition, cumsum, searchsorted", top_k_top_p_draw, int),
        Peer("draw", "numpy softmax, cumsum, searchsorted", draw, int),
    ]


def peers_of_torch():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    lowest = float("-inf")

    def top_p(row):
        values, ids = torch.sort(row, descending=True)
        mass = torch.cumsum(torch.softmax(values, -1), -1)
        drop = mass > SHARE
        drop[1:] = drop[:-1].clone()
        drop[0] = False
        return row.masked_fill(torch.zeros_like(drop).scatter(0, ids, drop), lowest)

    def top_k_top_p_draw(row):
        values, ids = torch.topk(row, 50)
        probabilities = torch.softmax(values, -1)
        drop = torch.cumsum(probabilities, -1) - probabilities >= SHARE
        return ids[torch.multinomial(probabilities.masked_fill(drop, 0.0), 1)]

    def exponential(row):
        probabilities = torch.softmax(row, -1)
        return torch.argmax(probabilities / torch.empty_like(probabilities).exponential_())

    def kept(scores):
        return int((scores > lowest).sum())

    tensor = torch.from_numpy
    return [
        Peer("greedy", "torch argmax", torch.argmax, int, tensor),
        Peer("top-50", "torch topk", lambda row: torch.topk(row, 50), lambda r: len(r[1]), tensor),
        Peer("top-2048", "torch topk", lambda row: torch.topk(row, 2048), lambda r: len(r[1]),
             tensor),
        Peer("top-p", "torch sort, cumsum, scatter", top_p, kept, tensor),
        Peer("k50-p0.9-draw", "torch topk, cumsum, multinomial", top_k_top_p_draw, int, tensor),
        Peer("draw", "torch softmax, exponential, argmax", exponential, int, tensor, 10.0),
        Peer("draw", "torch softmax, multinomial",
             lambda row: torch.multinomial(torch.softmax(row, -1), 1), int, tensor),
    ]


def peers_of_transformers():
    import torch
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    top_p = TopPLogitsWarper(SHARE)
    no_ids = torch.zeros((1, 1), dtype=torch.long)

    def top_k(k):
        warper = TopKLogitsWarper(k)
        return lambda row: warper(no_ids, row)

    def draw(row):
        scores = top_p(no_ids, top_k(50)(row))
        return torch.multinomial(torch.softmax(scores, -1), 1)

    def kept(scores):
        return int((scores > float("-inf")).sum())

    def batch(row):
        return torch.from_numpy(row)[None]

    return [
        Peer("top-50", "transformers TopKLogitsWarper", top_k(50), kept, batch),
        Peer("top-2048", "transformers TopKLogitsWarper", top_k(2048), kept, batch),
        Peer("top-p", "transformers TopPLogitsWarper", lambda row: top_p(no_ids, row), kept, batch),
        Peer("k50-p0.9-draw", "transformers warpers, softmax, multinomial", draw, int, batch),
    ]


# As llama_sampler_sample does it, for every token.
FILL = """
#include <stddef.h>
#include <stdint.h>
struct candidate { int32_t id; float logit, p; };
void fill(struct candidate* out, const float* logits, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = (struct candidate){(int32_t)i, logits[i], 0.0f};
}
"""


def compiled(source, name):
    """A C function of (address, address, size), optimised; numpy would take twice as long."""
    folder = tempfile.TemporaryDirectory()
    library = os.path.join(folder.name, "peer.so")
    command = [os.environ.get("CC", "cc"), "-O3", "-march=native", "-shared", "-fPIC",
               "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source, encoding="utf-8", check=True)
    function = getattr(ctypes.CDLL(library), name)
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = None
    function.folder = folder  # lives as long as the function
    return function


def peers_of_llama_cpp():
    """Twice: with the array of candidates filled in the clock, as llama_sampler_sample fills it for
    every token, and with an array that is ready."""
    import llama_cpp as llama

    fill_array = compiled(FILL, "fill")

    class Chain:
        def __init__(self, *samplers):
            self.chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
            for sampler in samplers:
                llama.llama_sampler_chain_add(self.chain, sampler)
            self.data = np.zeros((0, 3), np.int32)  # id, logit, p

        def fill(self, row):
            if len(self.data) != len(row):
                self.data = np.zeros((len(row), 3), np.int32)
                pointer = self.data.ctypes.data_as(ctypes.POINTER(llama.llama_token_data))
                self.array = llama.llama_token_data_array(pointer, len(row), -1, False)
                self.address = self.data.ctypes.data
            fill_array(self.address, row.__array_interface__["data"][0], len(row))
            self.array.size = len(row)
            self.array.selected = -1
            self.array.sorted = False

        def apply(self, _=None):
            llama.llama_sampler_apply(self.chain, ctypes.byref(self.array))
            return self

        def fill_and_apply(self, row):
            self.fill(row)
            return self.apply()

        def kept(self, _):
            return self.array.size

        def token(self, _):
            return int(self.data[self.array.selected, 0])

    chains = [
        ("greedy", "greedy", [llama.llama_sampler_init_greedy()], 0.0),
        ("top-50", "top_k", [llama.llama_sampler_init_top_k(50)], 20.0),
        ("top-2048", "top_k", [llama.llama_sampler_init_top_k(2048)], 40.0),
        ("top-p", "top_p", [llama.llama_sampler_init_top_p(SHARE, 1)], 0.0),
        ("k50-p0.9-draw", "top_k, top_p, dist",
         [llama.llama_sampler_init_top_k(50), llama.llama_sampler_init_top_p(SHARE, 1),
          llama.llama_sampler_init_dist(1)], 18.0),
        ("draw", "dist", [llama.llama_sampler_init_dist(1)], 0.0),
    ]
    peers = []
    for task, name, samplers, target in chains:
        chain = Chain(*samplers)
        answer = chain.token if task in ("greedy", "k50-p0.9-draw", "draw") else chain.kept
        peers.append(Peer(task, f"llama.cpp {name}", chain.fill_and_apply, answer, target=target))
        peers.append(Peer(task, f"llama.cpp {name}, array ready", chain.apply, answer, chain.fill))
    return peers


# What to install, and what it gives.
PACKAGES = {
    "numpy": peers_of_numpy,
    "torch": peers_of_torch,
    "transformers": peers_of_transformers,
    "llama-cpp-python": peers_of_llama_cpp,
}
