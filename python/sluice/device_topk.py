"""topk of scores in CUDA memory: sluice.topk on tensors of torch, and the operators below it.

A call takes no memory but its outputs, enqueues one kernel on the current stream and waits for
nothing. With SLUICE_LOG=topk in the environment, what PlanTopk decides is printed on stderr.

    >>> scores = torch.randn(8, 131072, device="cuda")  # doctest: +SKIP
    >>> sluice.topk(scores, 2048, values=False).indices  # doctest: +SKIP
"""

import os
import sys
from typing import NamedTuple

import torch

from sluice import _sluice, tensor_ops
from sluice.device_params import is_on_device, only_known, text_of
from sluice.errors import ArgumentTypeError, Error

GUESSES = ("sample", "hint", "secant", "threshold")
WORK_WORDS = 2  # the way, reads and rounds in bytes, then the candidates
_NONE = (0, 0)
_IS_LOGGED = "topk" in os.environ.get("SLUICE_LOG", "").split(",")
_WHOLE = (int, torch.SymInt)


class TopkPlan(NamedTuple):
    """How a call runs, as sluice::cuda::TopkPlan: another plan takes other time, never another
    answer."""

    guess: str
    blocks: int
    threads: int
    capacity: int


class TopkTensors:
    """The k largest scores of each row: ``indices`` (int32), ``values`` (float32), ``statuses``.

    As ``out=`` of topk, what it has is written: ``statuses`` is uint8, one a row, and ``work`` int32
    [rows, 2], the struct sluice::cuda::TopkWork for measurements.
    """

    def __init__(self, indices, values=None, statuses=None, work=None):
        self.indices = indices
        self._values = values
        self.statuses = statuses
        self.work = work

    @property
    def values(self):
        if self._values is None:
            raise AttributeError("values need values=True")
        return self._values

    def __len__(self):
        return self.indices.shape[0] if self.indices.dim() == 2 else 1


def _array(tensor):
    return _NONE if tensor is None else (tensor.data_ptr(), tensor.numel())


def _check_ints(scores, name, tensor, sizes, dtype=torch.int32):
    """Of this dtype and size, on the device of the scores, with adjacent elements."""
    if tensor.dtype != dtype:
        raise ArgumentTypeError(f"{name}.dtype", str(tensor.dtype).removeprefix("torch."),
                                str(dtype).removeprefix("torch."))
    if tensor.device != scores.device:
        raise ArgumentTypeError(f"{name}.device", str(tensor.device),
                                f"that of the scores, {scores.device}")
    if tuple(tensor.shape) != tuple(sizes):
        raise Error(f"{name}.shape", str(list(tensor.shape)), str(list(sizes)))
    if not tensor.is_contiguous():
        raise Error(f"{name}.strides", str(list(tensor.stride())), "those of a contiguous tensor")


def _log(scores, k, thresholds, plan):
    if plan is None:
        plan = _sluice.cuda_plan_topk(tensor_ops.rows_of(scores, "scores"), k)
        if thresholds is not None:
            plan = (GUESSES.index("threshold"), *plan[1:])
    guess, blocks, threads, capacity = plan
    way = f"up to {capacity} candidates" if capacity else "every row by the definition"
    print(f"sluice: topk of [{scores.shape[0]}, {scores.shape[1]}] "
          f"{tensor_ops.DTYPES[scores.dtype]}, k = {k}: guess by {GUESSES[guess]}, {blocks} blocks "
          f"of {threads} threads a row, {way}", file=sys.stderr)


