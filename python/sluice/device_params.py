"""Sampling parameters and noise keys in device memory."""

import torch

from sluice import _sluice, tensor_ops
from sluice.errors import ArgumentTypeError, Error

FIELDS = _sluice.DEVICE_FIELDS  # name to kind: float, int or name
REPORTED = ("draft_mode", "logprob_mode")  # of a SamplingParams; no call on the device reads them
MAX_TEMPERATURE = 2.0


def text_of(value):
    text = repr(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
    return text[:40]


def is_on_device(value):
    return isinstance(value, torch.Tensor) and value.is_cuda


def only_known(keywords, known):
    for name, value in keywords.items():
        if name not in known:
            raise ArgumentTypeError(name, text_of(value),
                                    f"one of the keywords {', '.join(known)} on a CUDA device")


def merged(params, keywords):
    """The fields of `params`, None or SamplingParams or a sequence, one a row, below `keywords`."""
    given = {name: value for name, value in keywords.items() if value is not None}
    if not isinstance(given.get("draw_method", ""), str):
        raise ArgumentTypeError("draw_method", text_of(given["draw_method"]), "gumbel or cdf")
    if params is None:
        return given
    many = params if isinstance(params, (list, tuple)) else [params]
    for one in many:
        if not isinstance(one, _sluice.SamplingParams):
            raise ArgumentTypeError(
                "params", text_of(one),
                "SamplingParams, a sequence of them, one a row, or DeviceParams")
    states = [one.__getstate__() for one in many]
    fields = {}
    for name in dict.fromkeys(name for state in states for name in state):
        values = [getattr(one, name) for one in many]
        if name in REPORTED:
            continue
        if all(value == values[0] for value in values):
            fields[name] = values[0]
        elif FIELDS.get(name) in ("float", "int") and None not in values:
            fields[name] = values
        else:
            raise Error(name, "different from row to row", "one value for all rows of a call")
    if isinstance(params, (list, tuple)) and "temperature" not in given:
        fields["temperature"] = [one.temperature for one in many]  # so that rows are counted
    return {**fields, **given}


def _number(name, kind, value):
    if kind == "name":
        if not isinstance(value, str):
            raise ArgumentTypeError(name, text_of(value), "one name for all rows")
        return value
    if kind == "float":
        if not isinstance(value, (int, float)):
            raise ArgumentTypeError(name, text_of(value), "a number, or one a row")
        return float(value)
    if not isinstance(value, int):
        raise ArgumentTypeError(name, text_of(value), "a whole number, or one a row")
    if name == "seed":
        if not 0 <= value < 2**64:
            raise Error(name, text_of(value), f"[0, {2**64 - 1}]")
        return value - 2**64 if value >= 2**63 else value  # the operator takes signed numbers
    if not -2**63 <= value < 2**63:
        raise Error(name, text_of(value), "a number of 64 bits")
    return value


def _column(name, kind, values, rows, device):
    """Values one a row, on the device."""
    if not is_on_device(values):
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentTypeError(name, text_of(values),
                                    "a number or a CUDA tensor while a graph is captured")
        host = torch.from_numpy(_sluice.row_values(name, values))
        values = host.to(device, non_blocking=True)
    reals = (torch.float32, torch.float64) if kind == "float" else ()
    allowed = [*reals, torch.int32, torch.int64]
    if values.dtype not in allowed and not (name == "seed" and values.dtype == torch.uint64):
        names = [str(dtype).removeprefix("torch.") for dtype in allowed]
        raise ArgumentTypeError(f"{name}.dtype", str(values.dtype).removeprefix("torch."),
                                ", ".join(names[:-1]) + " or " + names[-1])
    if values.device != device:
        raise ArgumentTypeError(f"{name}.device", str(values.device), f"that of the rows, {device}")
    if values.dim() > 1:
        raise Error(f"{name}.ndim", str(values.dim()), "0 or 1")
    if values.dim() == 1 and len(values) != rows:
        raise Error(f"{name}.size", str(values.numel()),
                    f"one for all rows or one a row, {rows}")
    return values


def write_fields(params, keys, resets, fields, rows):
    """Sets fields of `params` and `keys` in place: numbers, or values one of the `rows`."""
    numbers, columns = {}, {}
    for name, value in fields.items():
        kind = FIELDS[name] if name in FIELDS else "float"
        is_number = isinstance(value, (int, float, str))
        if not is_number and not is_on_device(value) and getattr(value, "ndim", None) == 0:
            value, is_number = value.item(), True
        if is_number:
            numbers[name] = _number(name, kind, value)
        elif kind == "name" or name not in FIELDS:  # max_temperature
            raise ArgumentTypeError(name, text_of(value), "one value for all rows")
        else:
            columns[name + "_rows"] = _column(name, kind, value, rows, params.device)
    tensor_ops.write_fields_(params, keys, resets, **numbers, **columns)


def empty_params(count, device):
    """Memory for the parameters and the keys of rows."""
    return (torch.empty((count, _sluice.SELECT_PARAMS_BYTES), dtype=torch.uint8, device=device),
            torch.empty((count, _sluice.NOISE_KEY_BYTES), dtype=torch.uint8, device=device))


class DeviceParams:
    """Parameters and noise keys that stay in device memory: packed once, passed as ``params``.

    ``rows=1`` holds one value for all rows of a call, ``rows=N`` one a row. Keywords are those of a
    call, numbers or tensors on the device (``temperature``, ``top_k``, ..., ``seed``, ``position``,
    ``choice``, ``profile``, ``stream``), and ``draw_method`` and ``max_temperature``, which stay::

        params = sluice.DeviceParams(rows=8, top_k=50, top_p=0.9, seed=seeds)
        with torch.cuda.graph(graph):
            tokens = sluice.sample(logits, params)
        for step in range(100):
            params.update_(position=step)  # in place, on the current stream
            graph.replay()
    """

    def __init__(self, params=None, *, rows=1, device=None, max_temperature=None, **keywords):
        if not isinstance(rows, int) or not 0 <= rows < 2**28:
            raise Error("rows", text_of(rows), f"[0, {2**28 - 1}]")
        device = torch.device("cuda" if device is None else device)
        if device.type != "cuda":
            raise ArgumentTypeError("device", str(device), "a CUDA device")
        fields = merged(params, keywords)
        self.draw_method = fields.pop("draw_method", "gumbel")
        self.max_temperature = MAX_TEMPERATURE if max_temperature is None else max_temperature
        self.has_seed = False
        self.rows = rows
        self.params, self.keys = empty_params(rows, device)
        self._write(True, fields)

    def update_(self, params=None, **keywords):
        """Sets the given fields in place, on the current stream, and leaves the others alone."""
        self._write(False, merged(params, keywords))
        return self

    def _write(self, resets, fields):
        only_known(fields, FIELDS)
        write_fields(self.params, self.keys, resets,
                     {**fields, "max_temperature": self.max_temperature}, self.rows)
        self.has_seed = self.has_seed or "seed" in fields
