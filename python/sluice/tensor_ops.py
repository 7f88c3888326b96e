"""The operators torch.ops.sluice.*: CUDA kernels on tensors, known to fake tensors and compilers.

Parameters and keys are tensors of bytes that ``write_fields_`` fills (sluice.DeviceParams), Cuts
are int32 [rows, 6], results of a draw int32 [rows, 10], masses int64 [rows, 3]: the structs of the
library as they are. sluice.tensors gives them names.
"""

import torch

from sluice import _sluice
from sluice.errors import ArgumentTypeError, Error

CUT_WORDS, RESULT_WORDS, MASS_WORDS = 6, 10, 3
MOST_COLUMNS = 2**23
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
COLUMN_DTYPES = {torch.int32: "int32", torch.int64: "int64", torch.uint64: "int64",
                 torch.float32: "float32", torch.float64: "float64"}

_ROWS = "Tensor logits, Tensor params, Tensor keys, float max_temperature"
_SCHEMAS = {"float": "float?", "int": "SymInt?", "name": "str?"}
_FIELDS = "".join(
    f", {_SCHEMAS[kind]} {name}=None" + ("" if kind == "name" else f", Tensor? {name}_rows=None")
    for name, kind in _sluice.DEVICE_FIELDS.items())

_library = torch.library.Library("sluice", "DEF")


def define(schema, kernel, fake):
    name = schema[:schema.index("(")]
    _library.define(schema, tags=torch.Tag.pt2_compliant_tag)
    _library.impl(name, kernel, "CUDA")
    torch.library.register_fake(f"sluice::{name}", fake, lib=_library)
    return getattr(torch.ops.sluice, name).default


def check_logits(logits, name="logits"):
    """As the library checks arrays of numpy; before anything is launched."""
    if logits.dtype not in DTYPES:
        raise ArgumentTypeError(f"{name}.dtype", str(logits.dtype).removeprefix("torch."),
                                "float32, bfloat16 or float16")
    if logits.dim() != 2:
        raise Error(f"{name}.ndim", str(logits.dim()), "1 or 2")
    if logits.shape[1] > 1 and logits.stride(1) != 1:
        raise Error(f"{name}.strides", str(list(logits.stride())),
                    "a last axis whose elements are adjacent")


def _stream(tensor):
    return torch.cuda.current_stream(tensor.device).cuda_stream


def rows_of(logits, name="logits"):
    """What the functions of the extension take of rows."""
    check_logits(logits, name)
    rows, vocab = logits.shape
    return (logits.data_ptr(), rows, vocab, vocab if rows <= 1 else logits.stride(0),
            DTYPES[logits.dtype], logits.device.index, _stream(logits))


def _check_beside(logits, **tensors):
    for name, tensor in tensors.items():
        if tensor.device != logits.device:
            raise ArgumentTypeError(f"{name}.device", str(tensor.device),
                                    f"that of the logits, {logits.device}")


def params_of(logits, params, keys, max_temperature):
    _check_beside(logits, params=params, keys=keys)
    return params.data_ptr(), params.shape[0], keys.data_ptr(), keys.shape[0], max_temperature


def _cuts(logits, cuts):
    _check_beside(logits, cuts=cuts)
    if cuts.shape != (logits.shape[0], CUT_WORDS):
        raise Error("cuts.size", str(cuts.shape[0]), str(logits.shape[0]))
    return cuts.contiguous()


def _words(logits, words, dtype=torch.int32):
    return logits.new_empty((logits.shape[0], words), dtype=dtype)


def _write_fields_(params, keys, resets, **fields):
    columns, numbers = {}, {}
    for name, value in fields.items():
        if isinstance(value, torch.Tensor):
            _check_beside(params, **{name.removesuffix("_rows"): value})
            columns[name.removesuffix("_rows")] = (
                value.data_ptr(), COLUMN_DTYPES[value.dtype],
                value.stride(0) if value.dim() == 1 else 0)
        else:
            numbers[name] = value
    if "seed" in numbers:
        numbers["seed"] &= 2**64 - 1
    _sluice.cuda_write_fields(params.data_ptr(), keys.data_ptr(), params.shape[0],
                              params.device.index, _stream(params), resets, columns, **numbers)