def _launch(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, plan, outputs):
    """Sizes are checked by the library, with its other checks."""
    rows = tensor_ops.rows_of(scores, "scores")
    columns = 0 if hint is None else hint.shape[-1]
    *arrays, (work, words) = (_array(output) for output in outputs)
    _sluice.cuda_topk(rows, k, _array(lengths), next_n, (*_array(hint), columns, hint_shift),
                      sorted, _array(thresholds), (*arrays, (work, words // WORK_WORDS)),
                      None if plan is None else tuple(plan))
    if _IS_LOGGED:
        _log(scores, k, thresholds, plan)


def _topk(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, values, plan):
    outputs = _fake_topk(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, values,
                         plan)
    _launch(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, plan,
            (*outputs, None))
    return outputs


def _fake_topk(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, values, plan):
    tensor_ops.check_logits(scores, "scores")
    rows = scores.shape[0]
    return (scores.new_empty((rows, k), dtype=torch.int32),
            scores.new_empty((rows, k) if values else (0, 0), dtype=torch.float32),
            scores.new_empty(rows, dtype=torch.uint8))


def _topk_into(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, plan, *outputs):
    _launch(scores, k, lengths, hint, hint_shift, next_n, sorted, thresholds, plan, outputs)


def _fake_topk_into(scores, *_):
    tensor_ops.check_logits(scores, "scores")


def _indexer_topk_decode(logits, seq_lens, indices, next_n=1, index_topk=2048, pre_idx=None,
                         heuristic_scratch=None):
    """pre_idx is checked and passed on as a hint, moved on by one, and no plan of PlanTopk uses it: a
    sample of the row is faster. sluice.topk with a plan of guess "hint" or "secant" does."""
    del heuristic_scratch
    tensor_ops.check_logits(logits, "logits")
    requests = logits.shape[0] // max(1, next_n)
    _check_ints(logits, "seq_lens", seq_lens, (requests,))
    _check_ints(logits, "indices", indices, (logits.shape[0], index_topk))
    if pre_idx is not None:
        _check_ints(logits, "pre_idx", pre_idx, (requests, pre_idx.shape[-1]))
    _launch(logits, index_topk, seq_lens, pre_idx, 1, next_n, False, None, None,
            (indices, None, None, None))


_WHAT = ("Tensor scores, SymInt k, Tensor? lengths, Tensor? hint, SymInt hint_shift, "
         "SymInt next_n, bool sorted, Tensor(z!)? thresholds")
_topk_op = tensor_ops.define(
    f"topk({_WHAT}, bool values, SymInt[]? plan) -> (Tensor, Tensor, Tensor)", _topk, _fake_topk)
_topk_into_op = tensor_ops.define(
    f"topk_into({_WHAT}, SymInt[]? plan, Tensor(a!) indices, Tensor(b!)? values, "
    "Tensor(c!)? statuses, Tensor(d!)? work) -> ()", _topk_into, _fake_topk_into)
# The argument list that engines with a sparse indexer call; heuristic_scratch is not needed.
indexer_topk_decode = tensor_ops.define(
    "indexer_topk_decode(Tensor logits, Tensor seq_lens, Tensor(a!) indices, SymInt next_n=1, "
    "SymInt index_topk=2048, Tensor? pre_idx=None, Tensor? heuristic_scratch=None) -> ()",
    _indexer_topk_decode, _fake_topk_into)


def _whole(name, value):
    if not isinstance(value, _WHOLE) or isinstance(value, bool):
        raise ArgumentTypeError(name, text_of(value), "a whole number")
    return value


def _flag(name, value):
    if not isinstance(value, bool):
        raise ArgumentTypeError(name, text_of(value), "True or False")
    return value


def _lengths(scores, lengths, requests):
    """On the device: a number for all requests, a tensor, or a sequence of the host."""
    columns = scores.shape[1]
    if isinstance(lengths, _WHOLE) and not isinstance(lengths, bool):
        if not 0 <= lengths <= columns:
            raise Error("lengths", str(lengths), f"[0, {columns}]")
        return torch.full((requests,), lengths, dtype=torch.int32, device=scores.device)
    if not is_on_device(lengths):
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentTypeError("lengths", text_of(lengths),
                                    "a number or a CUDA tensor while a graph is captured")
        host = torch.as_tensor(lengths)
        if host.dtype not in (torch.int32, torch.int64):
            raise ArgumentTypeError("lengths.dtype", str(host.dtype).removeprefix("torch."),
                                    "int32 or int64")
        for length in host.flatten().tolist():
            if not 0 <= length <= columns:
                raise Error("lengths", str(length), f"[0, {columns}]")
        lengths = host.to(torch.int32).to(scores.device, non_blocking=True)
    elif lengths.dtype == torch.int64:  # out of range stays out of range
        lengths = lengths.clamp(-1, 2**31 - 1).to(torch.int32)
    lengths = lengths.contiguous()
    if lengths.dim() != 1:
        raise Error("lengths.ndim", str(lengths.dim()), "1, or a number")
    if lengths.shape[0] != requests:
        raise Error("lengths.size", str(lengths.shape[0]), str(requests))
    _check_ints(scores, "lengths", lengths, (requests,))
    return lengths


def _hint(scores, hint, requests):
    if not isinstance(hint, torch.Tensor):
        raise ArgumentTypeError("hint", text_of(hint), "a CUDA tensor of int32")
    if hint.dim() not in (1, 2):
        raise Error("hint.ndim", str(hint.dim()), "1 or 2")
    hint = (hint[None] if hint.dim() == 1 else hint).contiguous()
    _check_ints(scores, "hint", hint, (requests, hint.shape[1]))
    return hint


def _thresholds(scores, thresholds):
    """Written again, so it is not made contiguous."""
    if not isinstance(thresholds, torch.Tensor):
        raise ArgumentTypeError("thresholds", text_of(thresholds), "a CUDA tensor of float32")
    _check_ints(scores, "thresholds", thresholds, (scores.shape[0],), torch.float32)
    return thresholds


def _plan_numbers(plan):
    if not isinstance(plan, TopkPlan) or plan.guess not in GUESSES:
        raise ArgumentTypeError("plan", text_of(plan),
                                f"a TopkPlan with a guess of {', '.join(GUESSES)}")
    return [GUESSES.index(plan.guess), *(_whole(f"plan.{name}", number) for name, number in
                                         zip(TopkPlan._fields[1:], plan[1:]))]


def _check_out(scores, k, out, is_row):
    """The tensors of `out` as the operator takes them: [rows, k] and [rows]."""
    if not isinstance(out, TopkTensors):
        raise ArgumentTypeError("out", text_of(out), "sluice.tensors.TopkTensors")
    rows, of_row = scores.shape[0], () if is_row else (scores.shape[0],)
    tensors = []
    for name, tensor, dtype, sizes in (
            ("indices", out.indices, torch.int32, (k,)), ("values", out._values, torch.float32, (k,)),
            ("statuses", out.statuses, torch.uint8, ()), ("work", out.work, torch.int32, (WORK_WORDS,))):
        if tensor is not None:
            _check_ints(scores, f"out.{name}", tensor, (*of_row, *sizes), dtype)
            tensor = tensor.view(rows, *sizes)
        tensors.append(tensor)
    return tensors


def plan_topk(scores, k):
    """What topk chooses for these scores: by their rows, their width and k."""
    rows = scores[None] if scores.dim() == 1 else scores
    guess, *shape = _sluice.cuda_plan_topk(tensor_ops.rows_of(rows, "scores"), _whole("k", k))
    return TopkPlan(GUESSES[guess], *shape)


def topk(scores, k, *, lengths=None, hint=None, hint_shift=0, thresholds=None, next_n=1,
         sorted=False, values=True, out=None, plan=None, **others):
    only_known(others, ("lengths", "hint", "hint_shift", "thresholds", "next_n", "sorted", "values",
                        "out", "plan"))
    is_row = scores.dim() == 1
    rows = scores[None] if is_row else scores
    tensor_ops.check_logits(rows, "scores")
    if not 1 <= _whole("k", k) <= tensor_ops.MOST_COLUMNS:
        raise Error("k", str(k), f"[1, {tensor_ops.MOST_COLUMNS}]")
    if not 1 <= _whole("next_n", next_n) <= 1 << 16:
        raise Error("next_n", str(next_n), f"[1, {1 << 16}]")
    if rows.shape[0] % next_n != 0:
        raise Error("scores.rows", str(rows.shape[0]), f"a multiple of next_n, {next_n}")
    if not -2**31 <= _whole("hint_shift", hint_shift) < 2**31:
        raise Error("hint_shift", str(hint_shift), "a number of 32 bits")
    requests = rows.shape[0] // next_n
    lengths = None if lengths is None else _lengths(rows, lengths, requests)
    hint = None if hint is None else _hint(rows, hint, requests)
    thresholds = None if thresholds is None else _thresholds(rows, thresholds)
    what = (rows, k, lengths, hint, hint_shift, next_n, _flag("sorted", sorted), thresholds)
    plan = None if plan is None else _plan_numbers(plan)
    if out is not None:
        _topk_into_op(*what, plan, *_check_out(rows, k, out, is_row))
        return out
    indices, found, statuses = _topk_op(*what, _flag("values", values), plan)
    found = found if values else None
    if is_row:
        return TopkTensors(indices[0], None if found is None else found[0], statuses[0])
    return TopkTensors(indices, found, statuses)
