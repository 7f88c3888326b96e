"""vLLM's top-k and top-p from its own source files, without the rest of vLLM.

Its Triton kernels need a launcher and a few helpers of the package: these are stand-ins with the
same meaning, so that the kernels run as they are in the files of that folder.
"""

import ast
import contextlib
import importlib.util
import sys
import types
from pathlib import Path

import torch
import triton
import triton.language as tl

TRITON_FILE, SORT_FILE = "topk_topp_triton.py", "topk_topp_sampler.py"


class _Launcher:
    """Calls `kernel` with the values of a call and what the decorated function makes of them."""

    def __init__(self, kernel, launch):
        self.kernel = kernel
        self.launch = launch
        self.names = launch.__code__.co_varnames[:launch.__code__.co_argcount]

    def __call__(self, *values):
        grid, arguments = self.launch(*values)[:2]
        arguments = dict(arguments)
        for name, value in zip(self.names, values):
            for target in (name, f"{name}_ptr", name.upper(), f"{name}_ptr".upper()):
                if target in self.kernel.arg_names:
                    arguments.setdefault(target, value)
                    break
        for target in self.kernel.arg_names:  # LOGITS_STRIDE_0 is a stride of LOGITS
            tensor, is_stride, axis = target.upper().rpartition("_STRIDE")
            if target not in arguments and is_stride:
                owner = next(a for a in arguments if a.upper().removesuffix("_PTR") == tensor)
                arguments[target] = arguments[owner].stride(int(axis.strip("_") or 0))
        self.kernel[grid](**arguments)


def _module(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def _stand_ins():
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    platform = types.SimpleNamespace(is_cuda_alike=lambda: True, is_cpu=lambda: False)
    for package in ("vllm", "vllm.model_executor", "vllm.model_executor.warmup", "vllm.utils"):
        _module(package, __path__=[])
    _module("vllm.model_executor.warmup.jit_warmup", WarmupChoices=None, WarmupIntRange=None,
            _when=None)
    _module("vllm.model_executor.warmup.jit_warmup_triton_helper", DispatchSpec=tuple,
            TritonWarmupTensor=None,
            triton_kernel_dispatcher_with_warmup=lambda kernel, warmup_inputs:
            lambda launch: _Launcher(kernel, launch))
    _module("vllm.platforms", current_platform=platform)
    _module("vllm.triton_utils", tl=tl, triton=triton, HAS_TRITON=True)
    _module("vllm.utils.gpu_sync_debug", gpu_sync_allowed=contextlib.nullcontext)
    _module("vllm.utils.math_utils", next_power_of_2=triton.next_power_of_2)
    _module("vllm.utils.platform_utils", num_compute_units=lambda index=0: processors)


def _function(path, name):
    """A function of a file, one that needs nothing but torch."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body
                 if isinstance(node, ast.FunctionDef) and node.name == name]
    space = {"torch": torch}
    exec(compile(tree, str(path), "exec"), space)
    return space[name]


def load(folder):
    """(mask by Triton, mask by sorting, what frees the buffers that the first keeps)."""
    folder = Path(folder)
    _stand_ins()
    spec = importlib.util.spec_from_file_location("vllm_topk_topp", folder / TRITON_FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    by_sorting = _function(folder / SORT_FILE, "apply_top_k_top_p_pytorch")

    # An engine sees on the host whether any row has p alone: only then is there more to launch.
    def by_triton(logits, k, p):
        return module.apply_top_k_top_p_triton(logits, k, p, has_topp_only_rows=k is None)

    return by_triton, by_sorting, module.reset_buffer_cache
