"""vLLM's V1 Sampler and what it calls, from the files of its wheel (peers.py), without the rest of it.

What they import from elsewhere is a stand-in, or a function alone of a file that needs all of vLLM.
"""

import ast
import collections
import contextlib
import logging
import types

import numpy as np
import peers
import torch

VERSION = "0.33.0"
SAMPLER, METADATA = "vllm.v1.sample.sampler", "vllm.v1.sample.metadata"
FILTERS, BUILTIN = "vllm.v1.sample.ops.topk_topp_sampler", "vllm.v1.sample.logits_processor.builtin"
STATE = "vllm.v1.sample.logits_processor.state"
INTERFACE = "vllm.v1.sample.logits_processor.interface"
OPS = ("vllm.v1.sample.ops.penalties", "vllm.v1.sample.ops.bad_words", "vllm.v1.sample.ops.logprobs")
REAL = (SAMPLER, METADATA, FILTERS, BUILTIN, STATE, INTERFACE, *OPS)


def functions_of(sources, module, names, **space):
    """Functions of a file that need nothing but `space`: the rest of it needs all of vLLM."""
    tree = ast.parse(sources.read(module))
    tree.body = [node for node in tree.body
                 if isinstance(node, ast.FunctionDef) and node.name in names]
    for function in tree.body:  # of the annotations' names some are not there
        function.returns = None
        for argument in function.args.args + function.args.kwonlyargs:
            argument.annotation = None
    exec(compile(tree, f"{sources}/{module}", "exec"), space)
    return {name: space[name] for name in names}


class Platform:
    """Neither a GPU nor vLLM's own kernels for CPUs: its native path."""

    simple_compile_backend = "eager"

    def __getattr__(self, question):
        return lambda *args: False


def given(sources):
    utils = functions_of(sources, "vllm.utils.torch_utils",
                         ("make_ndarray_with_pad", "make_tensor_with_pad", "async_tensor_h2d"),
                         np=np, torch=torch, PIN_MEMORY=False,
                         TORCH_DTYPE_TO_NUMPY_DTYPE={torch.int64: np.int64})
    penalties = functions_of(sources, "vllm.model_executor.layers.utils",
                             ("get_token_bin_counts_and_mask", "apply_penalties"), torch=torch)
    repetition = functions_of(sources, "vllm._custom_ops", ("apply_repetition_penalties_torch",),
                              torch=torch)["apply_repetition_penalties_torch"]
    return {
        "vllm._aiter_ops": {"rocm_aiter_ops": types.SimpleNamespace(is_enabled=lambda: False)},
        "vllm._custom_ops": {"apply_repetition_penalties": repetition},
        "vllm.config.model": {
            "PROCESSED_LOGPROBS_MODES": ("processed_logits", "processed_logprobs")},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.model_executor.layers.utils": penalties,
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.triton_utils": {"HAS_TRITON": False},
        "vllm.utils.gpu_sync_debug": {
            "gpu_sync_allowed": lambda **keywords: contextlib.nullcontext()},
        "vllm.utils.torch_utils": {"PIN_MEMORY": False, **utils},
        "vllm.v1.outputs": {
            "SamplerOutput": types.SimpleNamespace,
            "LogprobsTensors": collections.namedtuple("LogprobsTensors", "ids values ranks")},
    }


@contextlib.contextmanager
def loaded(sources, stand_ins=None):
    """vLLM's modules by their last names."""
    compiles, torch.compile = torch.compile, lambda **keywords: lambda function: function
    try:
        with peers.Engine(sources, REAL, stand_ins or given(sources)):
            yield types.SimpleNamespace(
                **{name.rpartition(".")[2]: __import__(name, fromlist=["_"]) for name in REAL})
    finally:
        torch.compile = compiles
