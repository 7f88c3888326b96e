"""The calls of the C interface on rows: one matrix, its parameters and keys."""

import numpy as np
from c_api import (
    Candidates,
    Cut,
    CutMass,
    DRAW_METHODS,
    LOGPROB_MODES,
    Limits,
    LogprobInput,
    LogprobLists,
    SelectInput,
    TokenResult,
    aligned,
    c,
    call,
    execution,
    to_keys,
    to_select_params,
    view,
)


class Rows:
    """A SelectInput of a matrix, and the calls on it."""

    def __init__(self, logits, params: list, keys: list, max_temperature=2.0, backend: int = 0):
        self.logits = logits
        self.params, self.keys = to_select_params(params), to_keys(keys)
        self.input = SelectInput(
            view(logits),
            c.addressof(self.params),
            len(params),
            c.addressof(self.keys),
            len(keys),
            Limits(max_temperature),
        )
        size = c.c_size_t()
        need = execution(None, backend)
        call("sluice_select_workspace_bytes", self.input.logits, need, c.byref(size))
        self.workspace = aligned(size.value)
        self.execution = execution(self.workspace, backend)
        self.rows = len(logits)

    def select(self) -> tuple[c.Array, c.Array]:
        cuts, masses = (Cut * self.rows)(), (CutMass * self.rows)()
        call("sluice_select", self.input, cuts, self.rows, masses, self.rows, self.execution)
        return cuts, masses

    def sample(self, method: str) -> c.Array:
        results = (TokenResult * self.rows)()
        number = c.c_uint8(DRAW_METHODS.index(method))
        call("sluice_sample", self.input, number, results, self.rows, self.execution)
        return results

    def draw(self, method: str, cuts: c.Array) -> c.Array:
        results = (TokenResult * self.rows)()
        number = c.c_uint8(DRAW_METHODS.index(method))
        args = (number, cuts, self.rows, results, self.rows)
        call("sluice_draw", self.input, *args, self.execution)
        return results

    def collect(self, cuts: c.Array, by_rank: bool):
        offsets = np.cumsum([0] + [cut.count for cut in cuts], dtype=np.int64)
        n = int(offsets[-1])
        ids, logits = np.zeros(n, np.int32), np.zeros(n, np.float32)
        weights = np.zeros(n, np.uint64)
        out = Candidates(offsets.ctypes.data, len(offsets))
        if n:
            out.ids, out.logits, out.weights = (a.ctypes.data for a in (ids, logits, weights))
            out.id_count = out.logit_count = out.weight_count = n
        order = c.c_uint8(by_rank)
        call("sluice_collect", self.input, cuts, self.rows, order, out, self.execution)
        return [(ids[a:b], logits[a:b], weights[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]

    def mask(self, cuts: c.Array) -> np.ndarray:
        masked = self.logits.copy()
        call("sluice_mask", view(masked), cuts, self.rows, self.execution)
        return masked

    def kept_bitmask(self, cuts: c.Array) -> np.ndarray:
        words = (self.logits.shape[1] + 31) // 32
        bitmask = np.zeros((self.rows, words), np.int32)
        args = (cuts, self.rows, bitmask, bitmask.size)
        call("sluice_kept_bitmask", self.input.logits, *args, self.execution)
        return bitmask

    def logprobs(self, mode: str, results: c.Array, width: int):
        """Fills logprob and rank of the results; the lists."""
        ids = np.zeros((self.rows, width), np.int32)
        values = np.zeros((self.rows, width), np.float32)
        lists = LogprobLists(width, ids.ctypes.data, ids.size, values.ctypes.data, values.size)
        number = LOGPROB_MODES.index(mode)
        given = LogprobInput(self.input.logits, number, self.input.params, self.input.param_count)
        call("sluice_logprobs", given, results, self.rows, lists, self.execution)
        return ids, values
