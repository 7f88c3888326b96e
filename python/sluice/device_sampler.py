"""sluice.DeviceSampler: requests and their whole step on a CUDA device, for engines on torch.

    sampler = sluice.DeviceSampler(vocab=128256, max_requests=64)
    request = sampler.add(top_k=50, repetition_penalty=1.1, seed=42, prompt=tokens)
    step = sampler.step(logits, [request])  # enqueued on the current stream
    model(step.ids)  # a tensor on the device
    step.get().ids  # waits for one copy
"""

import typing

import torch

from sluice import _sluice, tensor_ops
from sluice.device_params import text_of
from sluice.errors import ArgumentTypeError, Error

OPTIONS = ("max_requests", "max_drafts", "max_rows", "max_tokens", "max_listed_ids", "max_logprobs",
           "max_graphs", "max_processed_rows", "max_temperature", "bitmasks", "goes_on_with_zero",
           "kept", "masses")


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


class ProcessorRows(typing.NamedTuple):
    """The rows of a request in a step, as its processors find them: tensors on the device that show
    the sampler's memory, for as long as the call takes."""

    logits: torch.Tensor  #: float32 [1 + n, vocab], the first after no draft, to change in place
    tokens: torch.Tensor  #: int32 [max_tokens]: prompt and output; the rest means nothing
    token_count: torch.Tensor  #: int32 [1]: how many they are, which the host need not have yet
    drafts: torch.Tensor  #: int32 [n]: row d of the logits follows the first d, after the tokens
    prompt_length: int
    parents: list  #: of a tree of drafts, as StepRequest has them; row d follows those before it


class TokenTable(typing.NamedTuple):
    """The tokens of a step as engines pass them on: tensors on the device."""

    tokens: torch.Tensor  #: int64 [rows, 1]; 0 in a row that nothing can be drawn from
    ids: torch.Tensor  #: int64 [rows, 1 + n]: the token, and the n most likely ones
    logprobs: torch.Tensor  #: float32 [rows, 1 + n]; -inf, and id 0, where a list is shorter
    ranks: torch.Tensor  #: int64 [rows]: how many tokens are at least as likely as the token, or 0


class DeviceStep:
    """A step that was enqueued. ``ids``: int32 on the device, one a row, -1 where there is none.
    ``kept``: with ``kept=True``, int32 [rows, ceil(vocab / 32)] there: a bit for each kept token.
    ``table``: a TokenTable, when the step was called for one; ``ids`` is None then.
    """

    def __init__(self, sampler, step, ids, kept, table):
        self.ids, self.kept, self.table = ids, kept, table
        self._sampler, self._step = sampler, step
        self._answer = None

    def get(self):
        """Waits for the copy of this step and for nothing else: a TokenResults, as Sampler.step
        gives. Within the next three steps of its sampler, or never."""
        if self._answer is None:
            self._answer = self._sampler.get(self._step)
        return self._answer


class DeviceSampler:
    """As sluice.Sampler, on a CUDA device: the same tokens, bit for bit.

    ``max_requests``, ``max_tokens``, ``max_drafts``, ``max_listed_ids``, ``max_logprobs``,
    ``max_rows``, ``max_processed_rows``, ``max_graphs`` and ``max_temperature`` say what there is
    room for; ``bitmasks=False`` that no step brings some. ``goes_on_with_zero=True``: a request goes
    on with token 0 after a step that gave it none. ``kept=True``: steps write the kept sets as bitmasks, which stay on the device.
    ``masses=True``: their answers have ``cuts`` with masses. A build without CUDA raises
    UnavailableError.
    """

    def __init__(self, *, vocab, device=None, **options):
        for name, value in options.items():
            if name not in OPTIONS:
                raise ArgumentTypeError(name, text_of(value),
                                        f"one of the keywords {', '.join(OPTIONS)}")
        device = torch.device("cuda" if device is None else device)
        if device.type != "cuda":
            raise ArgumentTypeError("device", str(device), "a CUDA device")
        if _sluice.build()["cuda"] and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._sampler = _sluice.CudaSampler(device.index or 0, {"vocab": vocab, **options})
        self.device = device
        self.vocab = vocab
        self._has_kept = options.get("kept", False)

    def add(self, params=None, *, prompt=(), choice=0, processors=(), **fields):
        """A request: SamplingParams, or their fields as keywords. Returns its handle.

        ``processors``: callables of a ProcessorRows, or LogitsProcessor of such, called once a step
        after all penalties; what they do to its ``logits`` is work on the current stream. An
        exception leaves the step, of which nothing is accepted. A step has room for
        ``max_processed_rows`` rows of such requests.
        """
        if params is not None and fields:
            name, value = next(iter(fields.items()))
            raise ArgumentTypeError(name, text_of(value), "no keyword next to params")
        return self._sampler.add(_sluice.SamplingParams(**fields) if params is None else params,
                                 prompt, choice, processors)

    def remove(self, request):
        self._sampler.remove(request)

    def update(self, request, params):
        """Other numbers for a request, from its next step on."""
        self._sampler.update(request, params)

    def accept(self, request, tokens):
        """Appends tokens that came from elsewhere."""
        self._sampler.accept(request, tokens)

    def rollback(self, request, count):
        """Takes back the last output tokens; only after ``get`` of the request's last step."""
        self._sampler.rollback(request, count)

    def seed(self, request):
        return self._sampler.seed(request)

    @property
    def free_slots(self):
        return self._sampler.free_slots

    @property
    def waits(self):
        """How often a call waited for the device outside of ``get``."""
        return self._sampler.waits

    def step(self, logits, requests, *, table=None):
        """Enqueues the step of these requests on the current stream and returns at once.

        ``logits``: a tensor on the device, a row a request, or 1 + n for n drafts. ``requests``:
        handles, or sluice.StepRequest for those with drafts, a bitmask or a forced token.
        ``table``: how many of the most likely tokens a TokenTable lists for each row; -1 for the
        tokens alone.
        """
        if logits.device != self.device:
            raise ArgumentTypeError("logits.device", str(logits.device), str(self.device))
        rows = tensor_ops.rows_of(logits)
        ids = kept = None
        if table is None:
            ids = torch.empty(logits.shape[0], dtype=torch.int32, device=self.device)
        else:
            table = self.new_table(logits.shape[0], table)
        if self._has_kept:
            kept = torch.empty((logits.shape[0], (self.vocab + 31) // 32), dtype=torch.int32,
                               device=self.device)
        step = self._sampler.step(
            rows, requests, 0 if ids is None else ids.data_ptr(),
            0 if kept is None else kept.data_ptr(),
            None if table is None else (table.tokens.data_ptr(), 0 if table.ids is None else
                                        table.ids.shape[1], *map(_address, table[1:])))
        return DeviceStep(self._sampler, step, ids, kept, table)

    def new_table(self, rows, listed):
        """A TokenTable without values, as a step called with ``table=listed`` gives one."""
        if not isinstance(listed, int) or not -1 <= listed <= 128:
            raise Error("table", text_of(listed), "None, or from -1 to 128")
        tokens = torch.empty((rows, 1), dtype=torch.int64, device=self.device)
        if listed < 0:
            return TokenTable(tokens, None, None, None)
        return TokenTable(
            tokens, torch.empty((rows, 1 + listed), dtype=torch.int64, device=self.device),
            torch.empty((rows, 1 + listed), dtype=torch.float32, device=self.device),
            torch.empty(rows, dtype=torch.int64, device=self.device))
