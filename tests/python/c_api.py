"""The C interface through ctypes, as far as the comparison with sluice.reference needs it.

Structs have the layouts of include/sluice/c/; those of the parameters are made from params.def.
"""

import ctypes as c
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("SLUICE_C_LIBRARY", "")
ABI_VERSION = 1
PROFILE_SWITCHES = {  # the values 0 and 1 of each field of sluice_profile
    "ties": ("lowest_id", "all"),
    "top_k_top_p": ("sequential", "joint"),
    "min_p_stage": ("before_top_k", "last"),
    "top_p_boundary": ("exclusive", "inclusive"),
    "penalty_scope": ("output", "prompt_and_output"),
    "temperature_stage": ("before_truncation", "last"),
}
DRAW_METHODS = ("gumbel", "cdf")
DRAFT_MODES = ("match", "reject")
LOGPROB_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
STREAMS = ("target", "draft")
F32, BF16, F16 = 0, 1, 2


@dataclass
class DefinedParam:
    """One line of params.def."""

    kind: str  # SELECT, REQUEST, OPTIONAL, CHOICE or LIST
    type: str
    name: str
    default: str  # "" where there is none
    range: tuple[str, str, str] | None  # CLOSED or OPEN_CLOSED, low, high


def read_params_def() -> list[DefinedParam]:
    text = (ROOT / "include/sluice/params.def").read_text(encoding="utf-8")
    params = []
    for kind, body in re.findall(r"^SLUICE_(\w+)_PARAM\(((?:[^()]|\([^()]*\))*)\)", text, re.M):
        ranges = re.search(r"SLUICE_(CLOSED|OPEN_CLOSED)\(([^,]*), ([^)]*)\)", body)
        words = [word.strip() for word in body.split(",")]
        default = words[2] if kind in ("SELECT", "REQUEST", "CHOICE") else ""
        params.append(
            DefinedParam(kind, words[0], words[1], default, ranges.groups() if ranges else None)
        )
    return params


def struct(name: str, *members) -> type[c.Structure]:
    return type(name, (c.Structure,), {"_fields_": list(members)})


Device = struct("Device", ("kind", c.c_uint8), ("index", c.c_int32))
View = struct(  # sluice_matrix_view, sluice_logits_view and sluice_mutable_logits_view
    "View",
    ("data", c.c_void_p),
    ("rows", c.c_int64),
    ("columns", c.c_int64),
    ("stride", c.c_int64),
    ("dtype", c.c_uint8),
    ("device", Device),
)
ParallelFor = struct(
    "ParallelFor", ("workers", c.c_int), ("context", c.c_void_p), ("run", c.c_void_p)
)
Execution = struct(
    "Execution",
    ("abi_version", c.c_uint32),
    ("backend", c.c_uint8),
    ("algorithm", c.c_uint8),
    ("parallel", ParallelFor),
    ("workspace", c.c_void_p),
    ("workspace_bytes", c.c_size_t),
    ("stream", c.c_void_p),
    ("work", c.c_void_p),
    ("work_count", c.c_size_t),
)
Profile = struct("Profile", *((name, c.c_uint8) for name in PROFILE_SWITCHES))
Limits = struct("Limits", ("max_temperature", c.c_float))
List = struct("List", ("data", c.c_void_p), ("count", c.c_size_t))
OptionalList = struct(
    "OptionalList", ("has_value", c.c_bool), ("data", c.c_void_p), ("count", c.c_size_t)
)
C_TYPES = {
    "float": c.c_float,
    "int32_t": c.c_int32,
    "uint64_t": c.c_uint64,
    "DrawMethod": c.c_uint8,
    "DraftMode": c.c_uint8,
    "LogprobMode": c.c_uint8,
    "Profile": Profile,
    "TokenIds": List,
    "OptionalTokenIds": OptionalList,
    "TokenSequences": List,
    "BiasEntries": List,
}


