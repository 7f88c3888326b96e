"""The whole step of one request: from logits to tokens, with its history and its drafts.

A step is a pure function of the logits, the request's own history and its seed: a request gets
the same tokens alone, in any batch, with drafts (mode `match`) or without. A request with n drafts
takes n + 1 rows: row 0 is what the target says after the tokens so far, row i + 1 what it says after
draft i and the drafts before it. They are walked from row 0 on, each row sees the tokens that the
rows before it gave, and a token that is no draft after it ends the walk.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .adjust import Processor, adjust_row
from .cut import Cut, CutMass, kept_bitmask
from .draft import DraftModel, Try, verify_row
from .draw import draw_token
from .logprob import Logprobs, logprobs_row
from .params import NoiseKey, Params
from .row_status import Status
from .select import Selection, select_row
from .validate import MAX_TEMPERATURE, check_request
from .widen import widen


@dataclass(frozen=True)
class Token:
    """What a row gave. Rows with a status and rows after a rejection have id -1."""

    id: int = -1
    status: Status = Status.OK
    cut: Cut = Cut()


@dataclass(frozen=True)
class Report:
    """The further results of a step for a row with a token."""

    row: int  # of the logits, that gave the token
    adjusted: np.ndarray  # the values after stage 9
    kept: np.ndarray  # the kept set as a bitmask
    mass: CutMass
    logprobs: Logprobs | None  # when the request has them


def sample_row(
    x: np.ndarray, params: Params, key: NoiseKey, max_temperature: float = MAX_TEMPERATURE
) -> Token:
    """Selection and draw. x: the adjusted values."""
    cut = select_row(x, params, key, max_temperature).cut
    if cut.status != Status.OK:
        return Token(status=cut.status, cut=cut)
    return Token(draw_token(x, cut, params, key), Status.OK, cut)


def verified_row(
    x: np.ndarray,
    params: Params,
    key: NoiseKey,
    tries: Sequence[Try],
    max_temperature: float = MAX_TEMPERATURE,
) -> tuple[Token, int]:
    """The token of one row, and which of the drafts after it that is; -1: none."""
    if not tries or params.draft_mode == "match":
        token = sample_row(x, params, key, max_temperature)
        drafts = [draft for draft, _ in tries]
        return token, drafts.index(token.id) if token.id in drafts else -1
    cut = select_row(x, params, key, max_temperature).cut
    if cut.status != Status.OK:
        return Token(status=cut.status, cut=cut), -1
    verdict = verify_row(x, cut, params, key, tries)
    if verdict.status != Status.OK:
        return Token(status=verdict.status, cut=Cut(status=verdict.status)), -1
    return Token(verdict.id, Status.OK, cut), verdict.accepted


@dataclass
class Request:
    """A request and its tokens so far."""

    params: Params
    vocab: int
    prompt: Sequence[int] = ()
    choice: int = 0
    processors: Sequence[Processor] = ()
    max_temperature: float = MAX_TEMPERATURE
    tokens: list[int] = field(init=False)
    seed: int = field(init=False)

    def __post_init__(self):
        check_request(self.params, self.vocab, self.max_temperature)
        self.tokens = list(self.prompt)
        self.seed = secrets.randbits(64) if self.params.seed is None else self.params.seed

    def key(self) -> NoiseKey:
        return NoiseKey(self.seed, len(self.tokens), self.choice)

    def accept(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens

    def rollback(self, count: int) -> None:
        """Takes back the last `count` output tokens."""
        assert 0 <= count <= len(self.tokens) - len(self.prompt)
        self.tokens = self.tokens[: len(self.tokens) - count]

    def step(
        self,
        logits: np.ndarray,
        drafts: Sequence[int] = (),
        sources: Sequence[np.ndarray | DraftModel] | None = None,
        bitmasks: Sequence[np.ndarray] | None = None,
        forced: int = -1,
        parents: Sequence[int] | None = None,
    ) -> tuple[list[Token], list[Report | None]]:
        """As many tokens as `logits` has rows, those of the walk first, and their reports.
        `sources`: what each draft was drawn from, for the mode `reject`. `bitmasks`: one a row.
        `forced` is for the first row. `parents`: of each draft the index of the one before it, or
        -1; without them each follows the one before."""
        params = self.params
        if parents is None:
            parents = range(-1, len(drafts) - 1)
        tokens: list[Token] = []
        reports: list[Report | None] = []
        row = 0
        while row >= 0:
            raw = widen(logits[row])
            x = adjust_row(
                raw,
                params,
                self.tokens,
                len(self.prompt),
                None if bitmasks is None else bitmasks[row],
                self.processors,
                forced if row == 0 else -1,
            )
            behind = [i for i in range(len(drafts)) if parents[i] == row - 1]
            tries = [(drafts[i], None if sources is None else sources[i]) for i in behind]
            key = self.key()
            token, which = verified_row(x, params, key, tries, self.max_temperature)
            tokens.append(token)
            if token.id >= 0:
                reports.append(self._report(row, raw, x, key, token))
                self.accept([token.id])
            row = behind[which] + 1 if which >= 0 else -1
        tokens += [Token()] * (len(logits) - len(tokens))
        reports += [None] * (len(logits) - len(reports))
        return tokens, reports

    def _report(
        self, row: int, raw: np.ndarray, x: np.ndarray, key: NoiseKey, token: Token
    ) -> Report:
        params = self.params
        selection: Selection = select_row(x, params, key, self.max_temperature)
        logprobs = None
        if params.logprobs is not None:
            count = self.vocab if params.logprobs < 0 else params.logprobs
            values = raw if params.logprob_mode.startswith("raw") else x
            mode = params.logprob_mode
            logprobs = logprobs_row(values, token.cut, params, mode, token.id, count)
        return Report(row, x, kept_bitmask(x, token.cut), selection.mass, logprobs)
