"""Lists of log-probabilities from vLLM's engine process to its server, encoded once a step.

vLLM cuts a step's arrays into three for each request, and its encoder calls a function of Python for
each of them: 1.2 ms of Python at 256 requests, while the threads of a process share one interpreter.
Here a request gets a reference to its row, and the rows of a step are encoded together: 0.3 ms.
The bytes are the same.
"""

import functools
import importlib
import weakref

import numpy as np

_ARRAY_OF_3, _ARRAY_OF_4, _NONE = b"\x93", b"\x94", b"\xc0"  # of msgpack


def _encoded_rows(arrays, extension_code):
    """What vLLM's encoder writes for each row of the arrays: (type, shape, bytes) of each, and None.

    `extension_code`: of msgpack, which vLLM gives an array's bytes."""
    from msgspec import Raw, msgpack

    rows = len(arrays[0])
    columns = [np.frombuffer(_ARRAY_OF_4, np.uint8)]
    for array in arrays:
        row = array[:1]
        head = msgpack.encode(row.dtype.str) + msgpack.encode(row.shape)
        head += msgpack.encode(msgpack.Ext(extension_code, bytes(row.nbytes)))[:-row.nbytes]
        columns += [np.frombuffer(_ARRAY_OF_3 + head, np.uint8),
                    np.ascontiguousarray(array).view(np.uint8).reshape(rows, -1)]
    columns.append(np.frombuffer(_NONE, np.uint8))
    table = np.concatenate([np.broadcast_to(column, (rows, column.shape[-1])) for column in columns],
                           axis=1)
    width, data = table.shape[1], memoryview(table.tobytes())
    return [Raw(data[at:at + width]) for at in range(0, rows * width, width)]


class StepLogprobs:
    """The lists of one step. `lists`: vLLM's LogprobsLists."""

    def __init__(self, lists):
        self.lists = lists
        self._rows = None

    def encoded(self, row, code):
        if self._rows is None:
            self._rows = _encoded_rows(self.lists[:3], code)
        return self._rows[row]


class RowLogprobs:
    """Stands for the LogprobsLists of one request, and behaves as they do where nothing is encoded."""

    __slots__ = ("_row", "_step", "_slice")

    def __init__(self, step, row, slice_request):
        self._step, self._row, self._slice = step, row, slice_request

    def encoded(self, code):
        return self._step.encoded(self._row, code)

    def bytes_of_array(self):
        return max(array[:1].nbytes for array in self._step.lists[:3])

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
    latest = [lambda: None]

    @functools.wraps(original)
    def slice_request(self, req_idx, num_positions):
        rows = len(self.logprobs)
        if (num_positions != 1 or self.cu_num_generated_tokens is not None
                or not 0 <= req_idx < rows or rows == 1):
            return original(self, req_idx, num_positions)
        step = latest[0]()
        if step is None or step.lists is not self:
            step = StepLogprobs(self)
            latest[0] = weakref.ref(step)
        return RowLogprobs(step, req_idx, original)

    return slice_request


def enc_hook(original):
    """MsgpackEncoder.enc_hook. Longer arrays go in buffers of their own, as vLLM sends them."""
    code = importlib.import_module("vllm.v1.serial_utils").CUSTOM_TYPE_RAW_VIEW

    @functools.wraps(original)
    def enc_hook(self, obj):
        if type(obj) is not RowLogprobs:
            return original(self, obj)
        is_short = obj.bytes_of_array() < self.size_threshold
        return obj.encoded(code) if is_short else obj.lists()

    return enc_hook