def _param_members(kinds: tuple[str, ...]):
    for param in read_params_def():
        if param.kind in kinds:
            if param.kind == "OPTIONAL":
                yield f"has_{param.name}", c.c_bool
            yield param.name, C_TYPES[param.type]


SelectParams = struct("SelectParams", *_param_members(("SELECT",)), ("profile", Profile))
SamplingParams = struct(
    "SamplingParams", *_param_members(("SELECT", "REQUEST", "OPTIONAL", "CHOICE", "LIST"))
)
NoiseKey = struct(
    "NoiseKey",
    ("seed", c.c_uint64),
    ("position", c.c_uint32),
    ("choice", c.c_uint32),
    ("stream", c.c_uint8),
)
CUT_MEMBERS = (
    ("upper", c.c_float),
    ("lower", c.c_float),
    ("ties_dropped", c.c_int32),
    ("ties_kept", c.c_int32),
    ("count", c.c_int32),
    ("status", c.c_uint8),
)
Cut = struct("Cut", *CUT_MEMBERS)
CutMass = struct("CutMass", ("kept", c.c_uint64), ("total", c.c_uint64), ("margin", c.c_uint64))
TokenResult = struct(
    "TokenResult",
    ("id", c.c_int32),
    ("status", c.c_uint8),
    ("logprob", c.c_float),
    ("rank", c.c_int32),
    ("cut", Cut),
)
SelectInput = struct(
    "SelectInput",
    ("logits", View),
    ("params", c.c_void_p),
    ("param_count", c.c_size_t),
    ("keys", c.c_void_p),
    ("key_count", c.c_size_t),
    ("limits", Limits),
)
Candidates = struct(
    "Candidates",
    ("offsets", c.c_void_p),
    ("offset_count", c.c_size_t),
    ("ids", c.c_void_p),
    ("id_count", c.c_size_t),
    ("logits", c.c_void_p),
    ("logit_count", c.c_size_t),
    ("weights", c.c_void_p),
    ("weight_count", c.c_size_t),
)
LogprobInput = struct(
    "LogprobInput",
    ("logits", View),
    ("mode", c.c_uint8),
    ("params", c.c_void_p),
    ("param_count", c.c_size_t),
)
LogprobLists = struct(
    "LogprobLists",
    ("width", c.c_int32),
    ("ids", c.c_void_p),
    ("id_count", c.c_size_t),
    ("values", c.c_void_p),
    ("value_count", c.c_size_t),
)
Drafts = struct(
    "Drafts",
    ("first_row", c.c_void_p),
    ("first_row_count", c.c_size_t),
    ("ids", c.c_void_p),
    ("id_count", c.c_size_t),
    ("probabilities", View),
    ("model", SelectInput),
    ("model_cuts", c.c_void_p),
    ("model_cut_count", c.c_size_t),
)
TopkInput = struct(
    "TopkInput",
    ("scores", View),
    ("k", c.c_int32),
    ("lengths", c.c_void_p),
    ("length_count", c.c_size_t),
    ("next_n", c.c_int32),
    ("hint", c.c_void_p),
    ("hint_count", c.c_size_t),
    ("hint_columns", c.c_int32),
    ("hint_shift", c.c_int32),
    ("sorted", c.c_bool),
    ("thresholds", c.c_void_p),
    ("threshold_count", c.c_size_t),
)
DenseHead = struct("DenseHead", ("weight", View), ("bias", c.c_void_p), ("bias_count", c.c_size_t))
Shard = struct("Shard", ("logits", View), ("first_id", c.c_int32))
ShardInput = struct(
    "ShardInput",
    ("shards", c.c_void_p),
    ("shard_count", c.c_size_t),
    ("params", c.c_void_p),
    ("param_count", c.c_size_t),
    ("keys", c.c_void_p),
    ("key_count", c.c_size_t),
    ("limits", Limits),
)
SamplerOptions = struct(
    "SamplerOptions",
    ("abi_version", c.c_uint32),
    ("vocab", c.c_int64),
    ("max_requests", c.c_int32),
    ("limits", Limits),
    ("backend", c.c_uint8),
    ("parallel", ParallelFor),
)
APPLY = c.CFUNCTYPE(
    c.c_int,
    c.c_void_p,
    c.POINTER(c.c_int32),
    c.c_size_t,
    c.c_size_t,
    c.POINTER(c.c_float),
    c.c_size_t,
)
LogitsProcessor = struct(
    "LogitsProcessor", ("context", c.c_void_p), ("apply", APPLY), ("argmax_invariant", c.c_bool)
)
CRequest = struct(
    "CRequest",
    ("params", SamplingParams),
    ("prompt", c.c_void_p),
    ("prompt_count", c.c_size_t),
    ("choice", c.c_uint32),
    ("max_new_tokens", c.c_int32),
    ("processors", c.c_void_p),
    ("processor_count", c.c_size_t),
)
RequestHandle = struct("RequestHandle", ("slot", c.c_int32), ("generation", c.c_uint32))
StepRequest = struct(
    "StepRequest",
    ("request", RequestHandle),
    ("drafts", c.c_void_p),
    ("draft_count", c.c_size_t),
    ("parents", c.c_void_p),
    ("parent_count", c.c_size_t),
    ("draft_probabilities", View),
    ("draft_model", SelectInput),
    ("draft_cuts", c.c_void_p),
    ("draft_cut_count", c.c_size_t),
    ("bitmask", c.c_void_p),
    ("word_count", c.c_size_t),
    ("forced", c.c_int32),
)
StepInput = struct(
    "StepInput", ("logits", View), ("requests", c.c_void_p), ("request_count", c.c_size_t)
)
StepOutput = struct(
    "StepOutput",
    ("tokens", c.c_void_p),
    ("token_count", c.c_size_t),
    ("emitted", c.c_void_p),
    ("emitted_count", c.c_size_t),
    ("logprobs", LogprobLists),
    ("kept", c.c_void_p),
    ("kept_count", c.c_size_t),
    ("masses", c.c_void_p),
    ("mass_count", c.c_size_t),
    ("adjusted", View),
    ("path", c.c_void_p),
    ("path_count", c.c_size_t),
)