def _select(logits, params, keys, max_temperature, masses):
    rows = rows_of(logits)
    cuts, found = _fake_select(logits, params, keys, max_temperature, masses)
    _sluice.cuda_select(rows, params_of(logits, params, keys, max_temperature), cuts.data_ptr(),
                        found.data_ptr())
    return cuts, found


def _fake_select(logits, params, keys, max_temperature, masses):
    check_logits(logits)
    found = logits.new_empty((logits.shape[0] if masses else 0, MASS_WORDS), dtype=torch.int64)
    return _words(logits, CUT_WORDS), found


def _mask_(logits, params, keys, max_temperature):
    rows, cuts = rows_of(logits), _words(logits, CUT_WORDS)
    _sluice.cuda_mask(rows, params_of(logits, params, keys, max_temperature), cuts.data_ptr())
    return cuts


def _fake_mask_(logits, params, keys, max_temperature):
    check_logits(logits)
    return _words(logits, CUT_WORDS)


def _mask_cuts_(logits, cuts):
    _sluice.cuda_mask(rows_of(logits), None, _cuts(logits, cuts).data_ptr())


def _fake_mask_cuts_(logits, cuts):
    check_logits(logits)


def _sample(logits, params, keys, max_temperature, draw_method):
    rows = rows_of(logits)
    ids, statuses = _fake_sample(logits, params, keys, max_temperature, draw_method)
    _sluice.cuda_sample_ids(rows, params_of(logits, params, keys, max_temperature), draw_method,
                            ids.data_ptr(), statuses.data_ptr())
    return ids, statuses


def _fake_sample(logits, params, keys, max_temperature, draw_method):
    check_logits(logits)
    rows = logits.shape[0]
    return logits.new_empty(rows, dtype=torch.int32), logits.new_empty(rows, dtype=torch.uint8)


def _sample_results(logits, params, keys, max_temperature, draw_method):
    rows, results = rows_of(logits), _words(logits, RESULT_WORDS)
    _sluice.cuda_sample(rows, params_of(logits, params, keys, max_temperature), draw_method, 0,
                        results.data_ptr())
    return results


def _fake_sample_results(logits, params, keys, max_temperature, draw_method):
    check_logits(logits)
    return _words(logits, RESULT_WORDS)


def _draw(logits, params, keys, max_temperature, draw_method, cuts):
    rows, results, cuts = rows_of(logits), _words(logits, RESULT_WORDS), _cuts(logits, cuts)
    _sluice.cuda_sample(rows, params_of(logits, params, keys, max_temperature), draw_method,
                        cuts.data_ptr(), results.data_ptr())
    return results


def _fake_draw(logits, params, keys, max_temperature, draw_method, cuts):
    check_logits(logits)
    return _words(logits, RESULT_WORDS)


write_fields_ = define(
    f"write_fields_(Tensor(a!) params, Tensor(b!) keys, bool resets, *{_FIELDS}, "
    "float? max_temperature=None) -> ()", _write_fields_, lambda *args, **fields: None)
select = define(f"select({_ROWS}, bool masses) -> (Tensor, Tensor)", _select, _fake_select)
mask_ = define(
    "mask_(Tensor(a!) logits, Tensor params, Tensor keys, float max_temperature) -> Tensor",
    _mask_, _fake_mask_)
mask_cuts_ = define("mask_cuts_(Tensor(a!) logits, Tensor cuts) -> ()", _mask_cuts_,
                    _fake_mask_cuts_)
sample = define(f"sample({_ROWS}, str draw_method) -> (Tensor, Tensor)", _sample, _fake_sample)
sample_results = define(f"sample_results({_ROWS}, str draw_method) -> Tensor", _sample_results,
                        _fake_sample_results)
draw = define(f"draw({_ROWS}, str draw_method, Tensor cuts) -> Tensor", _draw, _fake_draw)
