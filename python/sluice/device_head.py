"""Heads on a CUDA device: what sluice.CertifiedHead and sluice.dense_head do with tensors there.

    head = sluice.CertifiedHead(weight)  # weight: a CUDA tensor, [vocab, dim]
    head.reserve(32)  # before a graph is captured: memory for calls of as many rows
    tokens = head.sample(hidden, params)  # enqueued on the current stream; nothing is waited for
"""

import torch

from sluice import _sluice, tensor_ops, tensors
from sluice.device_params import text_of
from sluice.device_topk import TopkTensors
from sluice.errors import ArgumentTypeError, Error

MOST_K = 2048
MOST_ROWS = 1024


def _array(tensor):
    return (0, 0) if tensor is None else (tensor.data_ptr(), tensor.numel())


def _matrix(name, tensor, device):
    if not isinstance(tensor, torch.Tensor) or tensor.device != device:
        kind = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ArgumentTypeError(name, str(kind), f"a tensor on {device}")
    return tensor_ops.rows_of(tensor, name)


def _checked(name, tensor, dtype, shape, device):
    """The tensor, if its elements are adjacent. A copy would be another's memory by the
    time a kernel reads it, and lost when one has written it."""
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor) or tensor.device != device or tensor.dtype != dtype:
        raise ArgumentTypeError(name, text_of(tensor), f"a tensor of {dtype} on {device}")
    if tuple(tensor.shape) != shape:
        raise Error(f"{name}.shape", str(list(tensor.shape)), str(list(shape)))
    if not tensor.is_contiguous():
        raise Error(f"{name}.strides", str(list(tensor.stride())), "contiguous")
    return tensor


def _states(name, tensor):
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(name, type(tensor).__name__, "a tensor")
    return tensor[None] if tensor.dim() == 1 else tensor


def dense_head(weight, hidden, *, bias=None, out=None):
    """Logits in float32, the bits of the dense head on every other backend."""
    device = weight.device
    rows = _matrix("weight", weight, device)
    states = _states("hidden", hidden)
    shape = (states.shape[0], weight.shape[0])
    bias = _checked("bias", bias, torch.float32, shape[1:], device)
    if out is None:
        logits = torch.empty(shape, device=device)
    else:
        logits = _states("out", out)
        if logits.dtype != torch.float32 or tuple(logits.shape) != shape:
            raise ArgumentTypeError("out", str(list(logits.shape)), f"float32, {list(shape)}")
    _sluice.cuda_project(rows, _array(bias), _matrix("hidden", states, device),
                         _matrix("out", logits, device))
    if out is not None:
        return out
    return logits[0] if hidden.dim() == 1 else logits


class DeviceCertifiedHead:
    """As sluice.CertifiedHead, on a CUDA device: the tokens of ``dense_head`` and ``sample`` there.

    The planes are made on the host, by ``threads``, and copied to the device once; the host keeps a
    copy of the weights next to them. ``weight`` and ``bias`` are kept on the device and must not
    change. Calls with more rows than ``reserve`` was given take more memory: reserve before a graph
    is captured. Memory that a call has used stays until the head goes, since a graph may hold its
    address. Calls on different streams take turns.
    """

    def __init__(self, weight, bias=None, *, kind=None, seed=None, planes=None, check=True,
                 threads=None, progress=None):
        self.device = weight.device
        rows = _matrix("weight", weight, self.device)
        bias = _checked("bias", bias, torch.float32, (weight.shape[0],), self.device)
        self._host = _sluice.CertifiedHead(
            weight.detach().cpu(), None if bias is None else bias.detach().cpu(), kind=kind, seed=seed,
            planes=planes, check=check, threads=threads, progress=progress)
        self._memory = torch.empty(_sluice.CudaHead.plane_bytes(self._host), dtype=torch.uint8,
                                   device=self.device)
        self._head = _sluice.CudaHead(self._host, rows, _array(bias), _array(self._memory))
        self._weight, self._bias = weight, bias
        self._workspaces = [torch.empty(0, dtype=torch.uint8, device=self.device)]

    @property
    def kind(self):
        return self._host.kind

    @property
    def nbytes(self):
        """Bytes of the planes on the device."""
        return self._memory.numel()

    def save(self, path):
        self._host.save(path)

    def reserve(self, rows):
        """Memory for calls with as many rows or fewer, which ``nbytes`` does not count."""
        # For a power of two rows, so that all that is kept is less than twice the largest.
        power = 1 << max(rows - 1, 0).bit_length()
        wanted = self._head.workspace_bytes(power if rows <= MOST_ROWS else rows)
        if self._workspaces[-1].numel() < wanted:
            self._workspaces.append(torch.empty(wanted, dtype=torch.uint8, device=self.device))

    def topk(self, hidden, k, *, bitmask=None, reports=None):
        """The k largest logits of each hidden state and their tokens: a TopkTensors."""
        if not isinstance(k, int):
            raise ArgumentTypeError("k", text_of(k), "a whole number")
        if not 1 <= k <= min(MOST_K, self._weight.shape[0]):
            raise Error("k", str(k), f"[1, {min(MOST_K, self._weight.shape[0])}]")
        arguments = self._arguments(hidden, bitmask, reports)
        rows = arguments[0][1]
        ids = torch.empty((rows, k), dtype=torch.int32, device=self.device)
        logits = torch.empty((rows, k), device=self.device)
        statuses = torch.empty(rows, dtype=torch.uint8, device=self.device)
        self._head.topk(arguments, k, _array(ids), _array(logits), _array(statuses))
        if hidden.dim() == 1:
            return TopkTensors(ids[0], logits[0], statuses[0])
        return TopkTensors(ids, logits, statuses)

    def sample(self, hidden, params=None, *, bitmask=None, reports=None, **keywords):
        """One token a hidden state: sluice.tensors.TokenTensors.

        ``reports``: int32 [rows, 2] to write to. The low byte of the first column is 0 where
        nothing was read, 1 where the planes decided, 2 where few tokens were allowed, 3 for the
        dense head; the second column counts the rows of the head that were computed.
        """
        arguments = self._arguments(hidden, bitmask, reports)
        states = _states("hidden", hidden)
        packed, seeds = tensors.packed(states, params, keywords, draws=True)
        rows = states.shape[0]
        ids = torch.empty(rows, dtype=torch.int32, device=self.device)
        statuses = torch.empty(rows, dtype=torch.uint8, device=self.device)
        self._head.sample(arguments, tensor_ops.params_of(states, *packed[:3]), packed[3],
                          _array(ids), _array(statuses))
        if hidden.dim() == 1:
            return tensors.TokenTensors(ids[0], statuses[0], None,
                                        None if seeds is None else seeds[0])
        return tensors.TokenTensors(ids, statuses, None, seeds)

    def _arguments(self, hidden, bitmask, reports):
        states = _states("hidden", hidden)
        matrix = _matrix("hidden", states, self.device)
        rows, words = states.shape[0], (self._weight.shape[0] + 31) // 32
        shape = (words,) if hidden.dim() == 1 else (rows, words)
        bitmask = _checked("bitmask", bitmask, torch.int32, shape, self.device)
        reports = _checked("reports", reports, torch.int32, (rows, 2), self.device)
        self.reserve(rows)
        places = (0, 0) if reports is None else (reports.data_ptr(), rows)  # a report a row
        return matrix, _array(bitmask), _array(self._workspaces[-1]), places