def load() -> c.CDLL:
    library = c.CDLL(LIBRARY)
    library.sluice_last_error.restype = c.c_char_p
    library.sluice_backend_count.restype = c.c_size_t
    library.sluice_profile_count.restype = c.c_size_t
    assert library.sluice_abi_version() == ABI_VERSION
    return library


lib = load() if LIBRARY else None


def call(name: str, *args) -> None:
    """A call that must succeed. Structs and arrays are passed by their addresses."""

    def argument(arg):
        if isinstance(arg, np.ndarray):
            return c.c_void_p(arg.ctypes.data if arg.size else None)
        if isinstance(arg, c.Structure) and not isinstance(arg, RequestHandle):
            return c.byref(arg)
        return c.c_size_t(arg) if type(arg) is int else arg

    status = getattr(lib, name)(*[argument(arg) for arg in args])
    assert status == 0, f"{name}: {lib.sluice_last_error().decode()}"


def dtype_of(array: np.ndarray) -> int:
    return {"float32": F32, "uint16": BF16, "float16": F16}[array.dtype.name]


def view(array: np.ndarray) -> View:
    """Of a matrix whose rows are contiguous; what lies between them is padding."""
    assert array.ndim == 2
    assert array.size == 0 or array.shape[1] == 1 or array.strides[1] == array.itemsize
    rows, columns = array.shape
    stride = array.strides[0] // array.itemsize if rows > 1 else columns
    return View(array.ctypes.data, rows, columns, stride, dtype_of(array), Device(0, 0))


def to_profile(profile) -> Profile:
    values = (names.index(getattr(profile, switch)) for switch, names in PROFILE_SWITCHES.items())
    return Profile(*values)


