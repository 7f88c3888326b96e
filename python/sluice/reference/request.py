"""The whole step of one request: from logits to tokens, with its history and its drafts.

A step is a pure function of the logits, the request's own history and its seed: a request gets
the same tokens alone, in any batch, with drafts (mode `match`) or without. A request with n drafts
takes n + 1 rows: row j is what the target says after the first j drafts. They are walked in order,
each row sees the tokens that the rows before it gave, and the first disagreement ends the walk.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .adjust import Processor, adjust_row
from .cut import Cut, CutMass, kept_bitmask
from .draft import DraftModel, verify_row
from .draw import draw_token
from .logprob import Logprobs, logprobs_row
from .params import NoiseKey, Params
from .row_status import Status
from .select import Selection, select_row
from .validate import MAX_TEMPERATURE, check_request
from .widen import widen


@dataclass(frozen=True)
class Token:
    """What a row gave. Rows with a status and rows behind a rejection have id -1."""

    id: int = -1
    status: Status = Status.OK
    cut: Cut = Cut()


@dataclass(frozen=True)
class Report:
    """What else a step tells about a row with a token."""

    adjusted: np.ndarray  # the values after stage 9
    kept: np.ndarray  # the kept set as a bitmask
    mass: CutMass
    logprobs: Logprobs | None  # when the request asks for them


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
    draft: int | None,
    source: np.ndarray | DraftModel | None,
    max_temperature: float = MAX_TEMPERATURE,
) -> tuple[Token, bool]:
    """The token of one row, and whether it is the draft. draft: none on a bonus row."""
    if draft is None or params.draft_mode == "match":
        token = sample_row(x, params, key, max_temperature)
        return token, token.id == draft
    cut = select_row(x, params, key, max_temperature).cut
    if cut.status != Status.OK:
        return Token(status=cut.status, cut=cut), False
    verdict = verify_row(x, cut, params, key, draft, source)
    if verdict.status != Status.OK:
        return Token(status=verdict.status, cut=Cut(status=verdict.status)), False
    return Token(verdict.id, Status.OK, cut), verdict.is_accepted


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
    ) -> tuple[list[Token], list[Report | None]]:
        """One token a row of `logits`, and its report. `sources`: what each draft was drawn from,
        for the mode `reject`. `bitmasks`: one a row. `forced` is for the first row."""
        params = self.params
        tokens: list[Token] = []
        reports: list[Report | None] = []
        goes_on = True
        for j, raw in enumerate(logits):
            if not goes_on:
                tokens.append(Token())
                reports.append(None)
                continue
            raw = widen(raw)
            bitmask = None if bitmasks is None else bitmasks[j]
            x = adjust_row(
                raw,
                params,
                self.tokens,
                len(self.prompt),
                bitmask,
                self.processors,
                forced if j == 0 else -1,
            )
            draft = drafts[j] if j < len(drafts) else None
            source = sources[j] if sources is not None and draft is not None else None
            key = self.key()
            token, goes_on = verified_row(x, params, key, draft, source, self.max_temperature)
            tokens.append(token)
            if token.id < 0:
                reports.append(None)
                continue
            reports.append(self._report(raw, x, key, token))
            self.accept([token.id])
        return tokens, reports

    def _report(self, raw: np.ndarray, x: np.ndarray, key: NoiseKey, token: Token) -> Report:
        params = self.params
        selection: Selection = select_row(x, params, key, self.max_temperature)
        logprobs = None
        if params.logprobs is not None:
            count = self.vocab if params.logprobs < 0 else params.logprobs
            values = raw if params.logprob_mode.startswith("raw") else x
            mode = params.logprob_mode
            logprobs = logprobs_row(values, token.cut, params, mode, token.id, count)
        return Report(x, kept_bitmask(x, token.cut), selection.mass, logprobs)
