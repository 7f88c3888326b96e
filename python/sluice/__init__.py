"""Sluice: the last mile of language-model decoding, from logits to tokens.

Exact top-k / top-p / min-p selection, draws that can be replayed, log-probabilities, penalties,
draft verification. Arrays of numpy and tensors of anything with ``__dlpack__`` go in without a
copy; numpy arrays come out. For CUDA tensors of torch, select, mask_, sample, topk and the heads
give tensors on their device (sluice.tensors). The same logits, parameters, seed and position give the
same token, bit for bit, on every backend and in any batch.

    >>> logits = np.array([[1.5, 0.25, 3.0, 2.75]], np.float32)
    >>> sluice.sample(logits, temperature=0.8, top_k=2, seed=42).ids
    array([2], dtype=int32)
"""

from importlib import import_module

try:
    from sluice import _sluice
except ImportError as error:
    from sluice.load_error import explain as _explain

    raise ImportError(_explain(error, __path__[0])) from error
from sluice._sluice import (
    Candidates,
    Cuts,
    Explanation,
    LogitsProcessor,
    RequestHandle,
    Sampler,
    SamplingParams,
    Status,
    StageReport,
    StepRequest,
    Threads,
    TokenResults,
    TopkResults,
    algorithms,
    backends,
    candidates,
    explain,
    kept_bitmask,
    logprobs,
    parameters,
    verify,
)
from sluice.errors import ArgumentTypeError, Error, ExhaustedError, UnavailableError

TYPE_CHECKING = False  # as type checkers have it; typing takes long to load
if TYPE_CHECKING:  # the stub has every keyword
    from sluice._sluice import CertifiedHead, dense_head, mask_, sample, select, topk
else:
    from sluice.rows import CertifiedHead, dense_head, mask_, sample, select, topk

__all__ = [
    "ArgumentTypeError",
    "Candidates",
    "CertifiedHead",
    "Cuts",
    "Error",
    "ExhaustedError",
    "Explanation",
    "LogitsProcessor",
    "RequestHandle",
    "Sampler",
    "SamplingParams",
    "Status",
    "StageReport",
    "StepRequest",
    "Threads",
    "TokenResults",
    "TopkResults",
    "UnavailableError",
    "algorithms",
    "backends",
    "candidates",
    "dense_head",
    "explain",
    "kept_bitmask",
    "logprobs",
    "mask_",
    "parameters",
    "sample",
    "select",
    "show_config",
    "topk",
    "verify",
]

# What a build lacks where CMake did not find the libraries, by the part of the package.
_PARTS = {
    "text": (
        "simdjson, PCRE2 and utf8proc",
        ("ChatTemplate", "Detokenizer", "StopScanner", "TextDelta", "TextStream", "Tokenizer"),
    ),
    "engines": (
        "libzmq, cppzmq, msgpack-cxx and the libraries of text",
        ("AsyncEngineClient", "AsyncOutputStream", "EngineClient", "Grammar", "GrammarCompiler",
         "GrammarMatcher", "Output", "OutputStream"),
    ),
}

if hasattr(_sluice, "Tokenizer"):
    from sluice._sluice import (
        ChatTemplate,
        Detokenizer,
        StopScanner,
        TextDelta,
        TextStream,
        Tokenizer,
    )

    __all__ += ["ChatTemplate", "Detokenizer", "StopScanner", "TextDelta", "TextStream", "Tokenizer"]

if hasattr(_sluice, "EngineClient"):
    from sluice._sluice import (
        EngineClient,
        Grammar,
        GrammarCompiler,
        GrammarMatcher,
        Output,
        OutputStream,
    )

    if TYPE_CHECKING:
        from sluice.async_engine import AsyncEngineClient, AsyncOutputStream

    __all__ += ["AsyncEngineClient", "AsyncOutputStream", "EngineClient", "Grammar", "GrammarCompiler",
                "GrammarMatcher", "Output", "OutputStream"]

__version__: str = _sluice.build()["version"]


def show_config() -> None:
    """Prints what was built and what this machine can run: the first lines of a bug report.

    >>> sluice.show_config()  # doctest: +ELLIPSIS
    sluice ...
    """
    build = _sluice.build()
    cuda = f", CUDA {build['cuda']}" if build["cuda"] else ", without CUDA"
    print(f"sluice {build['version']}, {build['compiler']}{cuda}"
          + (", with assertions" if build["assertions"] else ""))
    for backend in backends():
        print(f"{backend['name']}: {'available' if backend['available'] else backend['reason']}")
    if build["cuda"]:
        # In a process of its own: this one may fork, and CUDA does not work in a child of one that looked.
        report = import_module("subprocess").run([import_module("sys").executable, "-m", "sluice", "--version", "--json"],
                                                 capture_output=True, check=True).stdout
        print(f"cuda: {import_module('json').loads(report)['cuda']['problem'] or 'available'}")
    for part, (libraries, names) in _PARTS.items():
        print(f"{part}: {'available' if names[-1] in globals() else f'built without {libraries}'}")


def __dir__() -> list[str]:
    # What is public: the rest is how it is loaded.
    return sorted({*__all__, *_LOADED_LATER, "__version__", "__doc__", "__name__", "__file__", "__path__"})


_LOADED_LATER = ("DeviceParams", "DeviceSampler", "MetadataSampler", "reference", "research", "tensors")


def __getattr__(name: str) -> object:
    # Loaded at first use: the reference in numpy, and what needs torch or asyncio.
    if name in ("reference", "research", "tensors"):
        return import_module(f"sluice.{name}")
    if name == "DeviceParams":
        return import_module("sluice.tensors").DeviceParams
    if name == "DeviceSampler":
        return import_module("sluice.device_sampler").DeviceSampler
    if name == "MetadataSampler":
        return import_module("sluice.metadata_sampler").MetadataSampler
    if name in ("AsyncEngineClient", "AsyncOutputStream") and hasattr(_sluice, "EngineClient"):
        return getattr(import_module("sluice.async_engine"), name)
    for part, (libraries, names) in _PARTS.items():
        if name in names:
            raise AttributeError(f"this build of sluice has no {part}, so there is no sluice.{name}: "
                                 f"install {libraries}, then build the package again")
    raise AttributeError(f"module 'sluice' has no attribute {name!r}")