def to_select_params(params: list) -> c.Array:
    names = [name for name, _ in SelectParams._fields_ if name != "profile"]
    array = (SelectParams * len(params))()
    for to, p in zip(array, params):
        for name in names:
            setattr(to, name, getattr(p, name))
        to.profile = to_profile(p.profile)
    return array


def to_keys(keys: list) -> c.Array:
    return (NoiseKey * len(keys))(
        *((k.seed, k.position, k.choice, STREAMS.index(k.stream)) for k in keys)
    )


def to_cuts(cuts: list) -> c.Array:
    names = [name for name, _ in CUT_MEMBERS]
    return (Cut * len(cuts))(*(tuple(getattr(cut, name) for name in names) for cut in cuts))


def int32s(values) -> np.ndarray:
    return np.array(list(values), dtype=np.int32)


def to_sampling_params(params) -> tuple[SamplingParams, list]:
    """And what must stay alive beside it."""
    result, alive = SamplingParams(), []

    def list_of(array, count: int) -> tuple[int, int]:
        alive.append(array)
        return (array.ctypes.data if isinstance(array, np.ndarray) else c.addressof(array)), count

    for p in read_params_def():
        value = getattr(params, p.name)
        if p.kind == "OPTIONAL":
            setattr(result, f"has_{p.name}", value is not None)
            setattr(result, p.name, value or 0)
        elif p.type == "Profile":
            result.profile = to_profile(value)
        elif p.kind == "CHOICE":
            names = {"DrawMethod": DRAW_METHODS, "DraftMode": DRAFT_MODES}
            setattr(result, p.name, names.get(p.type, LOGPROB_MODES).index(value))
        elif p.type == "TokenIds":
            setattr(result, p.name, List(*list_of(int32s(value), len(value))))
        elif p.type == "OptionalTokenIds":
            if value is not None:
                setattr(result, p.name, OptionalList(True, *list_of(int32s(value), len(value))))
        elif p.type == "TokenSequences":
            words = (List * max(1, len(value)))(
                *(List(*list_of(int32s(word), len(word))) for word in value)
            )
            setattr(result, p.name, List(*list_of(words, len(value))))
        elif p.type == "BiasEntries":
            entries = np.array([tuple(e) for e in value], dtype=[("id", "i4"), ("bias", "f4")])
            setattr(result, p.name, List(*list_of(entries, len(value))))
        else:
            setattr(result, p.name, value)
    return result, alive


def backends() -> list[int]:
    """Those that this machine has."""
    Info = struct(
        "Info",
        ("backend", c.c_uint8),
        ("available", c.c_bool),
        ("name", c.c_char_p),
        ("reason", c.c_char_p),
    )
    infos = []
    for index in range(lib.sluice_backend_count()):
        info = Info()
        call("sluice_backend_at", index, info)
        infos.append(info)
    return [info.backend for info in infos if info.available]


def execution(workspace: np.ndarray | None, backend: int = 0) -> Execution:
    result = Execution(abi_version=ABI_VERSION, backend=backend, parallel=ParallelFor(workers=1))
    if workspace is not None:
        result.workspace = workspace.ctypes.data
        result.workspace_bytes = workspace.nbytes
    return result


def aligned(size: int) -> np.ndarray:
    size = max(1, size)  # numpy gives an empty array any address
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def bits(x: float) -> int | str:
    """For comparing: +0 and -0 differ, all NaNs are one."""
    return "nan" if x != x else int(np.float32(x).view(np.uint32))


def plain(structure: c.Structure) -> tuple:
    """A struct as a tuple of numbers, for comparing."""

    def value(name: str, kind: type):
        member = getattr(structure, name)
        if isinstance(member, c.Structure):
            return plain(member)
        return bits(member) if kind is c.c_float else member

    return tuple(value(name, kind) for name, kind in structure._fields_)
