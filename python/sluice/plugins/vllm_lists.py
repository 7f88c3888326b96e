"""Lists of log-probabilities from vLLM's engine process to its server, encoded once a step.

vLLM cuts a step's arrays into three for each request, and its encoder calls a function of Python for
each of them: 1.2 ms of Python at 256 requests, while the threads of a process share one interpreter.
Here a request gets a reference to its row, and the rows of a step are encoded together: 0.3 ms.
The bytes are the same.
"""

import functools
import importlib

import numpy as np

_THREE_VALUES, _FOUR_VALUES, _NONE = b"\x93", b"\x94", b"\xc0"  # of msgpack


def _encoded_rows(arrays, code):
    """What vLLM's encoder writes for each row of the arrays: (type, shape, bytes) of each, and None.

    `code`: of msgpack's extension that vLLM gives an array's bytes."""
    from msgspec import Raw, msgpack

    rows = len(arrays[0])
    columns = [np.frombuffer(_FOUR_VALUES, np.uint8)]
    for array in arrays:
        row = array[:1]
        head = msgpack.encode(row.dtype.str) + msgpack.encode(row.shape)
        head += msgpack.encode(msgpack.Ext(code, bytes(row.nbytes)))[:-row.nbytes]
        columns += [np.frombuffer(_THREE_VALUES + head, np.uint8),
                    np.ascontiguousarray(array).view(np.uint8).reshape(rows, -1)]
    columns.append(np.frombuffer(_NONE, np.uint8))
    table = np.concatenate([np.broadcast_to(column, (rows, column.shape[-1])) for column in columns],
                           axis=1)
    width, data = table.shape[1], memoryview(table.tobytes())
    return [Raw(data[at:at + width]) for at in range(0, rows * width, width)]


class Step:
    """The lists of one step. `lists`: vLLM's LogprobsLists."""

    def __init__(self, lists):
        self.lists = lists
        self._rows = None

    def encoded(self, row, code):
        if self._rows is None:
            self._rows = _encoded_rows(self.lists[:3], code)
        return self._rows[row]


class Row:
    """What stands for the LogprobsLists of one request; a process that does not encode it finds
    vLLM's own in it."""

    __slots__ = ("_row", "_step", "_slice")

    def __init__(self, step, row, slice_request):
        self._step, self._row, self._slice = step, row, slice_request

    def encoded(self, code):
        return self._step.encoded(self._row, code)

    def lists(self):
        return self._slice(self._step.lists, self._row, 1)

    def __iter__(self):
        return iter(self.lists())

    def __len__(self):
        return len(self.lists())

    def __getitem__(self, at):
        return self.lists()[at]

    def __getattr__(self, name):
        return getattr(self.lists(), name)

    def __reduce__(self):
        lists = self.lists()
        return type(lists), tuple(lists)


def slice_request(original):
    """LogprobsLists.slice_request. The scheduler calls it for each request of a step in turn."""
    latest = [None]

    @functools.wraps(original)
    def slice_request(self, req_idx, num_positions):
        if num_positions != 1 or self.cu_num_generated_tokens is not None:
            return original(self, req_idx, num_positions)
        step = latest[0]
        if step is None or step.lists is not self:
            step = latest[0] = Step(self)
        return Row(step, req_idx, original)

    return slice_request


def enc_hook(original):
    """MsgpackEncoder.enc_hook."""
    code = importlib.import_module("vllm.v1.serial_utils").CUSTOM_TYPE_RAW_VIEW

    @functools.wraps(original)
    def enc_hook(self, obj):
        return obj.encoded(code) if type(obj) is Row else original(self, obj)

    return enc_hook
