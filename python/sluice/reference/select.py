"""Stages 10 to 15 for one row: from adjusted values to the interval of the total order that is
kept.

    10 greedy: T == 0 keeps the first token, done
    12 min-p, top-n-sigma, typical
    13 top-k          14 top-p on the survivors (or both on the survivors of 12: joint)
    (min-p here instead, in profiles that have it last)
    15 XTC

A token that one rule dropped does not exist for the later rules.
"""

from dataclasses import dataclass, field

import numpy as np

from .cut import Cut, CutMass, cut_of_interval
from .interval import Interval, SortedRow, sorted_row
from .min_p import min_p
from .noise import xtc_coin_falls
from .params import NoiseKey, Params
from .row_status import Status, scan_row
from .temperature import filter_scale, is_greedy
from .top_k import top_k
from .top_n_sigma import top_n_sigma
from .top_p import top_p, top_p_margin
from .typical import typical
from .validate import MAX_TEMPERATURE, selects_validly
from .xtc import xtc


@dataclass(frozen=True)
class Selection:
    """What selection leaves of a row."""

    cut: Cut
    mass: CutMass = CutMass()
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # kept, by rank
    trace: dict[str, Interval] = field(default_factory=dict)  # of the ranks: what each rule left


def select_interval(row: SortedRow, params: Params, key: NoiseKey) -> dict[str, Interval]:
    """What each rule left; the last is the kept set. A rule that is off leaves what it found."""
    profile = params.profile
    trace = {}
    kept = Interval(0, len(row.x))

    if is_greedy(params):
        kept = Interval(0, 1)
    trace["greedy"] = kept
    filters = not is_greedy(params)
    min_p_is_last = profile.min_p_stage == "last"

    if filters and params.min_p > 0 and not min_p_is_last:
        kept = min_p(row, kept, params.min_p)
    trace["min_p"] = kept
    if filters and params.top_n_sigma > 0:
        kept = top_n_sigma(row, kept, params.top_n_sigma)
    trace["top_n_sigma"] = kept
    if filters and params.typical_p < 1:
        kept = typical(row, kept, params.typical_p)
    trace["typical"] = kept

    if filters:
        kept = top_k(row, kept, params.top_k, profile)
    trace["top_k"] = kept
    if filters and params.top_p < 1:
        by_mass = top_p(row, measured_by_top_p(trace, params), params.top_p, profile)
        kept = Interval(kept.begin, min(kept.end, by_mass.end))
    trace["top_p"] = kept

    if filters and params.min_p > 0 and min_p_is_last:
        kept = min_p(row, kept, params.min_p)
    trace["min_p_last"] = kept
    if filters and params.xtc_probability > 0 and xtc_coin_falls(key, params.xtc_probability):
        kept = xtc(row, kept, params.xtc_threshold)
    trace["xtc"] = kept
    return trace


def measured_by_top_p(trace: dict[str, Interval], params: Params) -> Interval:
    return trace["typical" if params.profile.top_k_top_p == "joint" else "top_k"]


def masses(row: SortedRow, params: Params, trace: dict[str, Interval]) -> CutMass:
    measured = measured_by_top_p(trace, params)
    total, kept = row.mass(measured), row.mass(trace["xtc"])
    if is_greedy(params) or params.top_p >= 1:
        return CutMass(kept, total)
    return CutMass(kept, total, top_p_margin(row, measured, params.top_p, params.profile))


def select_row(
    x: np.ndarray, params: Params, key: NoiseKey, max_temperature: float = MAX_TEMPERATURE
) -> Selection:
    """x: the adjusted values, fp32."""
    status = scan_row(x)[0]
    if not selects_validly(params, key, max_temperature):
        status = Status.BAD_PARAM
    if status != Status.OK:
        return Selection(Cut(status=status))
    row = sorted_row(x, filter_scale(params))
    trace = select_interval(row, params, key)
    kept = trace["xtc"]
    ids = row.ids[kept.begin : kept.end]
    return Selection(cut_of_interval(row, kept), masses(row, params, trace), ids, trace)
