"""Temperature. T = 0 is greedy; 0 < T < 0.01 is raised to 0.01.

It never touches the logits: order, ties, greedy and top-k do not depend on it. It enters through
the scale c = fl(log2(e) / T), once a row: one for the filters (stages 12 to 15), one for the draw.
"""

from .arithmetic import F32
from .params import Params

LOG2_E = F32(float.fromhex("0x1.715476p+0"))


def is_greedy(params: Params) -> bool:
    return params.temperature == 0


def effective_temperature(params: Params) -> F32:
    return max(F32(params.temperature), F32(0.01))


def temperature_scale(temperature: F32) -> F32:
    return LOG2_E / temperature


def draw_scale(params: Params) -> F32:
    return temperature_scale(effective_temperature(params))


def filter_scale(params: Params) -> F32:
    """In profiles where temperature comes last, the filters see T = 1."""
    if params.profile.temperature_stage == "last":
        return temperature_scale(F32(1))
    return draw_scale(params)
